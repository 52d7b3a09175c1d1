package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"secbox/diskwatch"
	"secbox/engine"
	"secbox/fault"
	"secbox/sandbox"
)

// command is one that runs.
type command struct{ cancel context.CancelCauseFunc }

// killedFor ends a command whose result says why; it is no error of the call.
type killedFor struct {
	detail string
	disk   bool // the disk's watchdog did it
}

func (k *killedFor) Error() string { return k.detail }

// firstLook is for how long a command waits for the first look at what lies on the disk before it.
const firstLook = 10 * time.Millisecond

// startTries is how many containers are tried for a command: they end before they are given it only when somebody outside ends them.
const startTries = 3

// Exec runs a command in the user's container.
func (s *Sandbox) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	return sandbox.Collect(ctx, s, spec)
}

// ExecTo runs a command whose output goes to the writers.
func (s *Sandbox) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	if err := sandbox.CheckSpec(spec); err != nil {
		return nil, err
	}
	var result *sandbox.ExecResult
	err := s.do(ctx, spec.User, func(ctx context.Context, b *box) error {
		if err := s.cfg.Disk.Room(); err != nil {
			return err
		}
		for tries := 1; ; tries++ {
			again, err := false, error(nil)
			result, again, err = b.exec(ctx, spec, stdout, stderr)
			if !again || tries == startTries {
				return err
			}
		}
	})
	return result, err
}

