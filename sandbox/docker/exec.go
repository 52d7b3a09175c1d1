package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"secbox/engine"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner/diskwatch"
	"secbox/sandbox"
	"secbox/sandbox/search"
)

// diskKill is the cause of a command's end when the disk watcher kills it. The result reports it,
// not an error.
type diskKill struct{ error }

// firstScan is how long a command waits for the first scan of the disk before it starts.
const firstScan = 10 * time.Millisecond

// startTries is how many containers are tried for a command. A container that ends before it gets
// the command was ended from outside.
const startTries = 3

// Exec runs a command in the user's container.
func (s *Sandbox) Exec(ctx context.Context, spec sandbox.ExecSpec) (*sandbox.ExecResult, error) {
	return sandbox.Collect(ctx, s, spec)
}

// ExecTo runs a command whose output goes to the writers.
func (s *Sandbox) ExecTo(ctx context.Context, spec sandbox.ExecSpec, stdout, stderr io.Writer) (*sandbox.ExecResult, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	var input *begunReader
	if spec.StdinFrom != nil {
		input = &begunReader{r: spec.StdinFrom}
		spec.StdinFrom = input
	}
	var result *sandbox.ExecResult
	err := s.do(ctx, spec.User, func(ctx context.Context, u *userEntry) error {
		if err := s.cfg.Disk.Room(); err != nil {
			return err
		}
		for tries := 1; ; tries++ {
			retry, err := false, error(nil)
			result, retry, err = s.exec(ctx, u, spec, stdout, stderr)
			if !retry || tries == startTries || input != nil && input.begun.Load() {
				return err
			}
		}
	})
	return result, err
}

// begunReader records that it was read: its content cannot be given to another container.
type begunReader struct {
	r     io.Reader
	begun atomic.Bool
}

func (b *begunReader) Read(p []byte) (int, error) {
	b.begun.Store(true)
	return b.r.Read(p)
}

