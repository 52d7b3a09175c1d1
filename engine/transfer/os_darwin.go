package transfer

import "syscall"

const seekData = 4

func changeTime(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }

func awaitTick(int64) {}
