package tree

import (
	"os"

	"golang.org/x/sys/unix"
)

// births gives the times at which directories were made, in nanoseconds; 0 where the file system does not know.
func Births(root *os.Root, names []string) []int64 {
	times := make([]int64, len(names))
	top, err := root.Open(".")
	if err != nil {
		return times
	}
	defer top.Close()
	for i, name := range names {
		var st unix.Statx_t
		err := unix.Statx(int(top.Fd()), name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_BTIME, &st)
		if err == nil && st.Mask&unix.STATX_BTIME != 0 {
			times[i] = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
		}
	}
	return times
}
