package tree

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// Staged is a directory under construction, on the same file system as its destination and
// invisible to containers. The caller must discard it; a tree that was renamed to its destination
// stays there. After a crash the directory is removed when it is an hour old.
type Staged struct {
	Root   *os.Root
	parent *os.Root
	name   string
	swap   string // beside it: the directory that it replaced
	owner  Owner  // of copied files
}

// NewStaged makes an empty directory below parent and, unless there is an error, takes ownership of
// parent. Files copied into it get the owner.
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

// Discard removes the staged directory, unless it was put in place, and the directory that it
// replaced. It may be called more than once.
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

// Install moves the staged directory to this name in dir, durably, and replaces a directory that
// has the name.
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

// Put moves the staged directory, which is on the same host, to a path in the tree and makes the
// directories above. fs.ErrExist when the path is taken.
func (t *Tree) Put(s *Staged, path string) error {
	dir, name, err := t.destination(s, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return RenameNew(s.parent, s.name, dir, name)
}

// Replace moves the staged directory to a path in the tree. The directory that was there takes its
// place in staging and is discarded with it; open handles on it still work. If old is not nil, it
// must be the directory at the path; else nothing changes and the error is ErrChanged. Where the
// file system can exchange names, other processes see one of the two at every moment.
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

// Take moves the entry at a path out of the tree into the staging of s, atomically. fs.ErrNotExist
// when there is none.
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

// Return undoes Take. If there is something at the path again, the entry goes beside it, under a
// name that begins with a dot.
func (t *Tree) Return(s *Staged, path string) error {
	dir, name, err := t.destination(s, path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err = RenameNew(s.parent, s.swap, dir, name); errors.Is(err, fs.ErrExist) {
		err = RenameNew(s.parent, s.swap, dir, "."+name+"-"+t.host.TempName())
	}
	return err
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
