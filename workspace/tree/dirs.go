package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"secbox/pathadapter"
)

// Errors of opening; see IsRefused.
var (
	ErrNotDir  = errors.New("is a link or no directory")
	ErrSwapped = errors.New("was exchanged while it was being opened")
)

// OpenDir opens the directory name (one component) of parent. It never follows a link, not even a
// link that is put there meanwhile.
func OpenDir(parent *os.Root, name string) (*os.Root, fs.FileInfo, error) {
	before, err := parent.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !before.IsDir() {
		return nil, nil, fmt.Errorf("%q %w", name, ErrNotDir)
	}
	// With "/." the name itself is opened as a directory: a plain OpenRoot would block on a FIFO
	// put in its place.
	dir, err := parent.OpenRoot(name + "/.")
	if err != nil {
		return nil, nil, ifSwapped(name, err)
	}
	after, err := dir.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%q %w", name, ErrSwapped)
	}
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, after, nil
}

// ifSwapped converts the errors that opening a directory has only if something else took its place
// after the Lstat: a file, or a link, whose refusal by os.Root is no error of the system. On
// Windows a file gives the same error as a missing directory, and counts as one.
func ifSwapped(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	system, is := errors.AsType[syscall.Errno](err)
	if !is || system == syscall.ENOTDIR || system == syscall.ELOOP {
		return fmt.Errorf("%q %w", name, ErrSwapped)
	}
	return err
}

// MakeDir makes a directory with mode 0755 under any umask, unless it exists.
func MakeDir(parent *os.Root, name string) error {
	err := parent.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return UndoUmask(parent, name)
}

// KeepPrivate lets only root into a directory, if this process is root. Containers are not
// affected: the engine resolves the sources of their mounts. Errors are ignored, since some file
// systems have neither owners nor modes.
func KeepPrivate(parent *os.Root, name string) {
	if os.Geteuid() != 0 {
		return
	}
	fi, err := parent.Lstat(name)
	if err != nil || !fi.IsDir() {
		return
	}
	if !BelongsTo(fi, 0) {
		_ = parent.Lchown(name, 0, 0)
	}
	if fi.Mode().Perm() != 0o700 {
		_ = parent.Chmod(name, 0o700)
	}
}

// UndoUmask sets mode 0755 on a new directory if the umask took some of it. Otherwise it changes
// nothing: some file systems, such as a Windows drive under WSL, refuse every chmod and need none.
func UndoUmask(parent *os.Root, name string) error {
	fi, err := parent.Lstat(name)
	if err != nil || fi.Mode().Perm()&0o755 == 0o755 {
		return err
	}
	return parent.Chmod(name, 0o755)
}

// UndoFileUmask does the same for a new file and its PlainMode.
func UndoFileUmask(f *os.File, executable bool) error {
	mode := PlainMode(executable)
	fi, err := f.Stat()
	if err != nil || fi.Mode().Perm()&mode == mode {
		return err
	}
	return f.Chmod(mode)
}

// RealDir checks that each step down is a directory and no link.
func RealDir(root *os.Root, steps ...string) error {
	for i := range steps {
		path := strings.Join(steps[:i+1], "/")
		fi, err := root.Lstat(path)
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return fmt.Errorf("%q %w", path, ErrNotDir)
		}
	}
	return nil
}

// errFound ends a walk over names.
var errFound = errors.New("found")

// OtherSpelling looks in the directory path below root for a name that some systems treat as equal
// to one of names, differing by case or Unicode form. The keys of names are folded. found is ""
// when there is none, or no such directory.
func OtherSpelling(root *os.Root, path string, names map[string]string) (name, found string, err error) {
	err = EachNameIn(root, path, func(n string) error {
		if mine, ok := names[pathadapter.FoldName(n)]; ok && mine != n {
			name, found = mine, n
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) || errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return name, found, err
}

// NameBatch is how many names are read from a directory at once, which bounds the memory for large
// directories.
const NameBatch = 1024

// EachName calls f with every name in dir, unsorted.
func EachName(dir *os.Root, f func(name string) error) error { return EachNameIn(dir, ".", f) }

// EachNameIn does the same for a directory below dir.
func EachNameIn(dir *os.Root, path string, f func(name string) error) error {
	list, err := dir.Open(path)
	if err != nil {
		return err
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(NameBatch)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// MakeDown opens a directory below root and makes missing directories on the way, durably.
func MakeDown(root *os.Root, steps ...string) (*os.Root, error) {
	dir, err := root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		_, err := dir.Lstat(step)
		if errors.Is(err, fs.ErrNotExist) {
			if err = MakeDir(dir, step); err == nil {
				err = SyncDir(dir)
			}
		}
		var next *os.Root
		if err == nil {
			next, _, err = OpenDir(dir, step)
		}
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// OpenBelow opens a directory two levels down without following a link.
func OpenBelow(root *os.Root, first, second string) (*os.Root, fs.FileInfo, error) {
	dir, _, err := OpenDir(root, first)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	return OpenDir(dir, second)
}
