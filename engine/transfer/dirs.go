package transfer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Dir is a directory at one end of a transfer.
type Dir struct {
	Target   string   // in the container
	ReadOnly bool     // nothing of it comes back
	Root     *os.Root // at this end
	// Staging is where Receive writes a file before it gets its name: on the file system of Root,
	// and out of the reach of jobs. Nil: Root.
	Staging *os.Root
}

// OpenDirs opens the directories of files that were opened already, which it closes: the roots are
// the same directories, whatever has their names now. The caller closes the roots.
func OpenDirs(files []*os.File) (roots []*os.Root, err error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			CloseDirs(roots)
		}
	}()
	for _, f := range files {
		root, err := os.OpenRoot(f.Name())
		if err != nil {
			return roots, err
		}
		roots = append(roots, root)
		is, err := root.Stat(".")
		if err != nil {
			return roots, err
		}
		if want, err := f.Stat(); err != nil || !os.SameFile(is, want) {
			return roots, fmt.Errorf("%s was replaced while it was being opened", f.Name())
		}
	}
	return roots, nil
}

// CloseDirs closes roots.
func CloseDirs(roots []*os.Root) {
	for _, root := range roots {
		root.Close()
	}
}

// errOther reports that something else has the name of a directory or a file.
var errOther = errors.New("something else has its name")

// ifReplaced converts the errors that opening has only if something else took the place of a
// directory or file after the Lstat. A link is refused by os.Root, which is no error of the system.
func ifReplaced(err error) error {
	system, is := errors.AsType[syscall.Errno](err)
	if !is || system == syscall.ENOTDIR || system == syscall.ELOOP || system == syscall.ENXIO {
		return errOther
	}
	return err
}

// openDir opens the directory name (one component) of parent, and no link that takes its place
// meanwhile.
func openDir(parent *os.Root, name string) (*os.Root, error) {
	before, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, errOther
	}
	dir, err := parent.OpenRoot(name + "/.") // as it is, a FIFO in its place would block
	if errors.Is(err, fs.ErrPermission) && parent.Chmod(name, before.Mode().Perm()|0o700) == nil {
		dir, err = parent.OpenRoot(name + "/.") // its owner, who is this process's user, has no rights
	}
	if err != nil {
		return nil, ifReplaced(err)
	}
	if after, err := dir.Stat("."); err != nil || !os.SameFile(before, after) {
		dir.Close()
		return nil, errOther
	}
	return dir, nil
}

// openFile opens the regular file that an Lstat returned.
func openFile(dir *os.Root, name string, before fs.FileInfo) (*os.File, fs.FileInfo, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|openSafely, 0)
	if errors.Is(err, fs.ErrPermission) && dir.Chmod(name, before.Mode().Perm()|0o600) == nil {
		f, err = dir.OpenFile(name, os.O_RDONLY|openSafely, 0)
	}
	if err != nil {
		return nil, nil, ifReplaced(err)
	}
	after, err := f.Stat()
	if err == nil && (!after.Mode().IsRegular() || !os.SameFile(before, after)) {
		err = errOther
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, after, nil
}

// nameBatch is how many names are read from a directory at once.
const nameBatch = 1024

// names lists a directory, at most so many names; more are ErrTooLarge.
func names(dir *os.Root, most int) ([]string, error) {
	list, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	var all []string
	for {
		batch, err := list.Readdirnames(nameBatch)
		if all = append(all, batch...); len(all) > most {
			return nil, ErrTooLarge
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
