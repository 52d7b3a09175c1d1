package workspace

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"

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

// renameInto goes by paths: there is no other way here, and no container that shares a Windows file system as itself.
func renameInto(from *os.Root, old string, to *os.Root, name string) error {
	return os.Rename(filepath.Join(from.Name(), old), filepath.Join(to.Name(), name))
}

// changedNS has nothing to add here: size and time of the last change must do.
func changedNS(fs.FileInfo) (ns int64, inode uint64) { return 0, 0 }

// syncDir does nothing: Windows does not sync directories.
func syncDir(*os.Root) error { return nil }
