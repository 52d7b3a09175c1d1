package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// ErrTooLarge reports a tree that exceeds the bounds of a walk.
var ErrTooLarge = errors.New("is too large")

// ErrChanged reports a file or directory that changed since its last stat.
var ErrChanged = errors.New("was changed meanwhile")

// ErrNotRegular reports an attempt to open something else as a regular file.
var ErrNotRegular = errors.New("is a link, a directory or something special")

// IsRefused reports whether an error means that a path has something other than a plain file or
// directory on it, most likely a link. Nothing was followed, opened or changed.
func IsRefused(err error) bool {
	return errors.Is(err, ErrNotDir) || errors.Is(err, ErrNotRegular) || errors.Is(err, ErrSwapped)
}

// Tree is a directory in which other programs may write: a project's work/, a folder in it, or a
// stored version of a skill. Paths are clean (see CleanPath) and relative to it. Every directory on
// the way is opened by itself, so that no link is followed; only regular files are opened, without
// blocking. A Tree holds a handle and must be closed; files opened from it live on. It is safe for
// concurrent use. Errors wrap the file system's errors, ErrTooLarge or ErrChanged, or satisfy
// IsRefused.
type Tree struct {
	root *os.Root
	host Host // nil: the tree is for reading
}

// Host is the project around a tree that can be changed. Its methods are safe for concurrent use.
type Host interface {
	// Staging opens the directory, on the same file system, in which new files are written before
	// their rename.
	Staging() (*os.Root, error)
	// TempName returns a name that no other process uses.
	TempName() string
	// Still is Tree.Still.
	Still() func() bool
	// LockEdits is Tree.LockEdits.
	LockEdits(ctx context.Context) (release func(), err error)
	// Traits describes the host's files.
	Traits() Traits
}

// Traits describe the files of a host.
type Traits struct {
	Owner     Owner
	CaseBlind bool // the file system treats A and a as one name
	Now       func() time.Time
}

// New returns a read-only tree. It takes ownership of root.
func New(root *os.Root) *Tree { return &Tree{root: root} }

// NewIn returns a tree that can be changed. It takes ownership of root.
func NewIn(root *os.Root, host Host) *Tree { return &Tree{root: root, host: host} }

// Still starts watching for commands. The returned function reports whether no command of this
// process has run in the tree's project since then. A process that has mapped a file can write to
// it without changing its times while the page is dirty; a later mapping changes them at its first
// write. So stat data proves that a file is unchanged only if no command was running when the data
// was taken.
func (t *Tree) Still() func() bool {
	if t.host == nil { // no command can write there
		return func() bool { return true }
	}
	return t.host.Still()
}

// LockEdits makes the caller the only editor of the project's work/ among all processes until
// release is called. Commands take no lock: Write notices their changes by comparing stat data. It
// fails with ctx's error, with fault.SandboxBusy when another node keeps the lock for minutes, or
// with the file system's error.
func (t *Tree) LockEdits(ctx context.Context) (release func(), err error) {
	if t.host == nil {
		return nil, fs.ErrPermission
	}
	return t.host.LockEdits(ctx)
}

// Close gives up the handle.
func (t *Tree) Close() error { return t.root.Close() }

// Is reports whether fi describes the tree's directory.
func (t *Tree) Is(fi fs.FileInfo) bool {
	is, err := t.root.Stat(".")
	return err == nil && os.SameFile(is, fi)
}

// Same reports whether two trees are the same directory.
func (t *Tree) Same(other *Tree) bool {
	fi, err := other.root.Stat(".")
	return err == nil && t.Is(fi)
}

// Dir opens a directory in the tree; "." is the tree itself.
func (t *Tree) Dir(path string) (*Tree, error) {
	dir, err := t.descend(path)
	if err != nil {
		return nil, err
	}
	return &Tree{root: dir, host: t.host}, nil
}

// descend opens a directory in the tree step by step.
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

// enterDir opens a directory, also when its owner, who may be this process's user, has removed its
// own rights.
func enterDir(parent *os.Root, name string) (*os.Root, error) {
	dir, _, err := OpenDir(parent, name)
	for try := 1; try < triesToOpen && errors.Is(err, ErrSwapped); try++ { // by an upload, of another copy
		dir, _, err = OpenDir(parent, name)
	}
	if !errors.Is(err, fs.ErrPermission) {
		return dir, err
	}
	fi, e := parent.Lstat(name)
	if e != nil || !fi.IsDir() || MakeUsable(parent, name, fi) != nil {
		return nil, err
	}
	dir, _, err = OpenDir(parent, name)
	return dir, err
}

