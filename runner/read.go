package runner

import (
	"bytes"
	"context"
	"io"

	"secbox/audit"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/workspace"
)

// Repeat answers a request whose Idempotency-Key was used before, as Run does, from RequestedBy,
// IdempotencyKey, Digest and Skill alone. It waits for the end of that exec, or of ctx. found is
// false if the key is free.
func (r *Runner) Repeat(ctx context.Context, req Request) (res Result, found bool, err error) {
	taken, err := r.cfg.Log.OfKey(ctx, req.RequestedBy, req.IdempotencyKey)
	if err != nil || taken == nil {
		return Result{}, false, err
	}
	res, err = r.replay(ctx, req, *taken)
	return res, true, err
}

// replay answers a request whose Idempotency-Key was used before, with what the exec left.
func (r *Runner) replay(ctx context.Context, req Request, taken audit.Record) (Result, error) {
	if err := r.sameRequest(taken, req); err != nil {
		return Result{}, err
	}
	if req.OnReplay != nil {
		req.OnReplay(taken.ExecID)
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

// readBack completes a result with output and artifacts, as far as they still exist.
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
	var bytes int64
	defer left.Close()
	list := left.List()
	result.Artifacts, result.LeftOut = list.Items, list.LeftOut
	for _, item := range result.Artifacts { // they outlive left
		bytes += itemPrice + 2*int64(len(item.Path))
	}
	if err := Reserve(ctx, bytes); err != nil {
		return err
	}
	if result.Record.Context != "" {
		if project, err := r.cfg.Workspace.Existing(result.Record.ProjectID); err == nil {
			result.Results, _ = shownResults(project, result.Record, result.Artifacts)
		}
	}
	result.Output, err = r.outputOf(ctx, req.Skill, left)
	return err
}

// itemPrice is the memory that an artifact takes in an answer, beside its path.
const itemPrice = 512

type countedKey struct{}

// Counted returns a context in which the manifests that are read count as the memory of a request:
// reserve is called with bytes before they are read, and with a negative number when they are not
// needed any longer.
func Counted(ctx context.Context, reserve func(bytes int64) error) context.Context {
	return context.WithValue(ctx, countedKey{}, workspace.Reserve(reserve))
}

// Reserve counts bytes of memory as Counted says; without Counted it counts nothing.
func Reserve(ctx context.Context, bytes int64) error {
	if reserve, ok := ctx.Value(countedKey{}).(workspace.Reserve); ok {
		return reserve(bytes)
	}
	return nil
}

func reserveOf(ctx context.Context) workspace.Reserve {
	return func(bytes int64) error { return Reserve(ctx, bytes) }
}

// sameRequest returns fault.IdempotencyMismatch unless the exec that has the key of a request is of
// the same request.
func (r *Runner) sameRequest(taken audit.Record, req Request) error {
	equal, known := r.cfg.Key.Compare(taken.RequestDigest, req.Digest)
	if equal {
		return nil
	}
	e := fault.New(fault.IdempotencyMismatch, "this Idempotency-Key was used for another request, which became exec %s; choose a new key",
		taken.ExecID)
	if !known {
		e = fault.New(fault.IdempotencyMismatch,
			"this Idempotency-Key was used for exec %s, and this node cannot tell whether its request was the same: "+
				"another key digested it; choose a new Idempotency-Key, and give all nodes the same audit.hmac_key_file", taken.ExecID)
	}
	e.ExecID = taken.ExecID
	return e
}

// refusalOf is the error of the first request if its job certainly never ran; nil if there is a
// result.
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

func (r *Runner) inline(ctx context.Context, record audit.Record, stream string) (begin []byte, cut bool, err error) {
	f, size, err := r.OpenOutput(ctx, record, stream)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, InlineBytes))
	return text(b), size > InlineBytes, err
}

// Artifacts is the artifacts of an exec, open for reading by many calls that share one read of the
// manifest. The caller must call Close; files that were opened stay open. Not safe for concurrent
// use.
type Artifacts interface {
	List() ArtifactList

	// Open opens one regular file that the manifest lists; fault.UnknownArtifact for anything else.
	// The content is compared with the manifest before Open returns: fault.ArtifactAltered. A Read
	// fails when the file is changed later.
	Open(ctx context.Context, path string) (io.ReadSeekCloser, Artifact, error)

	Close() error
}

