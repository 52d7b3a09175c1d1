package transfer

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const seekData = unix.SEEK_DATA

func changeTime(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }

// awaitTick waits until the clock of the file system, which ticks every few milliseconds, is past a
// time: a change that comes then has another time.
func awaitTick(newest int64) {
	for range 20 {
		var now unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now) == nil && now.Nano() > newest {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
