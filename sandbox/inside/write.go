//go:build linux

package inside

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// write replaces the content of a file, or leaves it as it is: the new content has no name until it
// is complete, so that nothing is left when the program is killed.
func (j *job) write() error {
	path, old, err := target(j.path)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	switch {
	case old != nil && !old.Mode().IsRegular():
		return errKind
	case old != nil:
		mode = old.Mode().Perm()
		if err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, 0); err != nil {
			return err // a rename would ignore the file's mode
		}
	}
	if err := j.unchanged(path); err != nil {
		return err
	}
	f, name, err := newFile(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.CopyBuffer(f, struct{ io.Reader }{&ChunkReader{R: j.in}}, make([]byte, ChunkBytes)); err != nil {
		return errors.Join(err, removeIf(name))
	}
	err = f.Chmod(mode)
	if err == nil && old != nil { // a crash leaves one content or the other
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, removeIf(name))
	}
	return j.place(f, name, path)
}

// target follows the links of a path to a file that may be missing, makes the missing directories
// above it, and describes the file; nil if it is missing.
func target(path string) (string, fs.FileInfo, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		fi, err := os.Lstat(real)
		return real, fi, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	if _, err := os.Lstat(path); err == nil { // a link that leads nowhere
		return "", nil, fs.ErrNotExist
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, filepath.Base(path)), nil, nil
}

// unchanged checks the version of the present content.
func (j *job) unchanged(path string) error {
	if j.Version == "" {
		return nil
	}
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && j.Version == Absent:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil || version(fi) != j.Version:
		return errChanged
	}
	return nil
}

// newFile makes a file in a directory. It has no name where the file system has such files.
func newFile(dir string) (f *os.File, name string, err error) {
	f, err = os.OpenFile(dir, os.O_WRONLY|unix.O_TMPFILE, 0o600)
	if err == nil {
		return f, "", nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	if f, err = os.CreateTemp(dir, ".secbox-*.part"); err != nil {
		return nil, "", err
	}
	return f, f.Name(), nil
}

func removeIf(name string) error {
	if name == "" {
		return nil
	}
	return os.Remove(name)
}

// place gives the content its name. Of several programs that place content in one directory, one
// does it at a time, so that the version holds.
func (j *job) place(f *os.File, name, path string) error {
	if dir, err := os.OpenFile(filepath.Dir(path), unix.O_DIRECTORY, 0); err == nil {
		defer dir.Close()
		_ = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
	}
	if err := j.unchanged(path); err != nil {
		return errors.Join(err, removeIf(name))
	}
	if j.Version == Absent || name == "" {
		err := link(f, name, path)
		switch {
		case err == nil:
			return removeIf(name)
		case errors.Is(err, fs.ErrExist) && j.Version == Absent:
			return errors.Join(errChanged, removeIf(name))
		case !errors.Is(err, fs.ErrExist):
			return errors.Join(err, removeIf(name))
		}
		temp := filepath.Join(filepath.Dir(path), ".secbox-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(inode(f), 36)+".part")
		if err := link(f, "", temp); err != nil {
			return err
		}
		name = temp
	}
	if err := os.Rename(name, path); err != nil {
		return errors.Join(err, removeIf(name))
	}
	return nil
}

// link gives a file another name, or its first one if it has none.
func link(f *os.File, name, to string) error {
	if name != "" {
		return os.Link(name, to)
	}
	own := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	return unix.Linkat(unix.AT_FDCWD, own, unix.AT_FDCWD, to, unix.AT_SYMLINK_FOLLOW)
}

func inode(f *os.File) uint64 {
	var s unix.Stat_t
	_ = unix.Fstat(int(f.Fd()), &s)
	return s.Ino
}