// exec runs it once. again: its container had ended before it was given the command, and there is another one to be had.
func (b *box) exec(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (_ *sandbox.ExecResult, again bool, _ error) {
	l, err := b.acquire(ctx)
	if err != nil {
		return nil, false, err
	}
	defer b.release(l)
	if spec.ImageID != "" && spec.ImageID != l.image.ID { // its row would not be true
		e := fault.New(fault.SandboxBusy, "the sandbox has just been moved to another image, and nothing was run; try again")
		e.RetryAfter = time.Second
		return nil, false, e
	}
	dir, err := b.s.dir(l, spec.Dir)
	if err != nil {
		select {
		case <-l.resident.Done(): // and its place was given up
			return nil, ctx.Err() == nil, err
		default:
			return nil, false, err
		}
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &command{cancel: cancel}
	b.s.mu.Lock()
	l.running[c] = true
	b.s.mu.Unlock()
	defer func() {
		b.s.mu.Lock()
		delete(l.running, c)
		b.s.mu.Unlock()
	}()
	watched := b.s.cfg.Disk.Begin(diskwatch.Writer{
		Project: l.project, Open: l.unlinked, Kill: func(why error) { cancel(&killedFor{why.Error(), true}) },
	})
	defer watched.End()
	watched.Ready(firstLook)
	watched.Start()
	exit, err := l.resident.Run(within, b.s.job(spec, dir, l.wanted), &output{w: stdout, left: sandbox.OutputBound(spec.MaxStdout)}, &output{w: stderr, left: sandbox.OutputBound(spec.MaxStderr)})
	if err != nil {
		return b.lost(ctx, within, spec, err)
	}
	if exit.NoDir {
		return nil, false, &fs.PathError{Op: "chdir", Path: spec.Dir, Err: fs.ErrNotExist}
	}
	if exit.Killed && ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	return l.result(within, spec, exit), false, nil
}

// lost is a command without an exit: its container is gone.
func (b *box) lost(ctx, within context.Context, spec sandbox.ExecSpec, err error) (*sandbox.ExecResult, bool, error) {
	var lost *engine.RunError
	if !errors.As(err, &lost) {
		return nil, false, err // it was never started
	}
	var why *killedFor
	switch {
	case !lost.Started:
		return nil, ctx.Err() == nil, errors.Join(ctx.Err(), err)
	case ctx.Err() != nil && lost.Dead:
		return nil, false, ctx.Err()
	case lost.Dead && errors.As(context.Cause(within), &why):
		return &sandbox.ExecResult{ExitCode: 137, Detail: why.detail, DiskLimit: why.disk, ExecID: spec.ExecID}, false, nil
	}
	return nil, false, errors.Join(ctx.Err(), fault.Wrap(fault.OutcomeUnknown, err,
		"the sandbox's container ended while the command ran: %s; the next command gets another container", fault.From(lost.Err).Message))
}

// dir is where a command starts, as its container sees it. What lies on this side is looked at from here; the home is for init, whose word
// on a directory that is not there counts in any case.
func (s *Sandbox) dir(l *live, dir string) (string, error) {
	if dir == HomePath || strings.HasPrefix(dir, HomePath+"/") {
		below, err := sandbox.Clean("chdir", dir, HomePath)
		return path.Join(HomePath, below), err
	}
	root, below, err := s.files(l.place).Dir(dir)
	return path.Join(root, below), err
}

func (s *Sandbox) job(spec sandbox.ExecSpec, dir string, wanted Container) engine.Job {
	argv := append([]string{spec.Command}, spec.Args...)
	if spec.Shell {
		argv = []string{shell, "-c", spec.Command}
	}
	timeout := spec.Timeout
	if timeout <= 0 {
		timeout = sandbox.DefaultTimeout
	}
	if wanted.MaxTimeout > 0 {
		timeout = min(timeout, wanted.MaxTimeout)
	}
	env := map[string]string{"HOME": HomePath, sandbox.WorkspaceVariable: sandbox.Root}
	for _, kv := range spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	return engine.Job{
		Argv: argv, Env: env, Cwd: dir, Stdin: []byte(spec.Stdin), Timeout: timeout,
		MaxStdout: sandbox.OutputBound(spec.MaxStdout), MaxStderr: sandbox.OutputBound(spec.MaxStderr),
	}
}

// result says how a command ended.
func (l *live) result(within context.Context, spec sandbox.ExecSpec, exit engine.Exit) *sandbox.ExecResult {
	r := &sandbox.ExecResult{
		ExitCode: exit.Code, TimedOut: exit.TimedOut, StdoutBytes: exit.StdoutBytes, StderrBytes: exit.StderrBytes, ExecID: spec.ExecID,
	}
	var why *killedFor
	switch {
	case exit.TimedOut:
		r.ExitCode = -1
	case exit.Killed && errors.As(context.Cause(within), &why):
		r.Detail, r.DiskLimit = why.detail, why.disk
	case exit.NoRoom:
		r.Detail = fmt.Sprintf("not started: the sandbox's commands have %d processes, which is the most (policy pids)", l.wanted.Limits.PIDs)
	case exit.StartError != "":
		r.Detail = "not started: " + exit.StartError
	case exit.Outside:
		r.Detail = "killed from outside: another command of this sandbox, or its host, killed the process that ran it"
	case exit.Signal == 9 && exit.OOMKills > 0:
		r.OOMKilled = true
		r.Detail = fmt.Sprintf("killed for memory: all commands of this sandbox together have %d MB (policy memory_mb)", l.wanted.Limits.MemoryMB)
	case exit.Signal == 9:
		r.Detail = "killed by a signal from within the sandbox"
	case exit.OOMKills > 0:
		r.Detail = fmt.Sprintf("while it ran, %d processes of this sandbox were killed for memory; all together have %d MB (policy memory_mb)",
			exit.OOMKills, l.wanted.Limits.MemoryMB)
	}
	return r
}

// output is a caller's writer: it gets no more than was asked for, whatever the container sends, and nothing after an error.
type output struct {
	w    io.Writer
	left int64
}

func (o *output) Write(p []byte) (int, error) {
	take := p[:min(int64(len(p)), o.left)]
	if o.w != nil && len(take) > 0 {
		o.left -= int64(len(take))
		if _, err := o.w.Write(take); err != nil {
			o.w = nil
		}
	}
	return len(p), nil
}
