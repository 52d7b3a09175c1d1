package skills

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"secbox/fault"
)

// tree is the folder of one skill, read without following anything: embedded or on the disk.
type tree interface {
	// names lists a directory, in no order, at most a few more than max.
	names(dir string, max int) ([]string, error)
	// lstat describes an entry itself, never what it points to.
	lstat(name string) (fs.FileInfo, error)
	// open opens a regular file that is still the one that lstat has seen. It never waits.
	open(name string, seen fs.FileInfo) (fs.File, error)
	io.Closer
}

// place is a folder of skills during one look at it.
type place interface {
	// names lists the entries that may be skills.
	names() ([]string, error)
	// tree opens the folder of one; errNotFolder when it is something else.
	tree(name string) (tree, error)
	// fsys is what Skill.FS gives.
	fsys(name string) fs.FS
	io.Closer
}

var (
	errNotFolder = errors.New("is no folder")
	errLink      = errors.New("is a symbolic link; skills are not followed through links: copy the folder")
	errChanged   = errors.New("changed while it was read; it is read again at the next look")
)

// embedded is both for an fs.FS that has no links and does not change.
type embedded struct{ fs.FS }

func (e embedded) Close() error { return nil }

func (e embedded) lstat(name string) (fs.FileInfo, error) { return fs.Stat(e.FS, name) }

func (e embedded) open(name string, _ fs.FileInfo) (fs.File, error) { return e.Open(name) }

type embeddedTree struct{ embedded }

func (e embeddedTree) names(dir string, _ int) ([]string, error) {
	list, err := fs.ReadDir(e.FS, dir)
	names := make([]string, len(list))
	for n, entry := range list {
		names[n] = entry.Name()
	}
	return names, err
}

type embeddedPlace struct{ embedded }

func (e embeddedPlace) names() ([]string, error) { return embeddedTree(e).names(".", 0) }

func (e embeddedPlace) tree(name string) (tree, error) {
	fi, err := fs.Stat(e.FS, name)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, errNotFolder
	}
	return embeddedTree{embedded{e.fsys(name)}}, nil
}

func (e embeddedPlace) fsys(name string) fs.FS {
	sub, _ := fs.Sub(e.FS, name) // fails on invalid names only
	return sub
}

// diskPlace is the operator's folder. It is a trusted place, what lies in it is less so: whoever writes a skill must not have the server
// read other files, or wait for ever.
type diskPlace struct {
	root *os.Root
	dir  string
}

// maxFolders bounds what is taken for a folder of skills: a home directory or / by mistake.
const maxFolders = 10_000

func openPlace(dir string) (place, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return diskPlace{root, dir}, nil
}

func (d diskPlace) Close() error { return d.root.Close() }

func (d diskPlace) names() ([]string, error) {
	names, err := diskTree{d.root}.names(".", maxFolders)
	if err == nil && len(names) > maxFolders {
		err = fmt.Errorf("it holds more than %d entries", maxFolders)
	}
	return names, err
}

func (d diskPlace) tree(name string) (tree, error) {
	before, err := d.root.Lstat(name)
	switch {
	case err != nil:
		return nil, err
	case before.Mode()&fs.ModeSymlink != 0:
		return nil, errLink
	case !before.IsDir():
		return nil, errNotFolder
	}
	// With "/." the name itself is opened as a directory: a FIFO put in its place would be waited for.
	root, err := d.root.OpenRoot(name + "/.")
	if err != nil {
		return nil, err
	}
	after, err := root.Stat(".")
	if err == nil && !os.SameFile(before, after) {
		err = errChanged
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return diskTree{root}, nil
}

func (d diskPlace) fsys(name string) fs.FS { return diskFS{d.dir, name} }

type diskTree struct{ root *os.Root }

func (d diskTree) Close() error { return d.root.Close() }

func (d diskTree) lstat(name string) (fs.FileInfo, error) { return d.root.Lstat(name) }

func (d diskTree) names(dir string, max int) ([]string, error) {
	// A link put in its place meanwhile leads nowhere but into this same folder, and a FIFO is not waited for and has no names.
	f, err := d.root.OpenFile(dir, os.O_RDONLY|openSafely, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(max + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

func (d diskTree) open(name string, seen fs.FileInfo) (fs.File, error) {
	f, err := d.root.OpenFile(name, os.O_RDONLY|openSafely, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !os.SameFile(seen, fi) {
		err = errChanged
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// diskFS opens the operator's folder anew for each file, so that a skill holds no descriptor while nobody reads it.
type diskFS struct{ dir, folder string }

// Open implements fs.FS for regular files and directories; nothing is followed.
func (d diskFS) Open(name string) (fs.File, error) {
	failed := func(err error) (fs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return failed(fs.ErrInvalid)
	}
	p, err := openPlace(d.dir)
	if err != nil {
		return failed(err)
	}
	defer p.Close()
	t, err := p.tree(d.folder)
	if err != nil {
		return failed(err)
	}
	defer t.Close()
	for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
		if fi, err := t.lstat(parent); err != nil || !fi.IsDir() {
			return failed(fs.ErrNotExist)
		}
	}
	seen, err := t.lstat(name)
	if err == nil && !seen.Mode().IsRegular() && !seen.IsDir() {
		err = fs.ErrInvalid
	}
	if err != nil {
		return failed(err)
	}
	f, err := t.open(name, seen)
	if err != nil {
		return failed(err)
	}
	return f, nil
}

// reasonOf is why something could not be read, in a few words and without the path, which the caller names.
func reasonOf(err error) string {
	var f *fault.Error
	var p *fs.PathError
	switch {
	case errors.As(err, &f):
		return f.Message
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "cannot be read: permission denied"
	case errors.As(err, &p):
		return "cannot be read: " + p.Err.Error()
	}
	return err.Error()
}
