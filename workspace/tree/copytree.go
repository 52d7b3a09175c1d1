package tree

import (
	"context"
	"fmt"
	"os"
)

// CopyFrom copies the directories and regular files of a tree that pick accepts; a nil pick accepts
// all. It shares blocks where the file system can. Files become 0644 or 0755, directories 0755, and
// all get the owner of the Staged. A link or special file is an error that names it. Empty
// directories are copied only when pick is nil.
func (s *Staged) CopyFrom(ctx context.Context, from *Tree, b Bounds, pick func(path string) bool) error {
	c := copier{to: s.Root, owner: s.owner}
	defer c.close()
	return from.Walk(ctx, b, func(e Entry) error {
		switch {
		case e.Info.IsDir() && pick == nil:
			return c.open(e.Path)
		case e.Info.IsDir(), pick != nil && !pick(e.Path):
			return nil
		}
		if err := c.file(e); err != nil {
			return fmt.Errorf("%q: %w", CutName(e.Path, maxShown), err)
		}
		return nil
	})
}

// copier keeps the last directory open: a walk visits the files of a directory one after the other.
type copier struct {
	cloner
	to    *os.Root
	owner Owner
	made  map[string]bool
	last  *os.Root // nil: to
	path  string   // last's
}

func (c *copier) close() {
	if c.last != nil {
		c.last.Close()
	}
	c.last, c.path = nil, ""
}

// into opens the directory with this path and makes it if necessary. No other process can reach the
// staged tree.
func (c *copier) into(path string) (*os.Root, error) {
	switch path {
	case ".":
		return c.to, nil
	case c.path:
		return c.last, nil
	}
	c.close()
	err := c.open(path)
	if err == nil {
		c.last, err = c.to.OpenRoot(path)
	}
	if err != nil {
		c.last = nil
		return nil, err
	}
	c.path = path
	return c.last, nil
}

// open makes a directory and its parents.
func (c *copier) open(path string) error {
	if c.made == nil {
		c.made = map[string]bool{}
	}
	for _, dir := range append(Parents(path), path) {
		if c.made[dir] {
			continue
		}
		if err := MakeDir(c.to, dir); err != nil {
			return err
		}
		if c.owner.gives() {
			_ = c.to.Lchown(dir, c.owner.UID, c.owner.GID) // a file system without owners needs none
		}
		c.made[dir] = true
	}
	return nil
}

func (c *copier) file(e Entry) error {
	in, err := e.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	above, name := SplitPath(e.Path)
	dir, err := c.into(above)
	if err != nil {
		return err
	}
	mode := copiedMode(e.Info)
	out, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = c.copy(out, in)
	if fi, e := out.Stat(); err == nil && e == nil && fi.Mode().Perm()&mode != mode {
		err = out.Chmod(mode) // the umask took some of it
	}
	if c.owner.gives() {
		_ = out.Chown(c.owner.UID, c.owner.GID)
	}
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}
