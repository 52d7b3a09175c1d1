package remote

import (
	"cmp"
	"context"
	"io"
	"strings"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// execution is the output of a command on its way. The counters are guarded by Hub.mu.
type execution struct{ stdout, stderr stream }

// stream is one of the two.
type stream struct {
	got  int64 // bytes that have arrived, in order
	most int64 // that were asked for
	sink sink
}

// sink is where the output goes. Write does not wait for anybody.
type sink interface {
	io.Writer
	io.StringWriter
}

// take counts n bytes that begin at an offset, and says how many of them have come before. What is missing, or more than was asked for, ends
// the link.
func (s *stream) take(offset, n int64) (skip int64, err error) {
	switch {
	case offset > s.got:
		return 0, broken("output is missing: %d bytes have come, and what follows begins at %d", s.got, offset)
	case offset+n > s.most:
		return 0, broken("a command gives back more than the %d bytes that were asked for", s.most)
	}
	skip = min(s.got-offset, n)
	s.got = max(s.got, offset+n)
	return skip, nil
}

// cut is the part of a text that begins at an offset which fits into what was asked for. A runner that knows no max_stdout gives back all.
func (s *stream) cut(text string, offset int64) string {
	return text[:min(int64(len(text)), max(0, s.most-offset))]
}

// end takes the rest of both streams.
func (e *execution) end(r *wire.ExecResult) (flush func() error, err error) {
	r.Stdout, r.Stderr = e.stdout.cut(r.Stdout, r.StdoutAt), e.stderr.cut(r.Stderr, r.StderrAt)
	fromOut, err := e.stdout.take(r.StdoutAt, int64(len(r.Stdout)))
	if err != nil {
		return nil, err
	}
	fromErr, err := e.stderr.take(r.StderrAt, int64(len(r.Stderr)))
	if err != nil {
		return nil, err
	}
	if r.StdoutBytes < e.stdout.got || r.StderrBytes < e.stderr.got {
		return nil, broken("a command gave back more than it says that it has written")
	}
	return func() error {
		_, err := e.stdout.sink.WriteString(r.Stdout[fromOut:])
		if err == nil {
			_, err = e.stderr.sink.WriteString(r.Stderr[fromErr:])
		}
		return err
	}, nil
}

// Exec runs a command on the user's machine.
func (h *Hub) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	var stdout, stderr strings.Builder
	r, req, err := h.exec(ctx, spec, &stdout, &stderr)
	if err != nil {
		return nil, err
	}
	result := resultOf(r, stdout.String(), stderr.String(), req.m.key.name)
	result.ExecID = spec.ExecID
	return result, nil
}

// ExecTo is Exec whose output goes to the writers as it comes. A slow writer does not slow the command: what it has not taken is kept, up
// to what the spec lets the command give back.
func (h *Hub) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	out, errs := newSpool(stdout), newSpool(stderr)
	r, req, err := h.exec(ctx, spec, out, errs)
	err = cmp.Or(err, out.finish(ctx, err == nil), errs.finish(ctx, err == nil))
	if err != nil {
		return nil, err
	}
	result := resultOf(r, "", "", req.m.key.name)
	result.ExecID = spec.ExecID
	return result, nil
}

func (h *Hub) exec(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr sink) (*wire.ExecResult, *request, error) {
	body, err := h.commandOf(spec)
	if err != nil {
		return nil, nil, err
	}
	req, err := h.do(ctx, call{
		id: spec.ExecID, op: wire.TypeExec, path: body.Dir, body: body, user: spec.User, changes: true,
		within: spec.TimeoutWithin(maxTimeout) + h.cfg.Patience,
		exec:   &execution{stdout: stream{most: body.MaxStdout, sink: stdout}, stderr: stream{most: body.MaxStderr, sink: stderr}},
	})
	if err != nil {
		return nil, nil, err
	}
	r := req.answer.(*wire.ExecResult)
	if r.Canceled {
		return nil, nil, fault.New(fault.OutcomeUnknown, "%s was stopped and has killed the command: what it had done by then is done", req.m.title())
	}
	return r, req, nil
}

// maxTimeout is the longest timeout that a message carries.
const maxTimeout = wire.MaxTimeout * time.Second

// commandOf checks a spec and makes the message of it.
func (h *Hub) commandOf(spec sandbox.ExecSpec) (*wire.Exec, error) {
	if spec.Dir == "" {
		spec.Dir = sandbox.Root
	}
	if err := h.where("exec", spec.Dir); err != nil {
		return nil, err
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	switch {
	case len(spec.Args) > wire.MaxArgs:
		return nil, fault.BadField("args", "has %d arguments, more than the %d that are sent to a user's machine", len(spec.Args), wire.MaxArgs)
	case len(spec.Env) > wire.MaxEnv:
		return nil, fault.BadField("env", "has %d variables, more than the %d that are sent to a user's machine", len(spec.Env), wire.MaxEnv)
	case spec.ExecID != "" && !wire.ValidID(spec.ExecID):
		return nil, fault.BadField("exec_id", "must be 1 to %d letters, digits, dots, underscores, dashes", wire.MaxID)
	}
	body := &wire.Exec{
		Command: spec.Command, Shell: spec.Shell, Dir: spec.Dir, Env: spec.Env, Timeout: spec.TimeoutWithin(maxTimeout).Seconds(), UserID: spec.User.ID,
		MaxStdout: sandbox.OutputBound(spec.MaxStdout), MaxStderr: sandbox.OutputBound(spec.MaxStderr),
	}
	if !spec.Shell {
		body.Args = spec.Args
	}
	body.SetStdin(spec.Stdin)
	return body, nil
}
