package tree

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// UnnestedMark is part of the temporary name that a directory has while it changes places with its
// parent; the final name comes before it.
const UnnestedMark = ".unnested-"

// Unnest turns A/A into A: if the directory name (one component) contains only a non-empty
// directory of the same name, the inner one replaces the outer one. It removes one level and
// reports whether it did. Directories are renamed, not copied, so programs that work in them are
// not disturbed.
//
// The inner directory gets a temporary name beside the outer one, the two names are exchanged, and
// the empty outer one is removed. After a crash in between, both are beside each other, and
// FinishUnnest completes the move. Files that appear in the outer directory meanwhile stay in it,
// under the temporary name. Links are never followed, and if a name turns out to be another file,
// the move is undone. Nothing is done where the file system cannot exchange names.
func (t *Tree) Unnest(name string) (bool, error) {
	if t.host == nil {
		return false, fs.ErrPermission
	}
	outer, outerInfo, err := OpenDir(t.root, name)
	if err != nil {
		return false, err
	}
	defer outer.Close()
	if only, err := onlyName(outer); err != nil || only != name {
		return false, err
	}
	inner, innerInfo, err := OpenDir(outer, name)
	if err != nil {
		return false, ignoreMissing(err)
	}
	first, err := onlyName(inner)
	inner.Close()
	if err != nil || first == "" {
		return false, err
	}
	beside := name + UnnestedMark + t.host.TempName()
	if err := RenameNew(outer, name, t.root, beside); err != nil {
		return false, ignoreMissing(err)
	}
	if now, err := t.root.Lstat(beside); err != nil || !os.SameFile(now, innerInfo) {
		return false, errors.Join(ErrChanged, err, RenameNew(t.root, beside, outer, name))
	}
	if err := t.exchangeNames(beside, name, outerInfo); err != nil {
		return false, errors.Join(err, RenameNew(t.root, beside, outer, name))
	}
	_ = outer.Close()
	if err := t.root.Remove(beside); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return true, err
	}
	return true, nil
}

// exchangeNames exchanges beside and name if name is still the directory seen.
func (t *Tree) exchangeNames(beside, name string, seen fs.FileInfo) error {
	if err := Exchange(t.root, beside, t.root, name); err != nil {
		return err
	}
	if now, err := t.root.Lstat(beside); err != nil || !os.SameFile(now, seen) {
		return errors.Join(ErrChanged, err, Exchange(t.root, beside, t.root, name))
	}
	return nil
}

// FinishUnnest completes an interrupted Unnest: a directory with a temporary name gets its final
// name if that is free or an empty directory. Otherwise both stay.
func (t *Tree) FinishUnnest(beside string) error {
	name, _, ok := strings.Cut(beside, UnnestedMark)
	if !ok || name == "" || t.host == nil {
		return nil
	}
	content, _, err := OpenDir(t.root, beside)
	if err != nil {
		return ignoreMissing(err)
	}
	first, err := onlyName(content)
	content.Close()
	if err != nil || first == "" {
		return err
	}
	shell, seen, err := OpenDir(t.root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return RenameNew(t.root, beside, t.root, name)
	}
	if err != nil {
		return nil // a link or a file
	}
	first, err = onlyName(shell)
	shell.Close()
	if err != nil || first != "" {
		return err
	}
	if err := t.exchangeNames(beside, name, seen); err != nil {
		return err
	}
	_ = t.root.Remove(beside)
	return nil
}

// IsUnnested reports whether name is a temporary name of Unnest.
func IsUnnested(name string) bool { return strings.Contains(name, UnnestedMark) }

// onlyName returns the name in a directory with one entry, "" for an empty directory, and "/" for
// more.
func onlyName(dir *os.Root) (string, error) {
	only := ""
	stop := errors.New("more than one")
	err := EachName(dir, func(name string) error {
		if only != "" {
			only = "/"
			return stop
		}
		only = name
		return nil
	})
	if errors.Is(err, stop) {
		err = nil
	}
	return only, err
}

// ignoreMissing drops errors about files that another program has moved or replaced.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || IsRefused(err) {
		return nil
	}
	return err
}
