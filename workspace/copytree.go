package workspace

import (
	"context"
	"fmt"
	"os"
)

// CopyFrom copies directories and regular files of a tree into what is staged: those that pick takes, all when it is nil. Blocks are
// shared where the file system can. Files become 0644 or 0755 and directories 0755. A file that is a link or something special is an
// error that names it. Empty directories are copied when nothing is picked.
func (s *Staged) CopyFrom(ctx context.Context, from *Tree, b Bounds, pick func(path string) bool) error {
	c := copier{to: s.Root}
	return from.Walk(ctx, b, func(e Entry) error {
		switch {
		case e.Info.IsDir() && pick == nil:
			return c.open(e.Path)
		case e.Info.IsDir(), pick != nil && !pick(e.Path):
			return nil
		}
		if err := c.file(e); err != nil {
			return fmt.Errorf("%q: %w", cutName(e.Path, maxOmittedName), err)
		}
		return nil
	})
}

// copier remembers the directory that it has written to last: a walk brings a directory's files one after the other.
type copier struct {
	cloner
	to   *os.Root
	made map[string]bool
}

// open makes a directory and those above it.
func (c *copier) open(path string) error {
	if c.made == nil {
		c.made = map[string]bool{}
	}
	for _, dir := range append(parents(path), path) {
		if c.made[dir] {
			continue
		}
		if err := makeDir(c.to, dir); err != nil {
			return err
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
	if dir, _ := splitPath(e.Path); dir != "." {
		if err := c.open(dir); err != nil {
			return err
		}
	}
	mode := copiedMode(e.Info)
	out, err := c.to.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = c.copy(out, in)
	if fi, e := out.Stat(); err == nil && e == nil && fi.Mode().Perm()&mode != mode {
		err = out.Chmod(mode) // the umask took some of it
	}
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}

// GiveTo makes everything that is staged the container user's.
func (p *Project) GiveTo(ctx context.Context, s *Staged) error {
	if p.w.opts.UID <= 0 || os.Geteuid() != 0 {
		return nil
	}
	own := func(name string) { _ = s.Root.Lchown(name, p.w.opts.UID, p.w.opts.GID) } // a file system without owners needs none
	own(".")
	t, err := s.Tree()
	if err != nil {
		return err
	}
	defer t.Close()
	return t.Walk(ctx, Bounds{Entries: 1 << 30, Depth: maxDepth}, func(e Entry) error {
		_ = e.dir.Lchown(e.Info.Name(), p.w.opts.UID, p.w.opts.GID)
		return nil
	})
}
