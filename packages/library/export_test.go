package library

import (
	"context"
	"io"

	"secbox/packages/archive"
	"secbox/skills"
)

// Reads is how many files were read to learn their digests.
func (l *Library) Reads() int64 { return l.files.Hashed() }

// Unpinned is the registry of a View.
func Unpinned(r skills.Registry) skills.Registry { return unpinned{r} }

// Upload uploads an archive of one skill.
func (l *Library) Upload(ctx context.Context, o Owner, scope Scope, filename string, zip io.ReaderAt, size int64) (Uploaded, error) {
	all, err := l.UploadSome(ctx, o, scope, filename, archive.Pick{}, zip, size)
	if err != nil {
		return Uploaded{}, err
	}
	return all[0], nil
}
