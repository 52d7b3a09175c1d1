package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"secbox/pathadapter"
)

var (
	errNotDir  = errors.New("is a link or no directory")
	errSwapped = errors.New("was exchanged while it was being opened")
)

// openDir opens the directory name (one component) of parent and follows no link, also none that is put there in the meantime.
func openDir(parent *os.Root, name string) (*os.Root, fs.FileInfo, error) {
	before, err := parent.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !before.IsDir() {
		return nil, nil, fmt.Errorf("%q %w", name, errNotDir)
	}
	// With "/." the name itself is opened as a directory: a plain OpenRoot would wait for ever at a FIFO put in its place.
	dir, err := parent.OpenRoot(name + "/.")
	if err != nil {
		return nil, nil, err
	}
	after, err := dir.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = fmt.Errorf("%q %w", name, errSwapped)
	}
	if err != nil {
		dir.Close()
		return nil, nil, err
	}
	return dir, after, nil
}

// makeDir makes a directory of ours that everybody may read, whatever the umask, unless it exists.
func makeDir(parent *os.Root, name string) error {
	err := parent.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return open755(parent, name)
}

// keepPrivate lets only root into a directory, when core-api is root. Containers are not affected: the engine resolves the sources
// of their mounts. Some file systems know neither owners nor modes, so errors are ignored.
func keepPrivate(parent *os.Root, name string) {
	if os.Geteuid() != 0 {
		return
	}
	fi, err := parent.Lstat(name)
	if err != nil || !fi.IsDir() {
		return
	}
	if !belongsTo(fi, 0) {
		_ = parent.Lchown(name, 0, 0)
	}
	if fi.Mode().Perm() != 0o700 {
		_ = parent.Chmod(name, 0o700)
	}
}

// open755 undoes what the umask took away from a new directory. Where that is nothing, it changes nothing: some file systems, such as a
// Windows drive under WSL, refuse every chmod and need none.
func open755(parent *os.Root, name string) error {
	fi, err := parent.Lstat(name)
	if err != nil || fi.Mode().Perm()&0o755 == 0o755 {
		return err
	}
	return parent.Chmod(name, 0o755)
}

// open644 does the same for a new file.
func open644(f *os.File) error {
	fi, err := f.Stat()
	if err != nil || fi.Mode().Perm()&0o444 == 0o444 {
		return err
	}
	return f.Chmod(0o644)
}

// realDir checks that each step down is a directory and no link.
func realDir(root *os.Root, steps ...string) error {
	for i := range steps {
		path := strings.Join(steps[:i+1], "/")
		fi, err := root.Lstat(path)
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return fmt.Errorf("%q %w", path, errNotDir)
		}
	}
	return nil
}

// errFound ends a walk over names.
var errFound = errors.New("found")

// otherSpelling looks in the directory path below root for a name that differs from one of names, which go by their folded form, and that
// some systems take for the same: they do not tell case or Unicode forms apart. found is "" when there is none, or no such directory.
func otherSpelling(root *os.Root, path string, names map[string]string) (name, found string, err error) {
	err = eachNameIn(root, path, func(n string) error {
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

// nameBatch is how many names are read from a directory at once: its memory is bounded however many there are.
const nameBatch = 1024

// eachName calls f with every name in dir, in no order.
func eachName(dir *os.Root, f func(name string) error) error { return eachNameIn(dir, ".", f) }

// eachNameIn does the same for a directory below dir.
func eachNameIn(dir *os.Root, path string, f func(name string) error) error {
	list, err := dir.Open(path)
	if err != nil {
		return err
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(nameBatch)
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
