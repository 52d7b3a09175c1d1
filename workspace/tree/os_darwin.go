package tree

import (
	"os"
	"syscall"
)

func changeTime(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }

// otherMount reports whether the entry name of dir is the root of another mount: macOS has no bind
// mounts.
func otherMount(dir *os.Root, name string) (bool, error) { return otherDevice(dir, name) }
