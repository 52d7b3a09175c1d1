package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// hoistBacklog is how many hoisted directories are remembered; others are found by reading the top
// directory again.
const hoistBacklog = 4096

// RemoveTree removes the entry name (one component) of parent, of any kind, and follows no link;
// removed counts the entries removed. It needs three handles and no recursion at any depth:
// directories two levels down are hoisted, by a rename, to the level below the top, until every
// directory there is flat. It stops when ctx ends; the rest then stays under name, and so does what
// cannot be removed, with an error. A directory on which something is mounted is not entered:
// MountedError. A missing name is not an error.
func RemoveTree(ctx context.Context, parent *os.Root, name string) (removed int64, err error) {
	err = parent.Remove(name)
	if err == nil {
		return 1, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	r := remover{ctx: ctx}
	if err := r.tree(parent, name, err); err != nil {
		return r.removed, fmt.Errorf("%q is not wholly removed: %w", CutName(name, 64), err)
	}
	return r.removed, nil
}

type remover struct {
	ctx     context.Context
	top     *os.Root // the tree's own directory: nothing is moved out of it
	removed int64
	hoists  uint64
}

func (r *remover) tree(parent *os.Root, name string, cause error) error {
	top, err := openForRemoval(parent, name, cause)
	if err != nil {
		return err
	}
	defer top.Close()
	r.top = top
	err = untilEmpty(top, func(names []string) error {
		for len(names) > 0 {
			last := len(names) - 1
			child := names[last]
			hoisted, err := r.flatten(child)
			if mount, is := errors.AsType[*MountedError](err); is {
				mount.Path = name + "/" + mount.Path
			}
			if err != nil {
				return err
			}
			names = names[:last]
			if len(names)+len(hoisted) <= hoistBacklog {
				names = append(names, hoisted...)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return r.remove(parent, name)
}

// flatten removes one child of the top directory. Its subdirectories that are not empty are
// hoisted; their new names are returned.
func (r *remover) flatten(child string) (hoisted []string, err error) {
	if err := context.Cause(r.ctx); err != nil {
		return nil, err
	}
	err = r.remove(r.top, child)
	if err == nil {
		return nil, nil
	}
	dir, err := openForRemoval(r.top, child, err)
	if err != nil {
		return nil, err
	}
	err = untilEmpty(dir, func(names []string) error {
		for _, name := range names {
			if err := context.Cause(r.ctx); err != nil {
				return err
			}
			err := r.remove(dir, name)
			if err == nil {
				continue
			}
			to, err := r.hoist(dir, child, name, err)
			if err != nil {
				return err
			}
			if len(hoisted) < hoistBacklog {
				hoisted = append(hoisted, to)
			}
		}
		return nil
	})
	if err := errors.Join(err, dir.Close()); err != nil {
		return nil, err
	}
	return hoisted, r.remove(r.top, child)
}

// hoist moves the directory child/name to a new name in the top directory.
func (r *remover) hoist(dir *os.Root, child, name string, cause error) (string, error) {
	if _, err := removableDir(dir, name, cause); err != nil {
		if mount, is := errors.AsType[*MountedError](err); is {
			mount.Path = child + "/" + name
		}
		return "", err
	}
	for {
		r.hoists++
		to := ".hoist-" + strconv.FormatUint(r.hoists, 36)
		if _, err := r.top.Lstat(to); err == nil {
			continue // the tree itself has such a name
		}
		err := r.top.Rename(child+"/"+name, to)
		if errors.Is(err, fs.ErrPermission) {
			// A directory that changes its parent is written to, so its owner must be allowed to.
			if err = dir.Chmod(name, 0o700); err == nil {
				err = r.top.Rename(child+"/"+name, to)
			}
		}
		return to, err
	}
}

// remove removes a file, a link or an empty directory, unless it is gone already.
func (r *remover) remove(dir *os.Root, name string) error {
	err := dir.Remove(name)
	if err == nil {
		r.removed++
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// openForRemoval opens a directory that could not be removed; anything else fails with the cause.
func openForRemoval(parent *os.Root, name string, cause error) (*os.Root, error) {
	fi, err := removableDir(parent, name, cause)
	if err != nil {
		return nil, err
	}
	if err := MakeUsable(parent, name, fi); err != nil {
		return nil, err
	}
	dir, _, err := OpenDir(parent, name)
	return dir, err
}

// removableDir returns the stat of a directory that could not be removed; anything else, and one on
// which something is mounted, is an error.
func removableDir(parent *os.Root, name string, cause error) (fs.FileInfo, error) {
	fi, err := parent.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := CheckMount(parent, name); err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return nil, cause
	}
	return fi, nil
}

// MakeUsable gives the owner of a directory the rights to read, write and enter it back.
func MakeUsable(parent *os.Root, name string, fi fs.FileInfo) error {
	const needed = 0o700
	if fi.Mode().Perm()&needed == needed {
		return nil
	}
	return parent.Chmod(name, fi.Mode().Perm()|needed)
}

// untilEmpty calls f with the names in dir, in batches, until there are none. f must remove or move
// away each of them.
func untilEmpty(dir *os.Root, f func(names []string) error) error {
	list, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(NameBatch)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(names) == 0 {
			return nil
		}
		if err := f(names); err != nil {
			return err
		}
		// From the start again: positions are undefined after entries come and go.
		if _, err := list.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}
