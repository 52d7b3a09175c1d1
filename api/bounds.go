package api

import (
	"context"
	"io"
	"math"
	"time"

	"secbox/fault"
	"secbox/skills/library"
)

// Bounds are how much of what costs memory or the disk is done at once. What is 0 has the default that its comment gives, which is also
// that of the setting for it.
type Bounds struct {
	Memory         int64 // bytes that the bodies and answers of all requests take together: 512 MiB, and room for three tokens at least
	MemoryPerToken int64 // bytes of them by one token: 192 MiB, and room for one body of MaxBodyBytes at least

	// Rest is how long a client may rest while it sends a body or takes an answer, beside the pace that it must keep: 30 s.
	Rest time.Duration

	AtWork           int   // uploads being unpacked, promotions, syncs and diffs: 4
	Queued           int   // those that wait for that, beyond whom 503 is answered: 64; less than 0: nobody waits
	Uploads          int   // being received, or received and waiting: 64
	UploadsPerToken  int   // of them by one token: 16
	UploadBytes      int64 // of their archives on the disk: 1 GiB
	BytesPerToken    int64 // of them by one token: 512 MiB
	Downloads        int   // at once; each may have a copy of the skill on the disk: 32
	DownloadsByToken int   // of them by one token: 8

	// Download is how long one may take in all, however well the client keeps the pace: 30 min.
	Download time.Duration
}

func (b Bounds) withDefaults(maxBodyBytes int64) Bounds {
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
	if b.Rest <= 0 {
		b.Rest = 30 * time.Second
	}
	if b.Download <= 0 {
		b.Download = 30 * time.Minute
	}
	if b.MemoryPerToken <= 0 {
		b.MemoryPerToken = max(192<<20, (bytePrice+1)*maxBodyBytes)
	}
	if b.Memory <= 0 {
		b.Memory = max(512<<20, 3*b.MemoryPerToken)
	}
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
	reads     *places
	downloads *quota
	longest   time.Duration // of a download
}

// Files that are read at once, each whole into memory, and that wait for that. A read from the disk is short: the next one is not made to wait
// for the answer of the one before.
const (
	readsAtOnce = 8
	readsQueued = 1024
)

func newBounded(l Library, b Bounds) bounded {
	return bounded{l, newPlaces(b.AtWork, max(0, b.Queued)), newPlaces(readsAtOnce, readsQueued), newQuota("downloads", share{b.Downloads, math.MaxInt64}, share{b.DownloadsByToken, math.MaxInt64}), b.Download}
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

// Read waits for a place.
func (b bounded) Read(ctx context.Context, o library.Owner, skillID, path string) ([]byte, error) {
	leave, err := b.reads.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return b.Library.Read(ctx, o, skillID, path)
}

// SandboxRead waits for a place.
func (b bounded) SandboxRead(ctx context.Context, o library.Owner, path string) ([]byte, error) {
	leave, err := b.reads.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return b.Library.SandboxRead(ctx, o, path)
}

// Download counts as one of the caller's, for as long as the client takes, which has an end.
func (b bounded) Download(ctx context.Context, o library.Owner, skillID string, w io.Writer) error {
	s, err := b.downloads.enter(callFrom(ctx).caller.ID, 0)
	if err != nil {
		return err
	}
	defer s.leave()
	ctx, cancel := context.WithTimeoutCause(ctx, b.longest, fault.New(fault.SkillsBusy, "the download took longer than %v", b.longest))
	defer cancel()
	return b.Library.Download(ctx, o, skillID, w)
}
