package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// FileStat is the stat data of a file. A file with the same FileStat has the same content, if its
// last change was older than a tick of the file system's clock and no process had it mapped
// (Tree.Still) when the FileStat was taken: a command can reset Modified, but not Changed.
type FileStat struct {
	Size     int64 // bytes
	Modified int64 // Unix time, nanoseconds
	Changed  int64 // the same, of the inode; 0 where there is none
	Inode    uint64
	Mode     fs.FileMode
}

// StatOf returns the stat data of a file.
func StatOf(fi fs.FileInfo) FileStat {
	s := FileStat{Size: fi.Size(), Modified: fi.ModTime().UnixNano(), Mode: fi.Mode()}
	s.Changed, s.Inode = changedNS(fi)
	return s
}

// Newest is the later of the two times.
func (s FileStat) Newest() time.Time { return time.Unix(0, max(s.Modified, s.Changed)) }

// Unchanged reports whether two stats are of the same file with the same content.
func Unchanged(a, b fs.FileInfo) bool { return os.SameFile(a, b) && StatOf(a) == StatOf(b) }

// renameChecked looks first and then renames, for systems that cannot do both at once.
func renameChecked(from *os.Root, old string, to *os.Root, name string) error {
	if _, err := to.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%q: %w", CutName(name, 64), fs.ErrExist)
		}
		return err
	}
	return RenameInto(from, old, to, name)
}
