package offload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"time"

	"secbox/internal/admission"
	"secbox/sandbox"
)

// Bounds of one check for changed files, because each file is read as a whole, perhaps on another
// machine.
const (
	maxCheckBytes = 256 << 20 // of all files together
	maxCheckTime  = 30 * time.Second
)

// File is a file as an agent has seen it last.
type File struct {
	Path   string // in the sandbox, absolute
	SHA256 string // of the whole content, in hexadecimal
}

// Files is the part of a sandbox that InvalidateStaleReads uses.
type Files interface {
	ReadFileTo(ctx context.Context, path string, w io.Writer, user sandbox.User) (int64, error)
}

// Stale are the paths of files that an agent may have to read again.
type Stale struct {
	Changed []string // the content is another
	Removed []string // there is no such file any more
	Unknown []string // cannot be read now, or not within the bounds: perhaps changed, perhaps not
}

// InvalidateStaleReads compares files with what the sandbox has now, and names the files that have
// changed. Files are only called unchanged or changed if they could be read as a whole. An error
// means that ctx has ended.
func (s *Session) InvalidateStaleReads(ctx context.Context, seen []File, from Files) (Stale, error) {
	within, cancel := context.WithTimeout(ctx, maxCheckTime)
	defer cancel()
	var found Stale
	left := int64(maxCheckBytes)
	for _, file := range seen {
		sum := sha256.New()
		bounded := &sandbox.BoundedWriter{W: admission.InTurns(within, sum), Left: left}
		_, err := from.ReadFileTo(within, file.Path, bounded, s.user)
		left = bounded.Left
		now := hex.EncodeToString(sum.Sum(nil))
		switch {
		case ctx.Err() != nil:
			return Stale{}, ctx.Err()
		case bounded.Full || err != nil && !errors.Is(err, fs.ErrNotExist):
			found.Unknown = append(found.Unknown, file.Path)
		case err == nil && now == file.SHA256:
		case err == nil:
			found.Changed = append(found.Changed, file.Path)
		default:
			found.Removed = append(found.Removed, file.Path)
		}
	}
	return found, nil
}
