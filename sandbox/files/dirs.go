package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/workspace/tree"
)

// Temporary files are named tempPrefix, 26 letters and digits, tempSuffix. ReadDir does not list
// them, and removes files older than leftoverAge, which a crash has left.
const (
	tempPrefix  = ".secbox-"
	tempSuffix  = ".part"
	tempLetters = 26
	leftoverAge = time.Hour
)

// nameBatch is how many names are read at once.
const nameBatch = 1024

// isTemp reports whether a name is the name of a temporary file.
func isTemp(name string) bool {
	letters, ok := strings.CutPrefix(name, tempPrefix)
	if !ok {
		return false
	}
	letters, ok = strings.CutSuffix(letters, tempSuffix)
	return ok && len(letters) == tempLetters && strings.Trim(letters, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// ReadDir lists a directory, sorted by the bytes of the names.
func (f *Files) ReadDir(ctx context.Context, name string) ([]sandbox.DirEntry, error) {
	const op = "readdir"
	p, err := f.locate(ctx, op, name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	dir, err := openDir(p.root, p.below)
	if err != nil {
		if fi, e := p.root.Stat(p.below); e == nil && !fi.IsDir() {
			err = errIrregular
		}
		return nil, f.failed(op, name, err)
	}
	defer dir.Close()
	names, err := listNames(ctx, dir, name)
	if err != nil {
		return nil, f.failed(op, name, err)
	}
	slices.Sort(names)
	list := make([]sandbox.DirEntry, 0, len(names))
	for i, one := range names {
		if i%nameBatch == 0 {
			if err := ended(ctx); err != nil {
				return nil, err
			}
		}
		fi, err := dir.Lstat(one)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, f.failed(op, name, err)
		}
		if isTemp(one) && fi.Mode().IsRegular() {
			if !p.readOnly {
				f.sweep(dir, one, fi)
			}
			continue
		}
		entry := sandbox.DirEntry{Name: one, IsDir: fi.IsDir(), Mode: modeOf(fi), ModTime: fi.ModTime()}
		if fi.Mode().IsRegular() {
			entry.Size = fi.Size()
		}
		list = append(list, entry)
	}
	return list, nil
}

func listNames(ctx context.Context, dir *os.Root, name string) ([]string, error) {
	list, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer list.Close()
	var names []string
	for {
		batch, err := list.Readdirnames(nameBatch)
		names = append(names, batch...)
		if len(names) > sandbox.MaxDirEntries {
			return nil, fault.New(fault.TreeTooLarge, "%s has more than %d names, the most that can be listed", cut(name),
				sandbox.MaxDirEntries)
		}
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err == nil {
			err = ended(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

// sweep removes an old temporary file.
func (f *Files) sweep(dir *os.Root, name string, fi fs.FileInfo) bool {
	return f.cfg.Now().Sub(fi.ModTime()) > leftoverAge && dir.Remove(name) == nil
}

// MkdirAll makes a directory and its missing parents, with the permission bits of perm regardless
// of the umask.
func (f *Files) MkdirAll(ctx context.Context, name string, perm fs.FileMode) error {
	const op = "mkdir"
	p, err := f.locateToChange(ctx, op, name)
	if err != nil {
		return err
	}
	fi, err := p.root.Stat(p.below)
	switch {
	case err == nil && fi.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrExist}
	}
	if err := f.room(); err != nil {
		return err
	}
	if err := f.mkdirAll(ctx, p, perm.Perm()); err != nil {
		if isNotDir(err) { // a file is in the way
			err = fs.ErrExist
		}
		return f.failed(op, name, err)
	}
	return nil
}

// mkdirAll descends step by step with an open handle, so that a directory exchanged for a link
// cannot lead elsewhere.
func (f *Files) mkdirAll(ctx context.Context, p location, perm fs.FileMode) error {
	dir, err := openDir(p.root, ".")
	if err != nil {
		return err
	}
	defer func() { dir.Close() }()
	for at := 0; at < len(p.below); {
		if err := ended(ctx); err != nil {
			return err
		}
		end := len(p.below)
		if i := strings.IndexByte(p.below[at:], '/'); i >= 0 {
			end = at + i
		}
		next, err := f.enter(p.root, dir, p.below[:end], p.below[at:end], perm)
		if err != nil {
			return err
		}
		dir.Close()
		dir, at = next, end+1
	}
	return nil
}

// enter opens a directory in dir, making it if it is missing. way is its path from the root, for
// following a link.
func (f *Files) enter(root, dir *os.Root, way, name string, perm fs.FileMode) (*os.Root, error) {
	fi, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err = f.mkdir(dir, name, perm); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		fi, err = dir.Lstat(name)
	}
	switch {
	case err != nil:
		return nil, err
	case fi.Mode().Type() == fs.ModeSymlink:
		next, err := openDir(root, way)
		if errors.Is(err, fs.ErrNotExist) { // a dangling link: its target is not made
			err = fs.ErrExist
		}
		return next, err
	case !fi.IsDir():
		return nil, fs.ErrExist
	}
	return openDir(dir, name)
}

// mkdir makes a directory and sets its owner and mode by its handle.
func (f *Files) mkdir(dir *os.Root, name string, perm fs.FileMode) error {
	if err := dir.Mkdir(name, 0o700); err != nil {
		return err
	}
	made, err := dir.OpenFile(name+"/.", os.O_RDONLY|openSafely, 0)
	if err != nil {
		return err
	}
	defer made.Close()
	f.give(made)
	if err := made.Chmod(perm); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// Remove removes a file, a link or an empty directory.
func (f *Files) Remove(ctx context.Context, name string) error {
	const op = "remove"
	p, err := f.locateToChange(ctx, op, name)
	if err != nil {
		return err
	}
	if p.below == "." {
		return sandbox.Refused(op, name)
	}
	err = p.root.Remove(p.below)
	if errors.Is(err, fs.ErrExist) && f.sweepAll(ctx, p) {
		err = p.root.Remove(p.below)
	}
	return f.failed(op, name, err)
}

// sweepAll removes old temporary files from a directory that could not be removed because it is not
// empty, and reports whether there were any.
func (f *Files) sweepAll(ctx context.Context, p location) (swept bool) {
	if fi, err := p.root.Lstat(p.below); err != nil || !fi.IsDir() {
		return false
	}
	dir, err := openDir(p.root, p.below)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, err := listNames(ctx, dir, p.below)
	for _, name := range names {
		if fi, e := dir.Lstat(name); err == nil && e == nil && isTemp(name) && fi.Mode().IsRegular() && f.sweep(dir, name, fi) {
			swept = true
		}
	}
	return swept
}

// Move gives a file, a link or a directory another name. Without replace, a file of that name is
// fs.ErrExist.
func (f *Files) Move(ctx context.Context, name, to string, replace bool) error {
	const op = "move"
	from, err := f.locateToChange(ctx, op, name)
	if err != nil {
		return err
	}
	into, err := f.locateToChange(ctx, op, to)
	if err != nil {
		return err
	}
	if from.below == "." || into.below == "." {
		return sandbox.Refused(op, name)
	}
	if replace {
		return f.failed(op, name, from.root.Rename(from.below, into.below))
	}
	above, base := split(from.below)
	dir, err := openDir(from.root, above)
	if err != nil {
		return f.failed(op, name, err)
	}
	defer dir.Close()
	above, newBase := split(into.below)
	newDir, err := openDir(into.root, above)
	if err != nil {
		return f.failed(op, to, err)
	}
	defer newDir.Close()
	return f.failed(op, name, tree.RenameNew(dir, base, newDir, newBase))
}

// RemoveAll removes a tree, however deep and regardless of the modes of its directories. Only links
// on the way to it are followed. When ctx ends, a part of the tree is left.
func (f *Files) RemoveAll(ctx context.Context, name string) error {
	const op = "removeall"
	p, err := f.locateToChange(ctx, op, name)
	if err != nil {
		return err
	}
	if p.below == "." {
		return sandbox.Refused(op, name)
	}
	above, base := split(p.below)
	dir, err := openDir(p.root, above)
	if err == nil {
		defer dir.Close()
		_, err = tree.RemoveTree(ctx, dir, base)
	}
	if e := ended(ctx); err != nil && e != nil {
		return e
	}
	err = f.failed(op, name, err)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
