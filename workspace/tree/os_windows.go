package tree

import (
	"io/fs"
	"os"
	"path/filepath"
)

// OpenSafely is empty: Windows has no FIFOs in directories, and the opened file is compared with
// its Lstat.
const OpenSafely = 0

// FileID identifies a file that may have several names.
type FileID struct{}

// OnDisk returns the apparent size: the size on the disk would take a call per file.
func OnDisk(fi fs.FileInfo) (bytes int64, id FileID, linked bool) { return fi.Size(), FileID{}, false }

// BelongsTo is true: files are not given to other users here.
func BelongsTo(fs.FileInfo, int) bool { return true }

// RenameInto renames by path, in a directory above both: Windows offers nothing else, and no
// container writes to these directories as itself. Unlike os.Rename, Root.Rename also replaces a
// file that is open.
func RenameInto(from *os.Root, old string, to *os.Root, name string) error {
	above := from.Name()
	down, err := filepath.Rel(above, to.Name())
	for err == nil && !filepath.IsLocal(down) {
		above = filepath.Dir(above)
		down, err = filepath.Rel(above, to.Name())
	}
	if err != nil {
		return err
	}
	below, err := filepath.Rel(above, from.Name())
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(above)
	if err != nil {
		return err
	}
	defer root.Close()
	return root.Rename(filepath.Join(below, old), filepath.Join(down, name))
}

// changedNS is not known on Windows; size and modification time must do.
func changedNS(fs.FileInfo) (ns int64, inode uint64) { return 0, 0 }

// SyncDir does nothing: Windows does not sync directories.
func SyncDir(*os.Root) error { return nil }

// OwnerOf is not known on Windows.
func OwnerOf(fs.FileInfo) (uid, gid int) { return 0, 0 }

// sameMode compares the kind only: the only permission here is read-only.
func sameMode(a, b fs.FileMode) bool {
	return a.IsDir() == b.IsDir() && a.Type() == b.Type() && b.Perm()&0o200 != 0
}

// otherMount is false: a folder with a volume in it is no directory for Lstat, and is never
// entered.
func otherMount(*os.Root, string) (bool, error) { return false, nil }
