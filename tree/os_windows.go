package tree

import (
	"io/fs"
	"os"
	"path/filepath"
)

// OpenSafely is empty: Windows has no FIFOs in directories, and the file is compared with what Lstat saw.
const OpenSafely = 0

// FileID tells two names of one file from two files.
type FileID struct{}

// OnDisk gives the apparent size: what a file takes on the disk would cost a call for each.
func OnDisk(fi fs.FileInfo) (bytes int64, id FileID, linked bool) { return fi.Size(), FileID{}, false }

// BelongsTo is true: there is nobody else to give a file to.
func BelongsTo(fs.FileInfo, int) bool { return true }

// RenameInto goes by paths: there is no other way here, and no container that shares a Windows file system as itself.
func RenameInto(from *os.Root, old string, to *os.Root, name string) error {
	return os.Rename(filepath.Join(from.Name(), old), filepath.Join(to.Name(), name))
}

// changedNS has nothing to add here: size and time of the last change must do.
func changedNS(fs.FileInfo) (ns int64, inode uint64) { return 0, 0 }

// SyncDir does nothing: Windows does not sync directories.
func SyncDir(*os.Root) error { return nil }
