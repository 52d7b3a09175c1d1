package machine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/process"
	"secbox/sandbox/remote/wire"
)

// A little output waits for more before it is sent: most commands end before, and are one message each way.
const (
	flushAfter = 20 * time.Millisecond
	flushBytes = wire.MaxOutput / 2
)

// killedCode is the exit code of a command that was killed because nobody wants its result any more, as a shell would give it.
const killedCode = 137

// exec runs a command. Its output is kept until core-api has the result.
func (m *Machine) exec(r *request, spec *wire.Exec) (answer, func()) {
	refuse := func(err error) (answer, func()) {
		told := failureOf(r, err)
		m.refusals.warn("command not started", "id", r.id, "program", program(spec), "why", told.Message)
		return one{wire.TypeError, told}, func() {}
	}
	if err := sandbox.CheckEnv(spec.Env); err != nil {
		return refuse(err)
	}
	leave, err := place(r.ctx, m.commands)
	if err != nil {
		return refuse(err)
	}
	defer leave()
	if m.keeper.full() { // by now: others have written while it waited for its turn
		return refuse(fault.New(fault.SandboxBusy, "too much output waits on the runner to be taken"))
	}
	_, below, err := m.files.Dir(spec.Dir)
	if err != nil {
		return refuse(err)
	}

	flush := newFlusher(func() { m.journal.wrote(r) })
	stdout := &output{keeper: m.keeper, limit: sandbox.OutputBound(spec.MaxStdout), grown: flush.grown}
	stderr := &output{keeper: m.keeper, limit: sandbox.OutputBound(spec.MaxStderr), grown: flush.grown}
	release := func() {
		stdout.drop()
		stderr.drop()
	}
	m.journal.writes(r, stdout, stderr)
	m.log.Info("command", "id", r.id, "program", program(spec), "bytes", length(spec), "dir", brief(spec.Dir))
	since := time.Now()
	result, err := m.processes.Run(r.ctx, process.Spec{
		Argv: argv(m.shell, spec), Dir: filepath.Join(m.path, filepath.FromSlash(below)), Env: m.environment(spec.Env),
		Stdin: spec.Stdin, Timeout: seconds(spec.Timeout),
		Stdout: stdout, Stderr: stderr, MaxStdout: stdout.limit, MaxStderr: stderr.limit,
	})
	flush.stop()
	took := time.Since(since).Round(time.Millisecond)
	a := &ran{stdout: stdout, stderr: stderr}
	switch {
	case err == nil:
		a.result = wire.ExecResult{
			ExitCode: result.ExitCode, TimedOut: result.TimedOut, Detail: result.Detail,
			StdoutBytes: result.StdoutBytes, StderrBytes: result.StderrBytes,
		}
		m.log.Info("command ended", "id", r.id, "exit_code", result.ExitCode, "timed_out", result.TimedOut, "took", took)
	case r.ctx.Err() != nil:
		cause := context.Cause(r.ctx)
		a.result = wire.ExecResult{ExitCode: killedCode, Canceled: !errors.Is(cause, errStopped), Detail: "the command was killed: " + cause.Error()}
		if fault.Is(err, fault.OutcomeUnknown) { // not all of it
			a.result.Detail = fault.From(err).Message
		}
		m.log.Info("command killed", "id", r.id, "why", cause, "took", took)
	case fault.Is(err, fault.OutcomeUnknown): // it was killed from outside, with all that it had started, or cannot be killed
		a.result = wire.ExecResult{ExitCode: killedCode, Detail: fault.From(err).Message}
		m.log.Warn("command lost", "id", r.id, "error", err, "took", took)
	case errors.Is(err, process.ErrNoDir): // it was there a moment ago
		release()
		return refuse(&fs.PathError{Op: "chdir", Path: spec.Dir, Err: fs.ErrNotExist})
	default:
		release()
		return refuse(err)
	}
	return a, release
}

// ran is the answer of a command.
type ran struct {
	stdout, stderr *output
	result         wire.ExecResult
}

func (a *ran) message(_ int, sent [2]int64) (wire.Type, any, bool) {
	e := a.result
	var out, err string
	out, e.StdoutAt, e.StdoutBytes = a.rest(&e, a.stdout, sent[0], e.StdoutBytes)
	err, e.StderrAt, e.StderrBytes = a.rest(&e, a.stderr, sent[1], e.StderrBytes)
	e.SetOutput(out, err)
	return wire.TypeExecResult, &e, false
}

// rest is what is left of a stream, where that begins, and how much was written in all.
func (a *ran) rest(e *wire.ExecResult, o *output, sent, written int64) (rest string, at, all int64) {
	total, _, lost := o.sizes()
	if lost && e.Detail == "" {
		e.Detail = "a part of the output is missing: it could not be kept on the user's machine"
	}
	all = max(written, total)
	if sent < 0 { // nobody waits for it
		return "", 0, all
	}
	return string(o.from(sent, restBytes)), sent, all
}

// flusher says that there is output to be sent: at once when it is much, else after a little while. Safe for concurrent use.
type flusher struct {
	send func()

	mu    sync.Mutex
	timer *time.Timer // nil: not running
	fresh int         // bytes since the last sending
	over  bool
}

func newFlusher(send func()) *flusher { return &flusher{send: send} }

func (f *flusher) grown(bytes int) {
	f.mu.Lock()
	f.fresh += bytes
	now := f.fresh >= flushBytes && !f.over
	switch {
	case now:
		f.fresh = 0
	case f.timer == nil && !f.over:
		f.timer = time.AfterFunc(flushAfter, f.late)
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

// stop is called when the command has ended: its result says that there is more.
func (f *flusher) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.timer != nil {
		f.timer.Stop()
	}
}

// argv is what is started.
func argv(shell string, spec *wire.Exec) []string {
	if spec.Shell {
		return process.Line(shell, spec.Command)
	}
	return append([]string{spec.Command}, spec.Args...)
}

// environment is that of a command: the runner's own without what commands must not see, and what the request adds.
func (m *Machine) environment(more []string) []string {
	env := sandbox.Inherited(os.Environ())
	env = append(env, sandbox.WorkspaceVariable+"="+m.path)
	return append(env, more...)
}

// seconds is the time-out of a command.
func seconds(s float64) time.Duration {
	if s <= 0 {
		return sandbox.DefaultTimeout
	}
	return time.Duration(s * float64(time.Second))
}

// program is what the log says of a command: the rest of its line may hold secrets.
func program(spec *wire.Exec) string {
	if spec.Shell {
		return "(shell)"
	}
	return brief(spec.Command)
}

func length(spec *wire.Exec) int {
	n := len(spec.Command)
	for _, a := range spec.Args {
		n += 1 + len(a)
	}
	return n
}
