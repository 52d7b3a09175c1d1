package remote

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// execution collects the output of a command. Guarded by Hub.mu.
type execution struct{ stdout, stderr stream }

// stream is the state of one of the two streams.
type stream struct {
	got  int64 // bytes received, without gaps
	most int64 // bytes that the request asked for
	sink sink
}

// sink receives the output. Write must not block.
type sink interface {
	io.Writer
	io.StringWriter
}

// take counts n bytes that begin at an offset, and returns how many of them are known already. A
// gap, or more than was asked for, is a protocol error.
func (s *stream) take(offset, n int64) (skip int64, err error) {
	switch {
	case offset > s.got:
		return 0, protocolError("output is missing: %d bytes have arrived, and the next ones begin at %d", s.got, offset)
	case offset+n > s.most:
		return 0, protocolError("a command sent more output than the %d bytes that were asked for", s.most)
	}
	skip = min(s.got-offset, n)
	s.got = max(s.got, offset+n)
	return skip, nil
}

// cut returns the part of a text, which begins at an offset, that was asked for. A runner that does
// not know max_stdout sends everything.
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
		return nil, protocolError("a command sent more output than it reports")
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
	result, err := h.exec(ctx, spec, &stdout, &stderr)
	if err != nil {
		return nil, err
	}
	result.Stdout, result.Stderr = stdout.String(), stderr.String()
	return result, nil
}

// ExecTo is Exec with the output going to the writers as it arrives. A slow writer does not slow
// the command: a spool keeps the output, at most as much as the spec lets the command give back.
func (h *Hub) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	out, errs := newSpool(stdout), newSpool(stderr)
	result, err := h.exec(ctx, spec, out, errs)
	if err = cmp.Or(err, out.finish(), errs.finish()); err != nil {
		return nil, err
	}
	return result, nil
}

func (h *Hub) exec(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr sink) (*sandbox.ExecResult, error) {
	body, err := h.execMessage(spec)
	if err != nil {
		return nil, err
	}
	var in *input
	if body.Input {
		hello, err := h.helloOf(ctx, spec.User)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(hello.Can, wire.CanInput) {
			return nil,
				fault.New(fault.Unsupported, "the runner %q cannot give a running command input or signals; update secbox on that machine",
					hello.Name)
		}
		in = newInput()
	}
	req, err := h.do(ctx, call{
		id: spec.ExecID, op: wire.TypeExec, path: body.Dir, body: body, user: spec.User,
		timeout: spec.TimeoutWithin(maxTimeout) + h.cfg.RequestTimeout,
		input:   in, stdin: spec.Input(), signals: spec.Signals,
		exec: &execution{stdout: stream{most: body.MaxStdout, sink: stdout}, stderr: stream{most: body.MaxStderr, sink: stderr}},
	})
	if err != nil {
		return nil, err
	}
	r := req.answer.(*wire.ExecResult)
	if r.Canceled {
		return nil, fault.New(fault.OutcomeUnknown, "%s was stopped and killed the command, which may be done in part", req.m.title())
	}
	result := resultOf(r, "", "", req.m.key.name)
	result.ExecID = spec.ExecID
	return result, nil
}

// maxTimeout is the longest timeout that a message carries.
const maxTimeout = wire.MaxTimeout * time.Second

// execMessage checks a spec and returns its message.
func (h *Hub) execMessage(spec sandbox.ExecSpec) (*wire.Exec, error) {
	if spec.Dir == "" {
		spec.Dir = sandbox.Root
	}
	if err := h.checkPath("exec", spec.Dir); err != nil {
		return nil, err
	}
	if err := spec.Check(); err != nil {
		return nil, err
	}
	switch {
	case len(spec.Args) > wire.MaxArgs:
		return nil, fault.BadField("args", "has %d arguments, more than the %d that are sent to a user's machine", len(spec.Args),
			wire.MaxArgs)
	case len(spec.Env) > wire.MaxEnv:
		return nil, fault.BadField("env", "has %d variables, more than the %d that are sent to a user's machine", len(spec.Env),
			wire.MaxEnv)
	case spec.ExecID != "" && !wire.ValidID(spec.ExecID):
		return nil, fault.BadField("exec_id", "must be 1 to %d letters, digits, dots, underscores, dashes", wire.MaxID)
	}
	body := &wire.Exec{
		Command: spec.Command, Shell: spec.Shell, Dir: spec.Dir, Env: spec.Env, Timeout: spec.TimeoutWithin(maxTimeout).Seconds(),
		UserID:    spec.User.ID,
		MaxStdout: sandbox.OutputBound(spec.MaxStdout), MaxStderr: sandbox.OutputBound(spec.MaxStderr),
	}
	if !spec.Shell {
		body.Args = spec.Args
	}
	if body.Input = spec.StdinFrom != nil || spec.Signals != nil; !body.Input {
		body.SetStdin(spec.Stdin)
	}
	return body, nil
}