// exec runs the command once. retry: its container ended before it got the command, and another
// container can be started.
func (s *Sandbox) exec(ctx context.Context, u *userEntry, spec sandbox.ExecSpec, stdout, stderr io.Writer) (_ *sandbox.ExecResult,
	retry bool, _ error,
) {
	c, err := s.acquire(ctx, u)
	if err != nil {
		return nil, false, err
	}
	defer s.release(c)
	if spec.ImageID != "" && spec.ImageID != c.image.ID { // the audit row names another image
		return nil, false, sandbox.Busy("the sandbox has just moved to another image, and nothing was run; try again")
	}
	dir, err := s.dir(ctx, c, spec.Dir)
	if err != nil {
		select {
		case <-c.resident.Done(): // its directory was closed
			return nil, ctx.Err() == nil, err
		default:
			return nil, false, err
		}
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := s.cfg.Disk.Begin(diskwatch.Writer{
		Project: c.project, Open: c.unlinked, Kill: func(why error) { cancel(diskKill{why}) },
	})
	defer watched.End()
	watched.Ready(firstScan)
	watched.Start()
	job := s.job(spec, dir, c.wanted.MaxTimeout)
	exit, err := c.resident.Run(within, job, &output{w: stdout, left: job.MaxStdout}, &output{w: stderr, left: job.MaxStderr})
	if err != nil {
		return lost(ctx, within, spec, err)
	}
	if exit.NoDir {
		return nil, false, &fs.PathError{Op: "chdir", Path: spec.Dir, Err: fs.ErrNotExist}
	}
	if exit.Killed && ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	return c.result(within, spec, exit), false, nil
}

// lost returns the outcome of a command whose container ended before the command did.
func lost(ctx, within context.Context, spec sandbox.ExecSpec, err error) (*sandbox.ExecResult, bool, error) {
	lost, ok := errors.AsType[*engine.RunError](err)
	if !ok {
		return nil, false, err // the command never started
	}
	var kill diskKill
	switch {
	case !lost.Started:
		return nil, ctx.Err() == nil, errors.Join(ctx.Err(), err)
	case ctx.Err() != nil && lost.Dead:
		return nil, false, ctx.Err()
	case lost.Dead && errors.As(context.Cause(within), &kill):
		return &sandbox.ExecResult{ExitCode: 137, Detail: kill.Error(), DiskLimit: true, ExecID: spec.ExecID}, false, nil
	}
	return nil, false, errors.Join(ctx.Err(), fault.Wrap(fault.OutcomeUnknown, err,
		"the sandbox's container ended while the command ran: %s; the next command gets another container", fault.From(lost.Err).Message))
}

// dir returns where a command starts, as its container sees it. Directories on this machine are
// checked here; one in the home is left to init, which reports a missing directory in any case.
func (s *Sandbox) dir(ctx context.Context, c *userContainer, dir string) (string, error) {
	if dir == HomePath || strings.HasPrefix(dir, HomePath+"/") {
		below, err := sandbox.Clean("chdir", dir, HomePath)
		return path.Join(HomePath, below), err
	}
	shared, below, err := s.files(c.dir).Dir(ctx, dir)
	return path.Join(cmp.Or(shared.Path, sandbox.Root), below), err
}

func (s *Sandbox) job(spec sandbox.ExecSpec, dir string, maxTimeout time.Duration) engine.Job {
	argv := append([]string{spec.Command}, spec.Args...)
	if spec.Shell {
		argv = []string{shell, "-c", spec.Command}
	}
	if spec.Command == search.Command && !spec.Shell {
		argv = append([]string{engine.InitPath, search.Verb}, spec.Args...)
	}
	env := map[string]string{"HOME": HomePath, sandbox.WorkspaceVariable: sandbox.Root}
	for _, kv := range spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	timeout := spec.TimeoutWithin(maxTimeout)
	return engine.Job{
		Argv: argv, Env: env, Cwd: dir, Stdin: spec.Input(), Signals: spec.Signals, Timeout: timeout, Grace: policy.KillGrace(timeout),
		MaxStdout: sandbox.OutputBound(spec.MaxStdout), MaxStderr: sandbox.OutputBound(spec.MaxStderr),
		OnConnection: spec.OnConnection,
	}
}

func (c *userContainer) result(within context.Context, spec sandbox.ExecSpec, exit engine.Exit) *sandbox.ExecResult {
	r := &sandbox.ExecResult{
		ExitCode: exit.Code, TimedOut: exit.TimedOut, StdoutBytes: exit.StdoutBytes, StderrBytes: exit.StderrBytes, ExecID: spec.ExecID,
	}
	var kill diskKill
	switch {
	case exit.TimedOut:
		r.ExitCode = -1
		if exit.Signal != 9 {
			r.Ended = &exit.Code
		}
	case exit.Killed && errors.As(context.Cause(within), &kill):
		r.Detail, r.DiskLimit = kill.Error(), true
	case exit.NoRoom:
		r.Detail = fmt.Sprintf("not started: the sandbox's commands have %d processes, which is the most (policy pids)",
			c.wanted.Limits.PIDs)
	case exit.StartError != "":
		r.Detail = "not started: " + exit.StartError
	case exit.Outside:
		r.Detail = "killed from outside: another command of this sandbox, or its host, killed the process that ran it"
	case exit.Signal == 9 && exit.OOMKills > 0:
		r.OOMKilled = true
		r.Detail = fmt.Sprintf("killed for memory: all commands of this sandbox together have %d MB (policy memory_mb)",
			c.wanted.Limits.MemoryMB)
	case exit.Signal == 7 && c.wanted.Limits.ShmMB >= c.wanted.Limits.MemoryMB: // /dev/shm is never full
		r.Detail = fmt.Sprintf("ended by SIGBUS: /tmp was full at %d MB (policy tmp_mb), or a file that it had mapped was cut",
			c.wanted.Limits.TmpMB)
	case exit.Signal == 7:
		r.Detail = fmt.Sprintf("ended by SIGBUS: /dev/shm was full at %d MB (policy shm_mb), or /tmp at %d MB (policy tmp_mb), or a file "+
			"that it had mapped was cut",
			c.wanted.Limits.ShmMB, c.wanted.Limits.TmpMB)
	case exit.Signal == 9:
		r.Detail = "killed by a signal of its caller, or from within the sandbox"
	case exit.OOMKills > 0:
		r.Detail = fmt.Sprintf("while it ran, %d processes of this sandbox were killed for memory; all together have %d MB (policy memory_mb)",
			exit.OOMKills, c.wanted.Limits.MemoryMB)
	}
	return r
}

// output limits a caller's writer: it gets at most left bytes, even if the container sends more,
// and is not called after an error.
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
