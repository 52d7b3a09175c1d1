package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
)

// LooksCopied reports whether the tree is, the contents of its files and all times apart, what CopyFrom makes of another: the same files
// and directories with the sizes, the permissions and the owner that a copy gets, each file with one name, and nothing else. Whoever has compared the
// contents knows then that the copy can be made again without a loss.
func (t *Tree) LooksCopied(ctx context.Context, from *Tree, b Bounds, owner *Project) (bool, error) {
	type looks struct {
		mode fs.FileMode
		size int64
	}
	expected := map[string]looks{}
	err := from.Walk(ctx, b, func(e Entry) error {
		expected[e.Path] = looks{mode: fs.ModeDir | 0o755}
		if !e.Info.IsDir() {
			expected[e.Path] = looks{copiedMode(e.Info), e.Info.Size()}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	err = t.Walk(ctx, b, func(e Entry) error {
		_, _, linked := onDisk(e.Info)
		want, ok := expected[e.Path]
		if !ok || !sameMode(want.mode, e.Info.Mode()) || !e.Info.IsDir() && want.size != e.Info.Size() || linked || !owner.given(e.Info) {
			return errStop
		}
		delete(expected, e.Path)
		return plainEntry(e)
	})
	if errors.Is(err, errStop) || errors.Is(err, errNotCarried) {
		return false, nil
	}
	return err == nil && len(expected) == 0, err
}

// copiedMode is what a copy of a file gets.
func copiedMode(fi fs.FileInfo) fs.FileMode {
	if fi.Mode()&0o100 != 0 {
		return 0o755
	}
	return 0o644
}

// given reports whether a file is whose GiveTo would make it.
func (p *Project) given(fi fs.FileInfo) bool {
	if p.w.opts.UID <= 0 || os.Geteuid() != 0 {
		return true
	}
	uid, gid := ownerOf(fi)
	return uid == p.w.opts.UID && (gid == p.w.opts.GID || p.w.opts.GID < 0)
}

// plainEntry refuses what has extended attributes.
func plainEntry(e Entry) error {
	if e.Info.IsDir() {
		dir, err := enterDir(e.dir, e.Info.Name())
		if err != nil {
			return err
		}
		defer dir.Close()
		f, err := dir.Open(".")
		if err != nil {
			return err
		}
		defer f.Close()
		return plainAttributes(f)
	}
	f, err := e.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	return plainAttributes(f)
}
