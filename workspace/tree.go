package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// ErrTooLarge is a tree that passes the bounds of a walk.
var ErrTooLarge = errors.New("holds more than is looked at")

// ErrChanged is something that is not any more what was seen of it.
var ErrChanged = errors.New("was changed meanwhile")

var errNotRegular = errors.New("is a link, a directory or something special")

// IsRefused reports whether an error says that something other than a plain file or directory lies where one was looked for, a link most
// likely. Nothing was followed, opened or changed then.
func IsRefused(err error) bool {
	return errors.Is(err, errNotDir) || errors.Is(err, errNotRegular) || errors.Is(err, errSwapped)
}

// Tree is a directory in which strangers may have written: a project's work/, a folder in it, or a stored version of a skill. Its methods
// take clean paths below it, with slashes (see CleanPath), and open every directory on the way by itself, so that no link is followed, be
// it put there meanwhile, and nothing but a regular file is opened, without waiting. It holds a handle and must be closed; what was opened
// from it lives on. It is safe for concurrent use. Errors wrap those of the file system, ErrTooLarge, ErrChanged, or answer IsRefused.
type Tree struct {
	root    *os.Root
	project *Project // whose staging changes go through; nil: the tree is for reading
	release func()   // ends the use of the project's work/; nil where there is none
}

// Work opens the project's work/. While it, or a directory that was opened from it, is open, work/ is in use.
func (p *Project) Work() (*Tree, error) {
	release, err := p.Use()
	if err != nil {
		return nil, err
	}
	work, err := p.openWork()
	if err != nil {
		release()
		return nil, err
	}
	return &Tree{root: work, project: p, release: release}, nil
}

func (p *Project) openWork() (*os.Root, error) {
	root, err := p.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	work, _, err := openDir(root, workDir)
	if err != nil {
		return nil, displaced(err, "work of project %s is a link or no directory: remove what is in its place", p.id)
	}
	return work, nil
}

// Close gives up the handle.
func (t *Tree) Close() error {
	err := t.root.Close()
	if t.release != nil {
		t.release()
	}
	return err
}

// Is reports whether the tree is the directory that was seen.
func (t *Tree) Is(fi fs.FileInfo) bool {
	is, err := t.root.Stat(".")
	return err == nil && os.SameFile(is, fi)
}

// Same reports whether two trees are one directory.
func (t *Tree) Same(other *Tree) bool {
	one, err := t.root.Stat(".")
	if err != nil {
		return false
	}
	two, err := other.root.Stat(".")
	return err == nil && os.SameFile(one, two)
}

// Dir opens a directory in the tree; "." is the tree itself.
func (t *Tree) Dir(path string) (*Tree, error) {
	dir, err := t.descend(path)
	if err != nil {
		return nil, err
	}
	below := &Tree{root: dir, project: t.project}
	if t.release != nil {
		if below.release, err = t.project.Use(); err != nil {
			dir.Close()
			return nil, err
		}
	}
	return below, nil
}

