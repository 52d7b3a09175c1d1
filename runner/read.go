package runner

import (
	"bytes"
	"context"
	"io"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/workspace"
)

// replay answers a request whose Idempotency-Key was used before.
func (r *Runner) replay(ctx context.Context, req Request, taken audit.Record) (Result, error) {
	if taken.RequestDigest != req.Digest {
		return Result{}, idempotencyMismatch(taken)
	}
	record, err := r.awaitEnd(ctx, taken)
	if err == nil {
		err = refusalOf(record)
	}
	if err != nil {
		return Result{}, err
	}
	result := Result{Record: record, Replayed: true}
	err = r.readBack(ctx, req, &result)
	if err != nil && ctx.Err() != nil || fault.Is(err, fault.ArtifactAltered) || fault.Is(err, fault.ServerBusy) {
		e := *fault.From(err)
		e.ExecID = record.ExecID
		return Result{}, &e
	}
	return result, nil
}

// readBack completes a result with what the exec left, as far as it is still there.
func (r *Runner) readBack(ctx context.Context, req Request, result *Result) error {
	var err error
	if result.Stdout, result.StdoutCut, err = r.inline(ctx, result.Record, "stdout"); err != nil {
		return err
	}
	if result.Stderr, result.StderrCut, err = r.inline(ctx, result.Record, "stderr"); err != nil {
		return err
	}
	left, err := r.Artifacts(ctx, result.Record)
	if err != nil {
		return err
	}
	defer left.Close()
	result.Artifacts = left.List().Items
	result.Output, err = r.outputOf(ctx, req.Skill, left)
	return err
}

func idempotencyMismatch(taken audit.Record) error {
	e := fault.New(fault.IdempotencyMismatch, "this Idempotency-Key was used for another request, which became exec %s; choose a new key", taken.ExecID)
	e.ExecID = taken.ExecID
	return e
}

// refusalOf is the error that the first request got when its job certainly never ran; nil when there is a result.
func refusalOf(record audit.Record) error {
	var code fault.Code
	switch {
	case record.Status == audit.Rejected && record.ErrorReason == audit.PolicyDenied:
		code = fault.PolicyDenied
	case record.Status == audit.Rejected:
		code = fault.InputConflict
	case record.Status == audit.Errored && record.ErrorReason == audit.ImageMissing:
		code = fault.ImageMissing
	case record.Status == audit.Errored && record.ErrorReason == audit.StartFailed:
		code = fault.Internal
	default:
		return nil
	}
	e := fault.New(code, "%s", record.Detail)
	e.ExecID = record.ExecID
	return e
}

// replayPoll is how often a row that another process works on is looked at.
const replayPoll = 100 * time.Millisecond

// awaitEnd waits until an exec has ended: on this node by its signal, elsewhere by its row.
func (r *Runner) awaitEnd(ctx context.Context, record audit.Record) (audit.Record, error) {
	for !record.Status.Final() {
		var ended <-chan struct{}
		var poll <-chan time.Time
		if l := r.find(record.ExecID); l != nil {
			ended = l.done
		} else {
			poll = time.After(replayPoll)
		}
		select {
		case <-ctx.Done():
			return record, fault.Wrap(fault.Internal, ctx.Err(), "the wait for exec %s was given up", record.ExecID)
		case <-ended:
		case <-poll:
		}
		var err error
		if record, err = r.cfg.Log.Get(ctx, record.ExecID); err != nil {
			return record, err
		}
	}
	return record, nil
}

func (r *Runner) inline(ctx context.Context, record audit.Record, stream string) (begin []byte, cut bool, err error) {
	f, size, err := r.OpenOutput(ctx, record, stream)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, InlineBytes))
	return text(b), size > InlineBytes, err
}

// Artifacts is what an exec left, open for reading by many calls at the price of one look at its manifest. The caller closes it; what was
// opened from it lives on. Not safe for concurrent use.
type Artifacts interface {
	List() ArtifactList

	// Open opens one regular file that the manifest lists; fault.UnknownArtifact for anything else. A file that is not the listed one any
	// more is fault.ArtifactAltered: it is compared before Open returns, and a Read fails when it is changed later.
	Open(ctx context.Context, path string) (io.ReadSeekCloser, Artifact, error)

	Close() error
}

