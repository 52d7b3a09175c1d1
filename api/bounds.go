package api

import (
	"context"
	"io"
	"math"
	"net/http"
	"time"

	"secbox/skills/library"
)

// Bounds are how much of what costs the disk is done at once. What is 0 has the default that its comment gives, which is also
// that of the setting for it.
type Bounds struct {
	AtWork           int   // uploads being unpacked, promotions, syncs and diffs: 4
	Queued           int   // those that wait for that, beyond whom 503 is answered: 64; less than 0: nobody waits
	Uploads          int   // being received, or received and waiting: 64
	UploadsPerToken  int   // of them by one token: 16
	UploadBytes      int64 // of their archives on the disk: 1 GiB
	BytesPerToken    int64 // of them by one token: 512 MiB
	Downloads        int   // at once; each may have a copy of the skill on the disk: 32
	DownloadsByToken int   // of them by one token: 8
}

func (b Bounds) withDefaults() Bounds {
	number := func(n *int, otherwise int) {
		if *n <= 0 {
			*n = otherwise
		}
	}
	number(&b.AtWork, 4)
	if b.Queued == 0 {
		b.Queued = 64
	}
	number(&b.Uploads, 64)
	number(&b.UploadsPerToken, 16)
	number(&b.Downloads, 32)
	number(&b.DownloadsByToken, 8)
	if b.UploadBytes <= 0 {
		b.UploadBytes = 1 << 30
	}
	if b.BytesPerToken <= 0 {
		b.BytesPerToken = 512 << 20
	}
	return b
}

// bounded is the library behind the bounds: what copies or unpacks a whole skill waits for its place.
type bounded struct {
	Library
	work      *places
	downloads *quota
}

func newBounded(l Library, b Bounds) bounded {
	return bounded{l, newPlaces(b.AtWork, max(0, b.Queued)), newQuota("downloads", share{b.Downloads, math.MaxInt64}, share{b.DownloadsByToken, math.MaxInt64})}
}

// Upload waits for a place; the archive is whole by then.
func (b bounded) Upload(ctx context.Context, o library.Owner, scope library.Scope, filename string, zip io.ReaderAt, size int64) (library.Uploaded, error) {
	leave, err := b.work.enter(ctx)
	if err != nil {
		return library.Uploaded{}, err
	}
	defer leave()
	return b.Library.Upload(ctx, o, scope, filename, zip, size)
}

// Promote waits for a place.
func (b bounded) Promote(ctx context.Context, o library.Owner, skillID string, force bool, reviewed ...string) (library.Promoted, error) {
	leave, err := b.work.enter(ctx)
	if err != nil {
		return library.Promoted{}, err
	}
	defer leave()
	return b.Library.Promote(ctx, o, skillID, force, reviewed...)
}

// Diff waits for a place: it reads the whole skill.
func (b bounded) Diff(ctx context.Context, o library.Owner, skillID string) (diff, digest string, err error) {
	leave, err := b.work.enter(ctx)
	if err != nil {
		return "", "", err
	}
	defer leave()
	return b.Library.Diff(ctx, o, skillID)
}

// Sync waits for a place.
func (b bounded) Sync(ctx context.Context, o library.Owner, skillID string, force bool) (library.Synced, error) {
	leave, err := b.work.enter(ctx)
	if err != nil {
		return library.Synced{}, err
	}
	defer leave()
	return b.Library.Sync(ctx, o, skillID, force)
}

// Download counts as one of the caller's. It holds no place, as its length is the client's affair.
func (b bounded) Download(ctx context.Context, o library.Owner, skillID string, w io.Writer) error {
	s, err := b.downloads.enter(callFrom(ctx).caller.ID, 0)
	if err != nil {
		return err
	}
	defer s.leave()
	return b.Library.Download(ctx, o, skillID, w)
}

const (
	// slowest is what a client of a download must take in the long run, in bytes per second: until it has taken everything, a copy of the
	// skill lies on the disk.
	slowest      = 16 << 10
	downloadRest = time.Minute // that it may rest, on top
)

// pressed writes an answer that must be taken at a pace. It begins with its first byte.
type pressed struct {
	http.ResponseWriter
	until time.Time
}

func (p *pressed) Write(b []byte) (int, error) {
	if p.until.IsZero() {
		p.until = time.Now().Add(downloadRest)
	}
	p.until = p.until.Add(time.Duration(len(b)) * time.Second / slowest)
	// Where a deadline cannot be set, there is no connection that could be slow: a test's recorder.
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(p.until)
	return p.ResponseWriter.Write(b)
}

// done takes the deadline from the connection.
func (p *pressed) done() {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Time{})
}
