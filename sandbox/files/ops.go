package files

import (
	"context"
	"io"
	"io/fs"

	"secbox/sandbox"
)

// Ops are the file operations of a sandbox whose users' files are on this machine. The function lends f the files of a user for as long as
// it runs; what it adds, turns and a place that is kept, is the sandbox's own affair.
type Ops func(ctx context.Context, user sandbox.User, f func(context.Context, *Files) error) error

// ReadFile implements sandbox.Sandbox.
func (in Ops) ReadFile(ctx context.Context, path string, user sandbox.User) (data []byte, err error) {
	err = in(ctx, user, func(ctx context.Context, f *Files) (err error) {
		data, err = f.ReadFile(ctx, path)
		return err
	})
	return data, err
}

// ReadFileTo implements sandbox.Streamer.
func (in Ops) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (n int64, err error) {
	err = in(ctx, user, func(ctx context.Context, f *Files) (err error) {
		n, err = f.ReadFileTo(ctx, path, w)
		return err
	})
	return n, err
}

// WriteFile implements sandbox.Sandbox.
func (in Ops) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user sandbox.User) error {
	return in(ctx, user, func(ctx context.Context, f *Files) error { return f.WriteFile(ctx, path, data, perm) })
}

// ReplaceFile implements sandbox.Replacer.
func (in Ops) ReplaceFile(ctx context.Context, path string, data []byte, was string, user sandbox.User) error {
	return in(ctx, user, func(ctx context.Context, f *Files) error { return f.ReplaceFile(ctx, path, data, was) })
}

// WriteFileFrom implements sandbox.Streamer.
func (in Ops) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (n int64, err error) {
	err = in(ctx, user, func(ctx context.Context, f *Files) (err error) {
		n, err = f.WriteFileFrom(ctx, path, r, perm)
		return err
	})
	return n, err
}

// Stat implements sandbox.Sandbox.
func (in Ops) Stat(ctx context.Context, path string, user sandbox.User) (info *sandbox.FileInfo, err error) {
	err = in(ctx, user, func(ctx context.Context, f *Files) (err error) {
		info, err = f.Stat(ctx, path)
		return err
	})
	return info, err
}

// ReadDir implements sandbox.Sandbox.
func (in Ops) ReadDir(ctx context.Context, path string, user sandbox.User) (list []sandbox.DirEntry, err error) {
	err = in(ctx, user, func(ctx context.Context, f *Files) (err error) {
		list, err = f.ReadDir(ctx, path)
		return err
	})
	return list, err
}

// MkdirAll implements sandbox.Sandbox.
func (in Ops) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error {
	return in(ctx, user, func(ctx context.Context, f *Files) error { return f.MkdirAll(ctx, path, perm) })
}

// Remove implements sandbox.Sandbox.
func (in Ops) Remove(ctx context.Context, path string, user sandbox.User) error {
	return in(ctx, user, func(ctx context.Context, f *Files) error { return f.Remove(ctx, path) })
}

// RemoveAll implements sandbox.Sandbox.
func (in Ops) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	return in(ctx, user, func(ctx context.Context, f *Files) error { return f.RemoveAll(ctx, path) })
}