// descend opens a directory in the tree, one step after the other.
func (t *Tree) descend(path string) (*os.Root, error) {
	dir, err := t.root.OpenRoot(".")
	if err != nil || path == "." {
		return dir, err
	}
	for step := range strings.SplitSeq(path, "/") {
		next, err := enterDir(dir, step)
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// enterDir opens a directory, also one of which its owner, who we may be, has taken the rights from itself.
func enterDir(parent *os.Root, name string) (*os.Root, error) {
	dir, _, err := openDir(parent, name)
	for try := 1; try < triesToOpen && errors.Is(err, errSwapped); try++ { // by an upload, of another copy
		dir, _, err = openDir(parent, name)
	}
	if !errors.Is(err, fs.ErrPermission) {
		return dir, err
	}
	fi, e := parent.Lstat(name)
	if e != nil || !fi.IsDir() || makeUsable(parent, name, fi) != nil {
		return nil, err
	}
	dir, _, err = openDir(parent, name)
	return dir, err
}

// Open opens a regular file for reading.
func (t *Tree) Open(path string) (*os.File, fs.FileInfo, error) {
	dir, name := splitPath(path)
	parent, err := t.descend(dir)
	if err != nil {
		return nil, nil, err
	}
	defer parent.Close()
	f, fi, err := openRegular(parent, name)
	for try := 1; try < triesToOpen && errors.Is(err, errSwapped); try++ { // by an edit
		f, fi, err = openRegular(parent, name)
	}
	return f, fi, err
}

// triesToOpen is how often something is opened that was exchanged for another while it was. Who exchanges it all the time is refused.
const triesToOpen = 10

// Lstat describes what lies at a path, which is reached without following a link.
func (t *Tree) Lstat(path string) (fs.FileInfo, error) {
	dir, name := splitPath(path)
	parent, err := t.descend(dir)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return parent.Lstat(name)
}

func splitPath(path string) (dir, name string) {
	if at := strings.LastIndexByte(path, '/'); at >= 0 {
		return path[:at], path[at+1:]
	}
	return ".", path
}

// Bounds are what a walk looks at before it gives up with ErrTooLarge.
type Bounds struct {
	Entries int
	Depth   int // directories below the tree's own, and the most handles that a walk holds
}

// ListingBounds are those of listings: what a manifest of artifacts may hold.
var ListingBounds = Bounds{Entries: maxEntries, Depth: maxDepth}

// Entry is one thing in a tree.
type Entry struct {
	Path string // below the tree, with slashes; as the disk has it, perhaps no UTF-8
	Info fs.FileInfo
	dir  *os.Root
}

// Open opens the regular file that Info tells of. It works while the entry is being visited.
func (e Entry) Open() (*os.File, error) {
	f, _, err := openSame(e.dir, e.Info.Name(), e.Info)
	return f, err
}

// Walk calls visit with everything below the tree, a directory before what is in it, names in the order of their bytes. What disappears
// meanwhile is left out; a tree that has itself disappeared is ErrChanged. It stops at the first error.
func (t *Tree) Walk(ctx context.Context, b Bounds, visit func(Entry) error) error {
	w := treeWalk{ctx: ctx, top: t.root, bounds: b, visit: visit}
	if err := w.push(t.root, ""); err != nil {
		return err
	}
	defer func() {
		for _, l := range w.levels {
			w.leave(l.dir)
		}
	}()
	for len(w.levels) > 0 {
		l := &w.levels[len(w.levels)-1]
		if len(l.names) == 0 {
			w.leave(l.dir)
			w.levels = w.levels[:len(w.levels)-1]
			continue
		}
		name := l.names[0]
		l.names = l.names[1:]
		if err := w.entry(l.dir, l.prefix, name); err != nil {
			return err
		}
	}
	return nil
}

type treeWalk struct {
	ctx    context.Context
	top    *os.Root // the tree's, which outlives the walk
	bounds Bounds
	visit  func(Entry) error
	levels []level
	seen   int
}

// push lists a directory and makes it the level to walk. It takes the handle over.
func (w *treeWalk) push(dir *os.Root, prefix string) error {
	var names []string
	err := eachName(dir, func(name string) error {
		names = append(names, name)
		if w.seen++; w.seen > w.bounds.Entries {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, w.bounds.Entries)
		}
		return context.Cause(w.ctx)
	})
	if errors.Is(err, fs.ErrNotExist) { // the directory itself was removed
		if err = nil; dir == w.top {
			err = ErrChanged
		}
	}
	if err == nil && len(w.levels) > w.bounds.Depth {
		err = fmt.Errorf("%w: more than %d directories deep", ErrTooLarge, w.bounds.Depth)
	}
	if err != nil {
		w.leave(dir)
		return err
	}
	slices.Sort(names)
	w.levels = append(w.levels, level{dir: dir, prefix: prefix, names: names})
	return nil
}

func (w *treeWalk) leave(dir *os.Root) {
	if dir != w.top {
		dir.Close()
	}
}

func (w *treeWalk) entry(dir *os.Root, prefix, name string) error {
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := w.visit(Entry{Path: prefix + name, Info: fi, dir: dir}); err != nil || !fi.IsDir() {
		return err
	}
	below, err := enterDir(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q: %w", cutName(prefix+name, maxOmittedName), err)
	}
	return w.push(below, prefix+name+"/")
}
