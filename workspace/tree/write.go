package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"secbox/fault"
	"secbox/pathadapter"
)

// Write replaces or creates a file atomically and durably: readers see the old or the new content,
// also after a crash. New files and directories get the host's owner, a replaced file keeps its
// permissions, and its other hard links keep the old content. If seen is not nil, the file must
// still have that stat data; else nothing changes and the error is ErrChanged.
func (t *Tree) Write(path string, content []byte, seen fs.FileInfo) error {
	return t.WriteBy(path, seen, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// WriteBy is Write with content from put. An error of put changes nothing.
func (t *Tree) WriteBy(path string, seen fs.FileInfo, put func(io.Writer) error) error {
	c, err := t.NewContent()
	if err != nil {
		return err
	}
	defer c.Discard()
	if err := put(c); err != nil {
		return err
	}
	return t.Place(c, path, seen)
}

// Content is the new content of a file, which has no path in the tree before Place. One goroutine
// at a time may use it. It must be discarded, after Place too.
type Content struct {
	*os.File
	Mode    fs.FileMode // 0: of the file that it replaces, or 0644
	staging *os.Root
	temp    string
}

// NewContent begins the new content of a file.
func (t *Tree) NewContent() (*Content, error) {
	if t.host == nil {
		return nil, fs.ErrPermission
	}
	staging, err := t.host.Staging()
	if err != nil {
		return nil, err
	}
	c := &Content{staging: staging, temp: t.host.TempName()}
	if c.File, err = staging.OpenFile(c.temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		staging.Close()
		return nil, err
	}
	return c, nil
}

// Discard frees the content. Without Place, it is gone.
func (c *Content) Discard() {
	c.Close()
	if c.temp != "" {
		_ = c.staging.Remove(c.temp)
	}
	c.staging.Close()
}

// Place makes c the content of a file, as Write does, and ends the writing of c. With seen Absent,
// there must be no file.
func (t *Tree) Place(c *Content, path string, seen fs.FileInfo) error {
	above, name := SplitPath(path)
	dir, err := t.makeDirs(c.staging, above)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := t.checkSpelling(dir, name); err != nil {
		return err
	}
	mode, err := modeAt(dir, name, seen)
	if err != nil {
		return err
	}
	if c.Mode != 0 {
		mode = c.Mode
	}
	rename := RenameInto
	switch {
	case seen == Absent:
		rename = RenameNew
	case seen != nil:
		rename = func(from *os.Root, old string, to *os.Root, name string) error {
			if _, err := modeAt(to, name, seen); err != nil {
				return err
			}
			return RenameInto(from, old, to, name)
		}
	}
	err = errors.Join(t.host.Traits().Owner.giveFile(c.File, mode), c.Sync(), c.Close())
	if err == nil {
		err = rename(c.staging, c.temp, dir, name)
	}
	if err == nil {
		c.temp = ""
	}
	return ifGone(err)
}

// ifGone converts the error about a directory that was opened or made, and that another program has
// removed since.
func ifGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

// Link makes a link, or replaces one. Anything else at the path is moved aside, to a name beside it
// that begins with a dot. The target is not checked: this package follows no link.
func (t *Tree) Link(target, path string) error {
	if t.host == nil {
		return fs.ErrPermission
	}
	staging, err := t.host.Staging()
	if err != nil {
		return err
	}
	defer staging.Close()
	above, name := SplitPath(path)
	dir, err := t.makeDirs(staging, above)
	if err != nil {
		return err
	}
	defer dir.Close()
	temp := t.host.TempName()
	if err := staging.Symlink(target, temp); err != nil {
		return err
	}
	rename := RenameNew
	if fi, e := dir.Lstat(name); e == nil && fi.Mode().Type() == fs.ModeSymlink {
		rename = RenameInto
	}
	err = rename(staging, temp, dir, name)
	if errors.Is(err, fs.ErrExist) {
		if err = t.moveAside(dir, name); err == nil {
			err = RenameNew(staging, temp, dir, name)
		}
	}
	if err != nil {
		_ = staging.Remove(temp)
	}
	return err
}

// MoveAside renames what is in the place of a directory at the root of the tree, to a name beside
// it that begins with a dot. It leaves a directory, and what does not exist.
func (t *Tree) MoveAside(name string) error {
	if t.host == nil {
		return fs.ErrPermission
	}
	fi, err := t.root.Lstat(name)
	if err == nil && !fi.IsDir() {
		err = t.moveAside(t.root, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (t *Tree) moveAside(dir *os.Root, name string) error {
	return RenameNew(dir, name, dir, "."+name+"-"+t.host.TempName())
}

// Absent stands for the stat data of a file that does not exist.
var Absent fs.FileInfo = absent{}

type absent struct{ fs.FileInfo }

// checkSpelling refuses a new name that some systems treat as equal to an existing one.
func (t *Tree) checkSpelling(dir *os.Root, name string) error {
	if _, err := dir.Lstat(name); err == nil && !t.host.Traits().CaseBlind {
		return nil
	}
	_, other, err := OtherSpelling(dir, ".", map[string]string{pathadapter.FoldName(name): name})
	if err != nil || other == "" {
		return err
	}
	return fault.BadField("path",
		"has the new name %q beside %q, and some systems take both for the same name: use that spelling or another name",
		CutName(name, 256), CutName(other, 256))
}

// modeAt returns the permissions of the file to be replaced, which must have the stat data seen, if
// not nil.
func modeAt(dir *os.Root, name string, seen fs.FileInfo) (fs.FileMode, error) {
	fi, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (seen == nil || seen == Absent):
		return 0o644, nil
	case errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("%q %w", CutName(name, 64), ErrChanged)
	case err != nil:
		return 0, err
	case !fi.Mode().IsRegular():
		return 0, fmt.Errorf("%q %w", CutName(name, 64), ErrNotRegular)
	case seen == Absent:
		return 0, fmt.Errorf("%q: %w", CutName(name, 64), fs.ErrExist)
	case seen != nil && !Unchanged(seen, fi):
		return 0, fmt.Errorf("%q %w", CutName(name, 64), ErrChanged)
	}
	return fi.Mode().Perm(), nil
}

// makeDirs opens a directory in the tree and makes missing directories on the way. A new directory
// gets its owner before its name.
func (t *Tree) makeDirs(staging *os.Root, path string) (*os.Root, error) {
	dir, err := t.root.OpenRoot(".")
	if err != nil || path == "." {
		return dir, err
	}
	for step := range strings.SplitSeq(path, "/") {
		err := t.checkSpelling(dir, step)
		var next *os.Root
		if err == nil {
			next, err = enterDir(dir, step)
		}
		if errors.Is(err, fs.ErrNotExist) {
			if err = t.makeDir(staging, dir, step); err == nil {
				next, err = enterDir(dir, step)
			}
		}
		dir.Close()
		if err != nil {
			return nil, ifGone(err)
		}
		dir = next
	}
	return dir, nil
}

func (t *Tree) makeDir(staging, dir *os.Root, name string) error {
	temp := t.host.TempName()
	if err := t.host.Traits().Owner.MakeDir(staging, temp); err != nil {
		return err
	}
	err := RenameNew(staging, temp, dir, name)
	if err != nil {
		_ = staging.Remove(temp)
	}
	if errors.Is(err, fs.ErrExist) { // by another process
		return nil
	}
	return err
}

// giveFile sets the permissions and the owner of a new file.
func (o Owner) giveFile(f *os.File, mode fs.FileMode) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Mode().Perm() != mode {
		if err := f.Chmod(mode); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errors.ErrUnsupported) {
			return err // a file system without permissions needs none
		}
	}
	if o.gives() {
		_ = f.Chown(o.UID, o.GID) // nor does one without owners
	}
	return nil
}
