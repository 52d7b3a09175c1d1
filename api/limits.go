package api

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/api/inflight"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/library"
)

// Bounds limit the memory, disk space and work of requests in progress. A zero field has the
// default of its comment, which is also the default of its setting.
type Bounds struct {
	Memory         int64 // bytes of all requests' bodies and answers: 512 MiB, at least three times MemoryPerToken
	MemoryPerToken int64 // bytes: 192 MiB, at least enough for one body of MaxBodyBytes

	// Rest is how long a client may pause while it sends a body or reads an answer, beside the
	// minimum rate: 30 s.
	Rest time.Duration

	ConcurrentWork      int   // uploads being unpacked, promotions, syncs and diffs that run at once: 4
	QueuedWork          int   // of those that wait; further requests get 503: 64; negative: none waits
	Uploads             int   // being received or waiting to be unpacked: 64
	UploadsPerToken     int   // 16
	UploadBytes         int64 // of their archives on disk: 1 GiB
	UploadBytesPerToken int64 // of those: 512 MiB
	Downloads           int   // at once; each may have a copy of the skill on disk: 32
	DownloadsPerToken   int   // 8

	Streams         int // of events at once: 1000
	StreamsPerToken int // 600

	// Download is how long one download, or upload of a file of a workspace, may take in total,
	// even at a sufficient rate: 30 min.
	Download time.Duration
}

func (b Bounds) withDefaults(maxBodyBytes int64) Bounds {
	b.ConcurrentWork = orDefault(b.ConcurrentWork, 4)
	b.QueuedWork = max(cmp.Or(b.QueuedWork, 64), 0)
	b.Uploads = orDefault(b.Uploads, 64)
	b.UploadsPerToken = orDefault(b.UploadsPerToken, 16)
	b.UploadBytes = orDefault(b.UploadBytes, 1<<30)
	b.UploadBytesPerToken = orDefault(b.UploadBytesPerToken, 512<<20)
	b.Downloads = orDefault(b.Downloads, 32)
	b.DownloadsPerToken = orDefault(b.DownloadsPerToken, 8)
	b.Streams = orDefault(b.Streams, 1000)
	b.StreamsPerToken = orDefault(b.StreamsPerToken, 600)
	b.Rest = orDefault(b.Rest, 30*time.Second)
	b.Download = orDefault(b.Download, 30*time.Minute)
	b.MemoryPerToken = orDefault(b.MemoryPerToken, max(192<<20, (inflight.BytePrice+1)*maxBodyBytes))
	b.Memory = orDefault(b.Memory, max(512<<20, 3*b.MemoryPerToken))
	return b
}

func orDefault[T int | int64 | time.Duration](n, otherwise T) T {
	if n > 0 {
		return n
	}
	return otherwise
}

// boundedPackages limits how many reads of packages run at once.
type boundedPackages struct {
	visible.Packages
	work        *inflight.Queue // copies or unpacks whole skills
	reads       *inflight.Queue // reads one file into memory
	downloads   *inflight.Quota
	maxDownload time.Duration
}

// boundedLibrary limits how many calls of a Library run at once.
type boundedLibrary struct {
	boundedPackages
	libraryWrites
}

// boundedView is a View within the limits of the Library.
type boundedView struct {
	boundedPackages
	visible.Versions
}

// A read from disk is short, and its place is free again before the answer is sent.
const (
	readsAtOnce = 8
	readsQueued = 1024
)

// Answers that are made of the database and the disk at once; see inflight.Turns. More would not be
// faster: few lists run at once in a database.
const (
	turnsAtOnce         = 8
	turnsAtOncePerToken = 4
	turnsQueued         = 4096
	turnsQueuedPerToken = 512
)

// takesTurns are the operations that read execs, their files and the audit log.
var takesTurns = []string{
	"listExecs", "execStats", "getExecProof", "getComparison", "getExecAttestation", "listArtifacts", "downloadArtifact", "getManifest",
	"getMeta",
	"listAdminEvents", "getAdminEventProof", "listHolds", "getLogDocuments", "searchRegistry", "listRegistryEvents",
}

