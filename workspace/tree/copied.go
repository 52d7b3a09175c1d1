package tree

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"runtime"
)

// LooksCopied reports whether the tree is, apart from contents and times, a copy that CopyFrom
// would make of another: the same files and directories with the sizes, permissions and owner of a
// copy, no hard links, and nothing else. If the contents are equal too, the copy can be made again
// without a loss.
func (t *Tree) LooksCopied(ctx context.Context, from *Tree, b Bounds, owner Owner) (bool, error) {
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
		_, _, linked := OnDisk(e.Info)
		want, ok := expected[e.Path]
		if !ok || !sameMode(want.mode, e.Info.Mode()) || !e.Info.IsDir() && want.size != e.Info.Size() || linked || !owner.given(e.Info) {
			return errFound
		}
		delete(expected, e.Path)
		return e.checkPlain()
	})
	if errors.Is(err, errFound) || errors.Is(err, errNotCarried) {
		return false, nil
	}
	return err == nil && len(expected) == 0, err
}

// copiedMode is the mode of a copied file.
func copiedMode(fi fs.FileInfo) fs.FileMode { return PlainMode(fi.Mode()&0o100 != 0) }

// PlainMode returns the mode of files that are executable or not.
func PlainMode(executable bool) fs.FileMode {
	if executable {
		return 0o755
	}
	return 0o644
}

// IsProgram reports whether a file whose first four bytes are head can be started without naming an
// interpreter: it begins with #! or is an ELF binary.
func IsProgram(head []byte) bool {
	return bytes.HasPrefix(head, []byte("#!")) || bytes.HasPrefix(head, []byte("\x7fELF"))
}

// IsExecutable reports whether a file, which is a program or not, is executable: by its mode, or by
// its content on Windows, where files have no such mode.
func IsExecutable(fi fs.FileInfo, program bool) bool {
	if runtime.GOOS == "windows" {
		return program
	}
	return fi.Mode()&0o100 != 0
}

// given reports whether the file already has the owner of a copy.
func (o Owner) given(fi fs.FileInfo) bool {
	if !o.gives() {
		return true
	}
	uid, gid := OwnerOf(fi)
	return uid == o.UID && (gid == o.GID || o.GID < 0)
}

// checkPlain returns errNotCarried for an entry with extended attributes.
func (e Entry) checkPlain() error {
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
