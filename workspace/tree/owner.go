package tree

import (
	"os"
)

// Owner is the user and group that new files get, if this process is root. UID -1: files keep this
// process's user.
type Owner struct{ UID, GID int }

// gives reports whether files are given to another user.
func (o Owner) gives() bool { return o.UID > 0 && os.Geteuid() == 0 }

// MakeDir makes a directory for the owner; fs.ErrExist when the name is taken.
func (o Owner) MakeDir(root *os.Root, name string) error {
	if err := root.Mkdir(name, 0o755); err != nil {
		return err
	}
	err := UndoUmask(root, name)
	if err == nil && o.UID >= 0 && os.Geteuid() == 0 {
		err = root.Lchown(name, o.UID, o.GID)
		if err != nil {
			// A file system without owners lets every user write, so the owner does not matter.
			if fi, e := root.Lstat(name); e == nil && fi.Mode().Perm()&0o007 == 0o007 {
				err = nil
			}
		}
	}
	if err != nil {
		_ = root.Remove(name)
	}
	return err
}

// GiveBack gives an existing directory back to the owner and lets the owner enter it: a job may
// have removed its own rights, and a directory restored from a backup may belong to another user.
func (o Owner) GiveBack(root *os.Root, name string) error {
	fi, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if o.gives() && !BelongsTo(fi, o.UID) {
		_ = root.Lchown(name, o.UID, o.GID) // a file system without owners needs none
	}
	return MakeUsable(root, name, fi)
}
