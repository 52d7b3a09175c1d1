package docker

import (
	"context"

	"secbox/sandbox"
	"secbox/sandbox/files"
)

// files are the files of a place.
func (s *Sandbox) files(place *sandbox.Place) *files.Files {
	return files.New(files.Config{Root: place.Dir, UID: place.UID, GID: place.GID, ReadOnly: s.cfg.ReadOnlyRoots, Room: s.cfg.Disk.Room, Now: s.cfg.Now, Commits: &s.commits})
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
