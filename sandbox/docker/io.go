package docker

import (
	"context"
	"io"
	"io/fs"

	"secbox/sandbox"
	"secbox/sandbox/files"
)

// files are the files of a place.
func (s *Sandbox) files(place *sandbox.Place) *files.Files {
	return files.New(files.Config{Root: place.Dir, UID: place.UID, GID: place.GID, ReadOnly: s.cfg.ReadOnlyRoots, Room: s.room, Now: s.cfg.Now})
}

// on does something to a user's files. It needs no container, and starts none.
func (s *Sandbox) on(ctx context.Context, user sandbox.User, f func(ctx context.Context, at *files.Files) error) error {
	return s.do(ctx, user, func(ctx context.Context, _ *box) error {
		place, err := s.cfg.Places.Open(ctx, user)
		if err != nil {
			return err
		}
		defer place.Close()
		return f(ctx, s.files(place))
	})
}

// ReadFile implements sandbox.Sandbox.
func (s *Sandbox) ReadFile(ctx context.Context, path string, user sandbox.User) (data []byte, err error) {
	err = s.on(ctx, user, func(ctx context.Context, at *files.Files) error {
		data, err = at.ReadFile(ctx, path)
		return err
	})
	return data, err
}

// ReadFileTo implements sandbox.Streamer.
func (s *Sandbox) ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (n int64, err error) {
	err = s.on(ctx, user, func(ctx context.Context, at *files.Files) error {
		n, err = at.ReadFileTo(ctx, path, w)
		return err
	})
	return n, err
}

// WriteFile implements sandbox.Sandbox.
func (s *Sandbox) WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user sandbox.User) error {
	return s.on(ctx, user, func(ctx context.Context, at *files.Files) error { return at.WriteFile(ctx, path, data, perm) })
}

// WriteFileFrom implements sandbox.Streamer.
func (s *Sandbox) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (n int64, err error) {
	err = s.on(ctx, user, func(ctx context.Context, at *files.Files) error {
		n, err = at.WriteFileFrom(ctx, path, r, perm)
		return err
	})
	return n, err
}

// Stat implements sandbox.Sandbox.
func (s *Sandbox) Stat(ctx context.Context, path string, user sandbox.User) (info *sandbox.FileInfo, err error) {
	err = s.on(ctx, user, func(ctx context.Context, at *files.Files) error {
		info, err = at.Stat(ctx, path)
		return err
	})
	return info, err
}

// ReadDir implements sandbox.Sandbox.
func (s *Sandbox) ReadDir(ctx context.Context, path string, user sandbox.User) (list []sandbox.DirEntry, err error) {
	err = s.on(ctx, user, func(ctx context.Context, at *files.Files) error {
		list, err = at.ReadDir(ctx, path)
		return err
	})
	return list, err
}

// MkdirAll implements sandbox.Sandbox.
func (s *Sandbox) MkdirAll(ctx context.Context, path string, perm fs.FileMode, user sandbox.User) error {
	return s.on(ctx, user, func(ctx context.Context, at *files.Files) error { return at.MkdirAll(ctx, path, perm) })
}

// Remove implements sandbox.Sandbox.
func (s *Sandbox) Remove(ctx context.Context, path string, user sandbox.User) error {
	return s.on(ctx, user, func(ctx context.Context, at *files.Files) error { return at.Remove(ctx, path) })
}

// RemoveAll implements sandbox.Sandbox.
func (s *Sandbox) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	return s.on(ctx, user, func(ctx context.Context, at *files.Files) error { return at.RemoveAll(ctx, path) })
}
