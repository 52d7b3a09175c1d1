package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"secbox/fault"
	"secbox/pathadapter"
)

// Staged is a directory under construction, on the same file system as its destination and invisible to containers. The caller must
// discard it; what was renamed to its destination by then stays there. After a crash it is removed when it is an hour old.
type Staged struct {
	Root   *os.Root
	parent *os.Root
	name   string
	swap   string // beside it: the directory that it replaced
	owner  Owner  // of copied files
}

// NewStaged makes an empty directory below parent and, unless there is an error, takes ownership of parent. Files copied into it get
// the owner.
func NewStaged(parent *os.Root, name string, owner Owner) (*Staged, error) {
	if err := MakeDir(parent, name); err != nil {
		return nil, err
	}
	root, _, err := OpenDir(parent, name)
	if err != nil {
		return nil, err
	}
	if owner.gives() {
		_ = root.Lchown(".", owner.UID, owner.GID) // a file system without owners needs none
	}
	return &Staged{Root: root, parent: parent, name: name, owner: owner}, nil
}

// Tree opens the directory for reading; the caller closes it.
func (s *Staged) Tree() (*Tree, error) {
	root, err := s.Root.OpenRoot(".")
	return &Tree{root: root}, err
}

// Discard removes the staged directory, unless it was put in place, and the directory that it replaced. It may be called more than
// once.
func (s *Staged) Discard() {
	if s.parent == nil {
		return
	}
	s.Root.Close()
	for _, name := range []string{s.name, s.swap} {
		if name != "" {
			_, _ = RemoveTree(context.Background(), s.parent, name)
		}
	}
	s.parent.Close()
	s.parent = nil
}

// Empty removes all files written so far.
func (s *Staged) Empty(ctx context.Context) error {
	return untilEmpty(s.Root, func(names []string) error {
		for _, name := range names {
			if _, err := RemoveTree(ctx, s.Root, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// Install moves the staged directory to this name in dir, durably, and replaces a directory that has the name.
func (s *Staged) Install(dir *os.Root, name, tempName string) error {
	if err := Flush(s.Root); err != nil {
		return err
	}
	err := RenameNew(s.parent, s.name, dir, name)
	if errors.Is(err, fs.ErrExist) { // damaged, or put there in this moment: ours is as good
		s.swap = tempName
		if err = RenameInto(dir, name, s.parent, s.swap); err == nil {
			err = RenameNew(s.parent, s.name, dir, name)
		}
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return SyncDir(dir)
}

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

// Put moves the staged directory, which is on the same host, to a path in the tree and makes the directories above. fs.ErrExist when
// the path is taken.
func (t *Tree) Put(s *Staged, path string) error {
	dir, name, err := t.destination(s, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return RenameNew(s.parent, s.name, dir, name)
}

// Replace moves the staged directory to a path in the tree. The directory that was there takes its place in staging and is discarded
// with it; open handles on it still work. If old is not nil, it must be the directory at the path; else nothing changes and the
// error is ErrChanged. Where the file system can exchange names, other processes see one of the two at every moment.
func (t *Tree) Replace(s *Staged, path string, old *Tree) error {
	dir, name, err := t.destination(s, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if !old.isAt(dir, name) {
		return ErrChanged
	}
	err = Exchange(s.parent, s.name, dir, name)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return t.replaceInSteps(s, dir, name, old)
	case errors.Is(err, fs.ErrNotExist) && old == nil:
		return RenameNew(s.parent, s.name, dir, name)
	case err != nil:
		return err
	}
	now := t.host.Traits().Now()
	_ = s.parent.Chtimes(s.name, now, now) // keeps it from being swept as old
	if !old.isAt(s.parent, s.name) {       // changed between the check and the exchange
		return errors.Join(ErrChanged, Exchange(s.parent, s.name, dir, name))
	}
	return nil
}

func (t *Tree) replaceInSteps(s *Staged, dir *os.Root, name string, old *Tree) error {
	s.swap = t.host.TempName()
	err := RenameNew(dir, name, s.parent, s.swap)
	if err != nil && (old != nil || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	if !old.isAt(s.parent, s.swap) {
		return errors.Join(ErrChanged, RenameNew(s.parent, s.swap, dir, name))
	}
	if e := RenameNew(s.parent, s.name, dir, name); e != nil {
		if err == nil {
			e = errors.Join(e, RenameNew(s.parent, s.swap, dir, name))
		}
		return e
	}
	return nil
}

// isAt reports whether the tree is the directory with this name; nil matches any.
func (t *Tree) isAt(dir *os.Root, name string) bool {
	if t == nil {
		return true
	}
	fi, err := dir.Lstat(name)
	return err == nil && t.Is(fi)
}

// Take moves the entry at a path out of the tree into the staging of s, atomically. fs.ErrNotExist when there is none.
func (t *Tree) Take(s *Staged, path string) error {
	above, name := SplitPath(path)
	dir, err := t.descend(above)
	if err != nil {
		return err
	}
	defer dir.Close()
	s.swap = t.host.TempName()
	return RenameNew(dir, name, s.parent, s.swap)
}

// TakeBack undoes Put, if the directory is still there.
func (t *Tree) TakeBack(s *Staged, path string) error {
	put, err := s.Root.Stat(".")
	if err != nil {
		return err
	}
	if now, err := t.Lstat(path); err != nil || !os.SameFile(put, now) {
		return err
	}
	return t.Take(s, path)
}

func (t *Tree) destination(s *Staged, path string) (dir *os.Root, name string, err error) {
	if t.host == nil {
		return nil, "", fs.ErrPermission
	}
	above, name := SplitPath(path)
	dir, err = t.makeDirs(s.parent, above)
	return dir, name, err
}