// Artifacts opens the artifacts of an exec; fault.ArtifactsPending while it runs. An exec that
// never ran has none. The memory of the manifest counts until Close; see Counted.
func (r *Runner) Artifacts(ctx context.Context, record audit.Record) (Artifacts, error) {
	project, err := r.ended(record)
	if err != nil {
		return nil, err
	}
	if project == nil {
		return &artifacts{execID: record.ExecID}, nil
	}
	left := &artifacts{execID: record.ExecID}
	err = admission.Do(ctx, func() (err error) {
		left.files, err = project.Artifacts(record.ExecID, record.ManifestDigest, reserveOf(ctx))
		return err
	})
	if err != nil {
		return nil, err
	}
	return left, nil
}

// ended returns the project of an exec that has ended; nil for an exec without a manifest, which
// never ran.
func (r *Runner) ended(record audit.Record) (*workspace.Project, error) {
	if !record.Status.Final() {
		return nil, fault.New(fault.ArtifactsPending, "exec %s is %s; its artifacts are collected when it has ended", record.ExecID,
			record.Status)
	}
	if record.ManifestDigest == "" {
		return nil, nil
	}
	return r.cfg.Workspace.Existing(record.ProjectID)
}

// artifacts implements Artifacts; files is nil for an exec that never ran.
type artifacts struct {
	execID string
	files  *workspace.Artifacts
}

func (a *artifacts) List() ArtifactList {
	if a.files == nil {
		return ArtifactList{}
	}
	m := a.files.Manifest
	list := ArtifactList{Items: artifactsOf(m), TotalBytes: m.TotalBytes, Truncated: m.Truncated}
	list.LeftOut = omittedOf(m)
	return list
}

func (a *artifacts) Open(ctx context.Context, path string) (io.ReadSeekCloser, Artifact, error) {
	unknown := fault.New(fault.UnknownArtifact, "exec %s left no regular file %q; see its list of artifacts", a.execID, path)
	if a.files == nil {
		return nil, Artifact{}, unknown
	}
	file, entry, err := a.files.Open(ctx, path)
	if fault.Is(err, fault.UnknownArtifact) {
		return nil, Artifact{}, unknown
	}
	if err != nil {
		return nil, Artifact{}, err
	}
	return file, artifactOf(entry), nil
}

func (a *artifacts) Close() error {
	if a.files == nil {
		return nil
	}
	return a.files.Close()
}

// OpenOutput opens the kept part of "stdout" or "stderr" and returns its size in bytes; while the
// exec runs, the output so far.
func (r *Runner) OpenOutput(ctx context.Context, record audit.Record, stream string) (io.ReadSeekCloser, int64, error) {
	if live, size := r.outputs.Open(record.ExecID, stream); live != nil {
		return live, size, nil
	}
	if !record.Status.Final() || record.ManifestDigest == "" {
		return inMemory{bytes.NewReader(nil)}, 0, nil
	}
	name := workspace.StdoutName
	if stream == "stderr" {
		name = workspace.StderrName
	}
	f, file, err := r.OpenPublished(ctx, record, name)
	return f, file.Size, err
}

// inMemory is content that needs no file.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// OpenPublished opens a file of core-api, such as stdout.txt or manifest.json, of an exec that has
// ended, under the rules of Artifacts.Open.
func (r *Runner) OpenPublished(ctx context.Context, record audit.Record, name string) (io.ReadSeekCloser, Artifact, error) {
	project, err := r.ended(record)
	if err != nil {
		return nil, Artifact{}, err
	}
	if project == nil {
		return nil, Artifact{}, fault.New(fault.UnknownArtifact,
			"exec %s left no %s: its command did not run in its own container, or its end is unknown", record.ExecID, name)
	}
	f, entry, err := project.OpenPublished(ctx, record.ExecID, record.ManifestDigest, name, reserveOf(ctx))
	if err != nil {
		return nil, Artifact{}, err
	}
	return f, Artifact{Path: name, Size: entry.Size, SHA256: entry.SHA256}, nil
}
