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

// Write replaces or creates a file atomically and durably: readers see the old or the new content, also after a crash. New files and
// directories get the host's owner, a replaced file keeps its permissions, and its other hard links keep the old content. If seen is
// not nil, the file must still have that stat data; else nothing changes and the error is ErrChanged.
func (t *Tree) Write(path string, content []byte, seen fs.FileInfo) error {
	return t.WriteBy(path, seen, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// WriteBy is Write with content from put. An error of put changes nothing.
func (t *Tree) WriteBy(path string, seen fs.FileInfo, put func(io.Writer) error) error {
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
	if err := t.checkSpelling(dir, name); err != nil {
		return err
	}
	mode, err := modeAt(dir, name, seen)
	if err != nil {
		return err
	}
	temp := t.host.TempName()
	f, err := staging.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(put(f), t.host.Traits().Owner.giveFile(f, mode), f.Sync(), f.Close())
	if err == nil && seen != nil {
		_, err = modeAt(dir, name, seen)
	}
	if err == nil {
		err = RenameInto(staging, temp, dir, name)
	}
	if err != nil {
		_ = staging.Remove(temp)
	}
	return err
}

// checkSpelling refuses a new name that some systems treat as equal to an existing one.
func (t *Tree) checkSpelling(dir *os.Root, name string) error {
	if _, err := dir.Lstat(name); err == nil && !t.host.Traits().CaseBlind {
		return nil
	}
	_, other, err := OtherSpelling(dir, ".", map[string]string{pathadapter.FoldName(name): name})
	if err != nil || other == "" {
		return err
	}
	return fault.BadField("path", "has the new name %q beside %q, and some systems take both for the same name: use that spelling or another name",
		CutName(name, 256), CutName(other, 256))
}

// modeAt returns the permissions of the file to be replaced, which must have the stat data seen, if not nil.
func modeAt(dir *os.Root, name string, seen fs.FileInfo) (fs.FileMode, error) {
	fi, err := dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && seen == nil:
		return 0o644, nil
	case errors.Is(err, fs.ErrNotExist):
		return 0, fmt.Errorf("%q %w", CutName(name, 64), ErrChanged)
	case err != nil:
		return 0, err
	case !fi.Mode().IsRegular():
		return 0, fmt.Errorf("%q %w", CutName(name, 64), ErrNotRegular)
	case seen != nil && !Unchanged(seen, fi):
		return 0, fmt.Errorf("%q %w", CutName(name, 64), ErrChanged)
	}
	return fi.Mode().Perm(), nil
}

// makeDirs opens a directory in the tree and makes the missing ones on the way. A new directory gets its owner before its name.
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
			return nil, err
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
