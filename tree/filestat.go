package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// FileStat is what the file system tells of a file without opening it. A file with the same stamp has the same content, if the stamp is
// older than a tick of the file system's clock and was taken while no process had the file mapped (Tree.Still): a command can put Modified
// back, but not Changed.
type FileStat struct {
	Size     int64 // bytes
	Modified int64 // Unix time, nanoseconds
	Changed  int64 // the same, of the inode; 0 where there is none
	Inode    uint64
	Mode     fs.FileMode
}

// StatOf gives the stamp of a file.
func StatOf(fi fs.FileInfo) FileStat {
	s := FileStat{Size: fi.Size(), Modified: fi.ModTime().UnixNano(), Mode: fi.Mode()}
	s.Changed, s.Inode = changedNS(fi)
	return s
}

// Newest is the later of the two times.
func (s FileStat) Newest() time.Time { return time.Unix(0, max(s.Modified, s.Changed)) }

// Unchanged reports whether two looks saw the same file with the same content.
func Unchanged(a, b fs.FileInfo) bool { return os.SameFile(a, b) && StatOf(a) == StatOf(b) }

// renameChecked looks first and renames then: for systems that cannot do both at once.
func renameChecked(from *os.Root, old string, to *os.Root, name string) error {
	if _, err := to.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%q: %w", CutName(name, 64), fs.ErrExist)
		}
		return err
	}
	return RenameInto(from, old, to, name)
}