// inTurn makes the answers of an operation in turns, if it takes turns. They are sent afterwards.
func (s *Server) inTurn(next wire.StrictHandlerFunc, operationID string) wire.StrictHandlerFunc {
	if !slices.ContainsFunc(takesTurns, func(id string) bool { return strings.EqualFold(id, operationID) }) {
		return next
	}
	return func(c echo.Context, request any) (any, error) {
		ctx := c.Request().Context()
		leave, err := s.turns.Enter(ctx, callFrom(ctx).caller.ID)
		if err != nil {
			return nil, err
		}
		defer leave()
		return next(c, request)
	}
}

func newBoundedLibrary(l Library, v visible.View, b Bounds, downloads *inflight.Quota) (boundedLibrary, boundedView) {
	reading := boundedPackages{
		Packages: l, work: inflight.NewQueue(b.ConcurrentWork, b.QueuedWork), reads: inflight.NewQueue(readsAtOnce, readsQueued),
		downloads: downloads, maxDownload: b.Download,
	}
	looking := reading
	looking.Packages = v
	return boundedLibrary{reading, l}, boundedView{looking, v}
}

func newDownloads(b Bounds) *inflight.Quota {
	share := func(n int) inflight.Share { return inflight.Share{Requests: n, Bytes: math.MaxInt64} }
	return inflight.NewQuota("downloads", share(b.Downloads), share(b.DownloadsPerToken))
}

// queued calls f when it has a place in q.
func queued[T any](ctx context.Context, q *inflight.Queue, f func() (T, error)) (T, error) {
	leave, err := q.Enter(ctx, callFrom(ctx).caller.ID)
	if err != nil {
		var zero T
		return zero, err
	}
	defer leave()
	return f()
}

func (b boundedLibrary) UploadSome(
	ctx context.Context, o library.Owner, scope library.Scope, filename string, pick archive.Pick, zip io.ReaderAt, size int64,
) ([]library.Uploaded, error) {
	return queued(ctx, b.work, func() ([]library.Uploaded, error) {
		return b.libraryWrites.UploadSome(ctx, o, scope, filename, pick, zip, size)
	})
}

func (b boundedLibrary) Promote(ctx context.Context, o library.Owner, skillID string, force bool, reviewed ...string) (library.Promoted,
	error,
) {
	return queued(ctx, b.work, func() (library.Promoted, error) { return b.libraryWrites.Promote(ctx, o, skillID, force, reviewed...) })
}

func (b boundedLibrary) Sync(ctx context.Context, o library.Owner, skillID string, force bool) (library.Synced, error) {
	return queued(ctx, b.work, func() (library.Synced, error) { return b.libraryWrites.Sync(ctx, o, skillID, force) })
}

func (b boundedLibrary) SandboxRead(ctx context.Context, o library.Owner, path string) ([]byte, error) {
	return queued(ctx, b.reads, func() ([]byte, error) { return b.libraryWrites.SandboxRead(ctx, o, path) })
}

func (b boundedPackages) Diff(ctx context.Context, o library.Owner, skillID string) (diff, digest string, err error) {
	diff, err = queued(ctx, b.work, func() (d string, err error) {
		d, digest, err = b.Packages.Diff(ctx, o, skillID)
		return d, err
	})
	return diff, digest, err
}

func (b boundedPackages) Read(ctx context.Context, o library.Owner, skillID, path string) ([]byte, error) {
	return queued(ctx, b.reads, func() ([]byte, error) { return b.Packages.Read(ctx, o, skillID, path) })
}

func (b boundedPackages) Download(ctx context.Context, o library.Owner, skillID string, w io.Writer) error {
	r, err := b.downloads.Enter(callFrom(ctx).caller.ID, 0)
	if err != nil {
		return err
	}
	defer r.Leave()
	ctx, cancel := context.WithTimeoutCause(ctx, b.maxDownload,
		fault.New(fault.SkillsBusy, "the download took longer than %v", b.maxDownload))
	defer cancel()
	return b.Packages.Download(ctx, o, skillID, w)
}
