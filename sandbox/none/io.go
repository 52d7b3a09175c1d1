package none

import (
	"context"
	"io"
	"io/fs"

	"secbox/sandbox"
	"secbox/sandbox/files"
)

// in runs f on a user's files.
func (s *Sandbox) in(ctx context.Context, user sandbox.User, f func(context.Context, *files.Files) error) error {
	return s.do(ctx, user, s.calls, func(ctx context.Context, place *sandbox.Place) error { return f(ctx, s.files(place)) })
}

// ReadFile reads a file.
func (s *Sandbox) ReadFile(ctx context.Context, path string, user sandbox.User) (data []byte, err error) {
	err = s.in(ctx, user, func(ctx context.Context, f *files.Files) (err error) {
		data, err = f.ReadFile(ctx, path)
		return err
	})
	return data, err
}

// ReadFileTo reads a file into a writer.
func (s *Sandbox) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (n int64, err error) {
	err = s.in(ctx, user, func(ctx context.Context, f *files.Files) (err error) {
		n, err = f.ReadFileTo(ctx, path, w)
		return err
	})
	return n, err
}

// WriteFile writes a file.
func (s *Sandbox) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user sandbox.User) error {
	return s.in(ctx, user, func(ctx context.Context, f *files.Files) error { return f.WriteFile(ctx, path, data, perm) })
}

// WriteFileFrom writes what a reader gives to a file.
func (s *Sandbox) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (n int64, err error) {
	err = s.in(ctx, user, func(ctx context.Context, f *files.Files) (err error) {
		n, err = f.WriteFileFrom(ctx, path, r, perm)
		return err
	})
	return n, err
}

// Stat describes a file.
func (s *Sandbox) Stat(ctx context.Context, path string, user sandbox.User) (info *sandbox.FileInfo, err error) {
	err = s.in(ctx, user, func(ctx context.Context, f *files.Files) (err error) {
		info, err = f.Stat(ctx, path)
		return err
	})
	return info, err
}

// ReadDir lists a directory.
func (s *Sandbox) ReadDir(ctx context.Context, path string, user sandbox.User) (list []sandbox.DirEntry, err error) {
	err = s.in(ctx, user, func(ctx context.Context, f *files.Files) (err error) {
		list, err = f.ReadDir(ctx, path)
		return err
	})
	return list, err
}

// MkdirAll makes a directory.
func (s *Sandbox) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error {
	return s.in(ctx, user, func(ctx context.Context, f *files.Files) error { return f.MkdirAll(ctx, path, perm) })
}

// Remove removes a file.
func (s *Sandbox) Remove(ctx context.Context, path string, user sandbox.User) error {
	return s.in(ctx, user, func(ctx context.Context, f *files.Files) error { return f.Remove(ctx, path) })
}

// RemoveAll removes a tree.
func (s *Sandbox) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	return s.in(ctx, user, func(ctx context.Context, f *files.Files) error { return f.RemoveAll(ctx, path) })
}