// Open opens a regular file for reading.
func (t *Tree) Open(path string) (*os.File, fs.FileInfo, error) {
	dir, name := SplitPath(path)
	parent, err := t.descend(dir)
	if err != nil {
		return nil, nil, err
	}
	defer parent.Close()
	f, fi, err := OpenRegular(parent, name)
	for try := 1; try < triesToOpen && errors.Is(err, ErrSwapped); try++ { // by an edit
		f, fi, err = OpenRegular(parent, name)
	}
	return f, fi, err
}

// triesToOpen is how often a file or directory is opened that is replaced meanwhile.
const triesToOpen = 10

// Lstat describes the entry at a path without following a link.
func (t *Tree) Lstat(path string) (fs.FileInfo, error) {
	dir, name := SplitPath(path)
	parent, err := t.descend(dir)
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return parent.Lstat(name)
}

// Readlink returns the target of a link.
func (t *Tree) Readlink(path string) (string, error) {
	dir, name := SplitPath(path)
	parent, err := t.descend(dir)
	if err != nil {
		return "", err
	}
	defer parent.Close()
	return parent.Readlink(name)
}

// Bounds limit a walk, which fails with ErrTooLarge beyond them.
type Bounds struct {
	Entries int
	Depth   int // directories below the tree's own, and the most handles that a walk holds

	// SkipReplaced leaves out a directory in whose place something else is put before it is opened,
	// instead of failing.
	SkipReplaced bool
}

// The bounds of listings and of manifests.
const (
	MaxEntries = 10_000 // files and directories: a build tree of decent size, and about 2 MB of JSON
	MaxDepth   = 64     // directories below the top: deeper than real trees, and the most handles that a walk holds
)

// ListingBounds limit listings to the size of a manifest of artifacts.
var ListingBounds = Bounds{Entries: MaxEntries, Depth: MaxDepth, SkipReplaced: true}

// Entry is one thing in a tree.
type Entry struct {
	Path string // below the tree, with slashes; as the disk has it, perhaps no UTF-8
	Info fs.FileInfo
	dir  *os.Root
}

// Open opens the regular file that Info describes. It works during the visit only.
func (e Entry) Open() (*os.File, error) {
	f, _, err := OpenSame(e.dir, e.Info.Name(), e.Info)
	return f, err
}

// Top returns the tree's own directory as an entry.
func (t *Tree) Top() (Entry, error) {
	fi, err := t.root.Lstat(".")
	return Entry{Path: ".", Info: fi, dir: t.root}, err
}

// Walk calls visit with everything below the tree: a directory before its content, names in byte
// order. Entries that disappear meanwhile are skipped; if the tree itself disappears, the error is
// ErrChanged. Walk stops at the first error.
func (t *Tree) Walk(ctx context.Context, b Bounds, visit func(Entry) error) error {
	w := treeWalk{ctx: ctx, bounds: b, visit: visit}
	err := w.directory(t.root, "", 0)
	if errors.Is(err, errVanished) {
		return ErrChanged
	}
	return err
}

type treeWalk struct {
	ctx    context.Context
	bounds Bounds
	visit  func(Entry) error
	seen   int
}

// errVanished reports a directory that was removed before it was listed.
var errVanished = errors.New("the directory is gone")

// directory visits everything in a directory, which is depth levels below the top.
func (w *treeWalk) directory(dir *os.Root, prefix string, depth int) error {
	var names []string
	err := EachName(dir, func(name string) error {
		names = append(names, name)
		if w.seen++; w.seen > w.bounds.Entries {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, w.bounds.Entries)
		}
		return context.Cause(w.ctx)
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errVanished
	case err != nil:
		return err
	case depth > w.bounds.Depth:
		return fmt.Errorf("%w: more than %d directories deep", ErrTooLarge, w.bounds.Depth)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := w.entry(dir, prefix, name, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *treeWalk) entry(dir *os.Root, prefix, name string, depth int) error {
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
	if errors.Is(err, fs.ErrNotExist) || w.bounds.SkipReplaced && IsRefused(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%q: %w", CutName(prefix+name, maxShown), err)
	}
	defer below.Close()
	if err := w.directory(below, prefix+name+"/", depth+1); !errors.Is(err, errVanished) {
		return err
	}
	return nil
}
