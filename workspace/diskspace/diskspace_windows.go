package diskspace

import (
	"errors"
	"math"

	"golang.org/x/sys/windows"
)

// Free returns the space that this user may still take on the volume of a path. Windows does not
// count inodes.
func Free(path string) (Space, error) {
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return Space{}, err
	}
	free := Space{Inodes: math.MaxUint64}
	if err := windows.GetDiskFreeSpaceEx(p, &free.Bytes, nil, nil); err != nil {
		return Space{}, err
	}
	return free, nil
}

// IsFull reports whether an error says that a disk has no room.
func IsFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}
