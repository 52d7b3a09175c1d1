package workspace

import (
	"errors"
	"io/fs"
	"math"

	"golang.org/x/sys/windows"
)

// openSafely is empty: Windows has no FIFOs in directories, and the file is compared with what Lstat saw.
const openSafely = 0

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

func freeSpace(path string) (bytes, inodes uint64, err error) {
	p, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, 0, err
	}
	if err := windows.GetDiskFreeSpaceEx(p, &bytes, nil, nil); err != nil {
		return 0, 0, err
	}
	return bytes, math.MaxUint64, nil
}

type fileID struct{}

// onDisk gives the apparent size: what a file takes on the disk would cost a call for each.
func onDisk(fi fs.FileInfo) (bytes int64, id fileID, linked bool) { return fi.Size(), fileID{}, false }

// belongsTo is true: there is nobody else to give a file to.
func belongsTo(fs.FileInfo, int) bool { return true }