// Artifacts opens what an exec left; fault.ArtifactsPending while it runs, nothing for one that never ran.
func (r *Runner) Artifacts(_ context.Context, record audit.Record) (Artifacts, error) {
	files, err := r.files(record)
	if err != nil {
		return nil, err
	}
	if files == nil {
		return &artifacts{execID: record.ExecID, listed: map[string]Artifact{}}, nil
	}
	set := &artifacts{
		execID: record.ExecID, files: files, listed: map[string]Artifact{},
		list: ArtifactList{Items: artifactsOf(files.Manifest), TotalBytes: files.Manifest.TotalBytes, Truncated: files.Manifest.Truncated},
	}
	for _, item := range set.list.Items {
		set.listed[item.Path] = item
	}
	return set, nil
}

// files opens an exec's directory by the manifest whose digest is on record; nil for an exec without one, since it never ran.
func (r *Runner) files(record audit.Record) (*workspace.Artifacts, error) {
	if !record.Status.Final() {
		return nil, fault.New(fault.ArtifactsPending, "exec %s is %s; its artifacts are collected when it has ended", record.ExecID, record.Status)
	}
	if record.ManifestDigest == "" {
		return nil, nil
	}
	project, err := r.cfg.Workspace.Existing(record.ProjectID)
	if err != nil {
		return nil, err
	}
	return project.Artifacts(record.ExecID, record.ManifestDigest)
}

// artifacts is Artifacts over a manifest; files is nil for an exec that never ran.
type artifacts struct {
	execID string
	files  *workspace.Artifacts
	list   ArtifactList
	listed map[string]Artifact
}

func (a *artifacts) List() ArtifactList { return a.list }

func (a *artifacts) Open(ctx context.Context, path string) (io.ReadSeekCloser, Artifact, error) {
	item, ok := a.listed[path]
	if !ok {
		return nil, Artifact{}, fault.New(fault.UnknownArtifact, "exec %s left no regular file %q; its artifacts list shows what there is", a.execID, path)
	}
	file, err := a.files.Open(ctx, path)
	if err != nil {
		return nil, Artifact{}, err
	}
	return file, item, nil
}

func (a *artifacts) Close() error {
	if a.files == nil {
		return nil
	}
	return a.files.Close()
}

// OpenOutput opens what was kept of "stdout" or "stderr" and says how many bytes that is; while the exec runs, what there is so far.
func (r *Runner) OpenOutput(ctx context.Context, record audit.Record, stream string) (io.ReadSeekCloser, int64, error) {
	if live, size := r.liveOutput(record.ExecID, stream); live != nil {
		return live, size, nil
	}
	if !record.Status.Final() || record.ManifestDigest == "" {
		return empty(), 0, nil
	}
	name := stdoutFile
	if stream == "stderr" {
		name = stderrFile
	}
	f, file, err := r.OpenPublished(ctx, record, name)
	return f, file.Size, err
}

// OpenPublished opens stdout.txt, stderr.txt, manifest.json or meta.json of an exec that has ended, under the rules of Artifacts.Open.
func (r *Runner) OpenPublished(ctx context.Context, record audit.Record, name string) (io.ReadSeekCloser, Artifact, error) {
	files, err := r.files(record)
	if err != nil {
		return nil, Artifact{}, err
	}
	if files == nil {
		return nil, Artifact{}, fault.New(fault.UnknownArtifact, "exec %s left no %s: its command did not run in a container of its own, or its end is not known", record.ExecID, name)
	}
	defer files.Close()
	f, entry, err := files.OpenPublished(ctx, name)
	if err != nil {
		return nil, Artifact{}, err
	}
	return f, Artifact{Path: name, Size: entry.Size, SHA256: entry.SHA256}, nil
}

// liveOutput is what a running exec has printed so far; nil when there is none to be had.
func (r *Runner) liveOutput(execID, stream string) (io.ReadSeekCloser, int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.live[execID]
	if l == nil || l.capture == nil {
		return nil, 0
	}
	s := l.capture.stdout
	if stream == "stderr" {
		s = l.capture.stderr
	}
	reader, size, err := s.open()
	if err != nil {
		return nil, 0
	}
	return reader, size
}

func empty() io.ReadSeekCloser {
	return section{io.NewSectionReader(bytes.NewReader(nil), 0, 0), nil}
}
