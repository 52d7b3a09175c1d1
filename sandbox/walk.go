package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"secbox/fault"
)

// WalkBounds bound a walk below a directory of a sandbox. A walk that exceeds one of them fails
// with fault.TreeTooLarge.
type WalkBounds struct {
	Entries int           // files, links and directories together
	Depth   int           // levels of directories below the first
	Time    time.Duration // for the whole walk, with the time that fn takes; 0: only the context bounds it
}

// DefaultWalkBounds are enough for a source tree, and bound what a hostile one costs.
var DefaultWalkBounds = WalkBounds{Entries: MaxDirEntries, Depth: 64, Time: time.Minute}

// Lister lists directories; every Sandbox is one.
type Lister interface {
	ReadDir(ctx context.Context, path string, user User) ([]DirEntry, error)
}

// WalkDir calls fn for everything below the directory root that is no directory, in the order of
// the bytes of each directory's names. rel is the path below root, with slashes. Links are not
// followed: fn gets the link itself. fn may return fs.SkipAll to end the walk without an error; any
// other error ends the walk and is returned. A missing root is fs.ErrNotExist.
func WalkDir(ctx context.Context, s Lister, root string, user User, b WalkBounds, fn func(rel string, e DirEntry) error) error {
	w := walk{lister: s, user: user, bounds: b, file: fn}
	return w.run(ctx, root)
}

// walk is one walk.
type walk struct {
	ctx    context.Context
	lister Lister
	user   User
	bounds WalkBounds
	seen   int
	file   func(rel string, e DirEntry) error

	// resolve returns the entry that a link leads to; nil: links are passed to file.
	resolve func(rel string) (DirEntry, error)
}

func (w *walk) run(ctx context.Context, root string) error {
	w.ctx = ctx
	if w.bounds.Time > 0 {
		var cancel context.CancelFunc
		w.ctx, cancel = context.WithTimeout(ctx, w.bounds.Time)
		defer cancel()
	}
	err := w.below(root, "", 0)
	switch {
	case errors.Is(err, fs.SkipAll):
		return nil
	case err != nil && w.ctx.Err() != nil && ctx.Err() == nil:
		return fault.Wrap(fault.TreeTooLarge, err,
			"the directory %s cannot be read within %s: remove unneeded files, or name a directory below it", root, w.bounds.Time)
	}
	return err
}

// below walks the directory rel below root.
func (w *walk) below(root, rel string, depth int) error {
	entries, err := w.lister.ReadDir(w.ctx, path.Join(root, rel), w.user)
	if err != nil {
		return err
	}
	if w.seen += len(entries); w.seen > w.bounds.Entries { // before anything is done with them
		return fault.New(fault.TreeTooLarge,
			"the directory %s has more than %d entries: remove unneeded files, or name a directory below it", root, w.bounds.Entries)
	}
	for _, e := range entries {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return fault.New(fault.RunnerProtocol, "the sandbox lists %.80q, which is no name of a file", e.Name)
		}
		below := path.Join(rel, e.Name)
		if w.resolve != nil && e.Mode&fs.ModeSymlink != 0 {
			if e, err = w.resolve(below); err != nil {
				return fmt.Errorf("the link %.200q: %w", below, err)
			}
		}
		if !e.IsDir {
			err = w.file(below, e)
		} else if depth+1 > w.bounds.Depth {
			err = fault.New(fault.TreeTooLarge,
				"the directory %s has more than %d levels of directories, or a link to a directory above itself: remove it", root,
				w.bounds.Depth)
		} else {
			err = w.below(root, below, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
