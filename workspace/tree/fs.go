package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// FS returns the tree as an fs.FS with fs.ReadLinkFS and fs.ReadDirFS, under the same rules: links
// are not followed, opens do not block. A directory with more than 20,000 entries is an error. It
// works while the tree is open.
func (t *Tree) FS() fs.FS { return treeFS{t} }

type treeFS struct{ tree *Tree }

func (f treeFS) failed(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: CutName(name, maxShown), Err: err}
}

// Open opens a regular file or a directory.
func (f treeFS) Open(name string) (fs.File, error) {
	fi, err := f.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		file, _, err := f.tree.Open(name)
		if err != nil {
			return nil, f.failed("open", name, err)
		}
		return file, nil
	}
	dir, err := f.tree.descend(name)
	if err != nil {
		return nil, f.failed("open", name, err)
	}
	defer dir.Close()
	file, err := dir.Open(".")
	if err != nil {
		return nil, f.failed("open", name, err)
	}
	return file, nil
}

// Lstat describes the entry with this name.
func (f treeFS) Lstat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, f.failed("lstat", name, fs.ErrInvalid)
	}
	fi, err := f.tree.Lstat(name)
	if err != nil {
		return nil, f.failed("lstat", name, err)
	}
	return fi, nil
}

// Stat is Lstat: links are not followed.
func (f treeFS) Stat(name string) (fs.FileInfo, error) { return f.Lstat(name) }

// ReadLink is refused: callers must not see where a link leads.
func (f treeFS) ReadLink(name string) (string, error) {
	return "", f.failed("readlink", name, ErrNotRegular)
}

// ReadDir lists a directory by name.
func (f treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, f.failed("readdir", name, fs.ErrInvalid)
	}
	dir, err := f.tree.descend(name)
	if err != nil {
		return nil, f.failed("readdir", name, err)
	}
	defer dir.Close()
	var names []string
	err = EachName(dir, func(name string) error {
		if len(names) >= 2*MaxEntries {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, 2*MaxEntries)
		}
		names = append(names, name)
		return nil
	})
	if err != nil {
		return nil, f.failed("readdir", name, err)
	}
	slices.Sort(names)
	list := make([]fs.DirEntry, 0, len(names))
	for _, one := range names {
		fi, err := dir.Lstat(one)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, f.failed("readdir", name, err)
		}
		list = append(list, fs.FileInfoToDirEntry(fi))
	}
	return list, nil
}
