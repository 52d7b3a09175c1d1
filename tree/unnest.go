package tree

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// UnnestedMark is in the name that a directory has for the moment in which it changes places with the one around it, after the name that it
// will have.
const UnnestedMark = ".unnested-"

// Unnest makes A/A to A: when the directory with this name, one component, holds nothing but a directory of the same name, and that one
// holds something, the inner one takes the place of the outer one. It moves directories and copies nothing, so whoever works in one of them
// goes on working in it. One level is taken away; false says that there is none.
//
// The inner directory gets a name beside the outer one, the two change names, and the outer one, empty, is removed. A crash in between
// leaves both beside each other, where everybody sees them and FinishUnnest finds them; at no moment is anything where it would be lost.
// What somebody puts into the outer one meanwhile stays in it, beside, under that name. Links are moved at most, never followed, and what is
// not what was looked at goes back. Where the file system cannot exchange names, nothing is done.
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

// exchangeNames exchanges what lies beside for the directory that was seen.
func (t *Tree) exchangeNames(beside, name string, seen fs.FileInfo) error {
	if err := Exchange(t.root, beside, t.root, name); err != nil {
		return err
	}
	if now, err := t.root.Lstat(beside); err != nil || !os.SameFile(now, seen) {
		return errors.Join(ErrChanged, err, Exchange(t.root, beside, t.root, name))
	}
	return nil
}

// FinishUnnest ends what a crash has interrupted: a directory in the tree with a name that Unnest gives gets its own name, if nothing, or an
// empty directory, has that. Otherwise both stay.
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
		return nil // a link or a file that somebody has put there
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

// IsUnnested reports whether a name is one that Unnest gives.
func IsUnnested(name string) bool { return strings.Contains(name, UnnestedMark) }

// onlyName is the name in a directory that holds one thing: "" when it is empty, and some name that cannot be when it holds more.
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

// ignoreMissing is for what somebody else may have moved, or exchanged for what is no directory.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || IsRefused(err) {
		return nil
	}
	return err
}
