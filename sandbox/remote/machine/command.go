package machine

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/process"
	"secbox/sandbox/remote/wire"
)

// A little output waits for more before it is sent: most commands end sooner, and then need one
// message each way.
const (
	flushAfter = 20 * time.Millisecond
	flushBytes = wire.MaxOutput / 2
	// flushAnswer is flushAfter of a command with input, whose output may be an answer.
	flushAnswer = time.Millisecond
)

// killedCode is the exit code of a command that was killed because its result is no longer wanted,
// as in a shell.
const killedCode = 137

// exec runs a command. Its output is kept until core-api has the result.
func (m *Machine) exec(r *request, spec *wire.Exec) (answer, func()) {
	refuse := func(err error) (answer, func()) {
		reply := wireError(r, err)
		m.refusals.warn("command not started", "id", r.id, "program", program(spec), "why", reply.Message)
		return singleMessage{wire.TypeError, reply}, func() {}
	}
	if err := sandbox.CheckEnv(spec.Env); err != nil {
		return refuse(err)
	}
	leave, err := admit(r.ctx, m.commands)
	if err != nil {
		return refuse(err)
	}
	defer leave()
	if m.outputs.full() { // other commands may have written while this one waited
		return refuse(fault.New(fault.SandboxBusy, "too much output waits on the runner for core-api"))
	}
	_, below, err := m.files.Dir(r.ctx, spec.Dir)
	if err != nil {
		return refuse(err)
	}

	argv := append([]string{spec.Command}, spec.Args...)
	if spec.Shell {
		argv = process.Line(m.shell, spec.Command)
	}
	own := []string{sandbox.WorkspaceVariable + "=" + m.path}
	timeout := sandbox.DefaultTimeout
	if spec.Timeout > 0 {
		timeout = time.Duration(spec.Timeout * float64(time.Second))
	}
	flush := &flusher{after: flushAfter, send: func() { m.journal.outputReady(r) }}
	stdout := &output{store: m.outputs, limit: sandbox.OutputBound(spec.MaxStdout), grown: flush.grown}
	stderr := &output{store: m.outputs, limit: sandbox.OutputBound(spec.MaxStderr), grown: flush.grown}
	release := func() {
		stdout.drop()
		stderr.drop()
	}
	var stdin io.Reader = strings.NewReader(spec.Stdin)
	var signals <-chan syscall.Signal
	if r.input != nil {
		stdin, signals = r.input, r.input.signals
		defer r.input.close()
		flush.after = flushAnswer
	}
	m.journal.setOutput(r, stdout, stderr)
	m.log.Info("command", "id", r.id, "program", program(spec), "bytes",
		len(strings.Join(append([]string{spec.Command}, spec.Args...), " ")), "dir", shorten(spec.Dir))
	since := time.Now()
	result, err := m.processes.Run(r.ctx, process.Spec{
		Argv: argv, Dir: filepath.Join(m.path, filepath.FromSlash(below)),
		Env:   slices.Concat(sandbox.Inherited(os.Environ()), own, spec.Env),
		Stdin: stdin, Signals: signals, Timeout: timeout,
		Stdout: stdout, Stderr: stderr, MaxStdout: stdout.limit, MaxStderr: stderr.limit,
	})
	flush.stop()
	took := time.Since(since).Round(time.Millisecond)
	a := &execAnswer{stdout: stdout, stderr: stderr}
	switch {
	case err == nil:
		a.result = wire.ExecResult{
			ExitCode: result.ExitCode, TimedOut: result.TimedOut, Detail: result.Detail,
			StdoutBytes: result.StdoutBytes, StderrBytes: result.StderrBytes,
		}
		m.log.Info("command ended", "id", r.id, "exit_code", result.ExitCode, "timed_out", result.TimedOut, "took", took)
	case r.ctx.Err() != nil:
		cause := context.Cause(r.ctx)
		a.result = wire.ExecResult{
			ExitCode: killedCode, Canceled: !errors.Is(cause, errStopped),
			Detail: "the command was killed: " + cause.Error(),
		}
		if fault.Is(err, fault.OutcomeUnknown) { // a part of it lives on
			a.result.Detail = fault.From(err).Message
		}
		m.log.Info("command killed", "id", r.id, "why", cause, "took", took)
	case fault.Is(err, fault.OutcomeUnknown): // killed from outside, or impossible to kill
		a.result = wire.ExecResult{ExitCode: killedCode, Detail: fault.From(err).Message}
		m.log.Warn("command lost", "id", r.id, "error", err, "took", took)
	case errors.Is(err, process.ErrNoDir): // removed since Dir checked it
		release()
		return refuse(&fs.PathError{Op: "chdir", Path: spec.Dir, Err: fs.ErrNotExist})
	default:
		release()
		return refuse(err)
	}
	return a, release
}

// execAnswer is the answer of a command.
type execAnswer struct {
	stdout, stderr *output
	result         wire.ExecResult
}

func (a *execAnswer) message(_ int, sent [2]int64) (wire.Type, any, bool) {
	e := a.result
	var out, err string
	out, e.StdoutAt, e.StdoutBytes = a.rest(&e, a.stdout, sent[0], e.StdoutBytes)
	err, e.StderrAt, e.StderrBytes = a.rest(&e, a.stderr, sent[1], e.StderrBytes)
	e.SetOutput(out, err)
	return wire.TypeExecResult, &e, false
}

// rest returns the unsent rest of a stream, its offset, and how many bytes the command wrote.
func (a *execAnswer) rest(e *wire.ExecResult, o *output, sent, written int64) (rest string, at, all int64) {
	total, _, lost := o.sizes()
	if lost && e.Detail == "" {
		e.Detail = "a part of the output is missing: it could not be kept on the user's machine"
	}
	all = max(written, total)
	if sent < 0 { // core-api does not wait for it
		return "", 0, all
	}
	return string(o.read(sent, restBytes)), sent, all
}

// flusher announces output: much of it at once, a little after a short while. Safe for concurrent
// use.
type flusher struct {
	send  func()
	after time.Duration // how long a little output waits

	mu    sync.Mutex
	timer *time.Timer // nil: not running
	fresh int         // bytes since the last call of send
	over  bool
}

func (f *flusher) grown(bytes int) {
	f.mu.Lock()
	f.fresh += bytes
	now := f.fresh >= flushBytes && !f.over
	switch {
	case now:
		f.fresh = 0
	case f.timer == nil && !f.over:
		f.timer = time.AfterFunc(f.after, f.late)
	}
	f.mu.Unlock()
	if now {
		f.send()
	}
}

func (f *flusher) late() {
	f.mu.Lock()
	f.timer, f.fresh = nil, 0
	over := f.over
	f.mu.Unlock()
	if !over {
		f.send()
	}
}

// stop is called when the command has ended: its result announces the rest.
func (f *flusher) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.timer != nil {
		f.timer.Stop()
	}
}

// program returns the part of a command for the log: arguments and shell lines may contain secrets.
func program(spec *wire.Exec) string {
	if spec.Shell {
		return "(shell)"
	}
	return shorten(spec.Command)
}
