package health

import (
	"errors"
	"math"

	"golang.org/x/sys/windows"
)

// freeSpace is the room for this user; Windows has no inodes to run out of.
func freeSpace(dir string) (bytes, inodes uint64, err error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	if err := windows.GetDiskFreeSpaceEx(p, &bytes, nil, nil); err != nil {
		return 0, 0, err
	}
	return bytes, math.MaxUint64, nil
}

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
