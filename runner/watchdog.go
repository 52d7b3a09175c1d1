package runner

import (
	"time"

	"secbox/diskwatch"
	"secbox/engine"
)

// firstLook is for how long a job waits for the first look at its project. The look begins before the row is opened, which takes longer.
const firstLook = 10 * time.Millisecond

// watch looks after the disk until unwatch, and kills the job through its live entry when a bound is passed.
func (x *exec) watch() {
	x.unlinked = &diskwatch.Open{}
	x.watched = x.cfg.Disk.Begin(diskwatch.Writer{Project: x.project, ExecID: x.slot.ExecID(), Open: x.unlinked, Kill: x.live.cancel})
}

// unwatch ends it, if it has begun.
func (x *exec) unwatch() {
	if x.watched != nil {
		x.watched.End()
	}
}

// noteUnlinked takes a report of sandbox-init.
func (x *exec) noteUnlinked(u engine.Unlinked) { x.unlinked.Set(u.Bytes, u.Hidden) }
