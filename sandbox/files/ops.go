package files

import (
	"context"
	"io"
	"io/fs"

	"secbox/sandbox"
)

// Ops implements the file operations of a sandbox whose files are on this machine. The function
// calls f with the user's Files; it adds the sandbox's own admission and keeps the workspace open
// meanwhile.
type Ops func(ctx context.Context, user sandbox.User, f func(context.Context, *Files) error) error

// get calls f and returns its value.
func get[T any](ctx context.Context, in Ops, user sandbox.User, f func(context.Context, *Files) (T, error)) (value T, err error) {
	err = in(ctx, user, func(ctx context.Context, files *Files) (err error) {
		value, err = f(ctx, files)
		return err
	})
	return value, err
}

// ReadFile implements sandbox.Sandbox.
func (in Ops) ReadFile(ctx context.Context, path string, user sandbox.User) ([]byte, error) {
	return get(ctx, in, user, func(ctx context.Context, f *Files) ([]byte, error) { return f.ReadFile(ctx, path) })
}

// ReadFileTo implements sandbox.Streamer.
func (in Ops) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error) {
	return get(ctx, in, user, func(ctx context.Context, f *Files) (int64, error) { return f.ReadFileTo(ctx, path, w) })
}

// WriteFile implements sandbox.Sandbox.
func (in Ops) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user sandbox.User) error {
	return in(ctx, user, func(ctx context.Context, f *Files) error { return f.WriteFile(ctx, path, data, perm) })
}

// ReplaceFile implements sandbox.Replacer.
func (in Ops) ReplaceFile(ctx context.Context, path string, r io.Reader, was string, user sandbox.User) (int64, error) {
	return get(ctx, in, user, func(ctx context.Context, f *Files) (int64, error) { return f.ReplaceFile(ctx, path, r, was) })
}

// WriteFileFrom implements sandbox.Streamer.
func (in Ops) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error) {
	return get(ctx, in, user, func(ctx context.Context, f *Files) (int64, error) { return f.WriteFileFrom(ctx, path, r, perm) })
}

// Stat implements sandbox.Sandbox.
func (in Ops) Stat(ctx context.Context, path string, user sandbox.User) (*sandbox.FileInfo, error) {
	return get(ctx, in, user, func(ctx context.Context, f *Files) (*sandbox.FileInfo, error) { return f.Stat(ctx, path) })
}

// ReadDir implements sandbox.Sandbox.
func (in Ops) ReadDir(ctx context.Context, path string, user sandbox.User) ([]sandbox.DirEntry, error) {
	return get(ctx, in, user, func(ctx context.Context, f *Files) ([]sandbox.DirEntry, error) { return f.ReadDir(ctx, path) })
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
