package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"secbox/fault"
	"secbox/workspace/tree"
)

// CopyBounds bound a copy of a tree. Bytes are counted as they arrive: the sizes that a sandbox
// lists may be wrong.
type CopyBounds struct {
	WalkBounds
	Bytes int64 // of all files together
}

// Copied is how much a copy has copied.
type Copied struct {
	Files int
	Bytes int64
}

// Source is the part of a Sandbox that CopyFrom reads.
type Source interface {
	Lister
	Stat(ctx context.Context, path string, user User) (*FileInfo, error)
	ReadFileTo(ctx context.Context, path string, w io.Writer, user User) (int64, error)
}

// CopyFrom copies the tree at dir in a sandbox into the empty directory to on this side. Links are
// expanded: a link to a file becomes a file, a link to a directory a directory. Empty directories
// are left out. Files have the mode 0755 if they are executable or programs, and else 0644; a file
// without permissions, as on Windows, is also executable if kept has its path. A link that leads
// out of the sandbox or nowhere, or a special file, is an error that names it. After an error, to
// may hold a part of the tree.
func CopyFrom(ctx context.Context, s Source, dir string, user User, to *os.Root, b CopyBounds, kept map[string]bool) (Copied, error) {
	var done Copied
	w := walk{lister: s, user: user, bounds: b.WalkBounds}
	w.resolve = func(rel string) (DirEntry, error) {
		fi, err := s.Stat(w.ctx, path.Join(dir, rel), user)
		if err != nil {
			return DirEntry{}, err
		}
		return DirEntry{Name: path.Base(rel), IsDir: fi.IsDir, Size: fi.Size, Mode: fi.Mode}, nil
	}
	w.file = func(rel string, e DirEntry) error {
		if !e.Mode.IsRegular() {
			return Invalid("copy", path.Join(dir, rel))
		}
		if err := to.MkdirAll(path.Dir(rel), 0o755); err != nil {
			return err
		}
		f, err := to.OpenFile(rel, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		out := &BoundedWriter{W: f, Left: b.Bytes - done.Bytes}
		n, err := s.ReadFileTo(w.ctx, path.Join(dir, rel), out, user)
		if out.Full {
			return fault.New(fault.TreeTooLarge, "the directory %s has more than %d bytes: remove unneeded files", dir, b.Bytes)
		}
		if err != nil {
			return err
		}
		done.Files, done.Bytes = done.Files+1, done.Bytes+n
		head := make([]byte, 4)
		begin, _ := f.ReadAt(head, 0)
		if e.Mode&0o100 != 0 || tree.IsProgram(head[:begin]) || e.Mode.Perm() == 0 && kept[rel] {
			if err := f.Chmod(tree.PlainMode(true)); err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err,
				errors.ErrUnsupported) {
				return err // a file system without permissions needs none
			}
		}
		return f.Close()
	}
	err := w.run(ctx, dir)
	return done, err
}

// Target is the part of a Sandbox that CopyTo writes.
type Target interface {
	MkdirAll(ctx context.Context, path string, perm fs.FileMode, user User) error
	WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user User) (int64, error)
}

// CopyTo copies the regular files of from into the directory dir of a sandbox, and makes the
// directories that they need. It creates no links. The file last, if from has it, is written last:
// a reader who looks for it first sees all of the tree or nothing. The executable files have the
// mode 0755, others 0644. After an error, dir may hold a part of the tree.
func CopyTo(ctx context.Context, from fs.FS, s Target, dir string, user User, last string, executable map[string]bool) (Copied, error) {
	var done Copied
	made := map[string]bool{}
	put := func(name string) error {
		at := path.Join(dir, name)
		if above := path.Dir(at); !made[above] {
			if err := s.MkdirAll(ctx, above, 0o755, user); err != nil {
				return &CopyError{Step: "mkdir", Err: err}
			}
			made[above] = true
		}
		f, err := from.Open(name)
		if err != nil {
			return &CopyError{Step: "read cache", Err: err}
		}
		defer f.Close()
		n, err := s.WriteFileFrom(ctx, at, f, tree.PlainMode(executable[name]), user)
		if err != nil {
			return &CopyError{Step: "write", Err: err}
		}
		done.Files, done.Bytes = done.Files+1, done.Bytes+n
		return nil
	}
	hasLast := false
	err := fs.WalkDir(from, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return &CopyError{Step: "read cache", Err: err}
		case ctx.Err() != nil:
			return ctx.Err()
		case !e.Type().IsRegular():
			return nil
		case name == last:
			hasLast = true
			return nil
		}
		return put(name)
	})
	if err == nil && hasLast {
		err = put(last)
	}
	return done, err
}

// CopyError is the step of a copy that failed.
type CopyError struct {
	Step string // read cache, mkdir or write
	Err  error
}

// Error implements error.
func (e *CopyError) Error() string { return e.Step + ": " + e.Err.Error() }

// Unwrap returns the error of the step.
func (e *CopyError) Unwrap() error { return e.Err }

// ErrFull is the error of a BoundedWriter.
var ErrFull = errors.New("the content is longer than allowed")

// BoundedWriter passes at most Left bytes on to W. More is ErrFull, and Full is true from then on;
// the first Left bytes have been passed on.
type BoundedWriter struct {
	W    io.Writer
	Left int64
	Full bool
}

// Write implements io.Writer.
func (b *BoundedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > b.Left {
		b.Full = true
		p = p[:max(b.Left, 0)]
	}
	n, err := b.W.Write(p)
	b.Left -= int64(n)
	if err == nil && b.Full {
		err = ErrFull
	}
	return n, err
}
