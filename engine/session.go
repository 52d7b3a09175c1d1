package engine

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"secbox/dockercli"
	"secbox/engine/initproto"
	"secbox/fault"
)

// How long things may take before we stop trusting whoever should have done them.
const (
	startPatience = 90 * time.Second // from `docker run` to init's hello; an engine on a loaded laptop needs seconds
	killGrace     = 3 * time.Second  // from a kill frame to the exit frame; init needs milliseconds
	lateGrace     = 15 * time.Second // beyond the job's deadline, which init enforces itself
	endPatience   = 60 * time.Second // from the exit frame to the CLI's end: the engine's teardown
	closePatience = 10 * time.Second // the same while core-api ends
	deathPatience = 10 * time.Second // for the removal of a container whose end nobody reported

	removePatience = 20 * time.Second // for one `docker rm -f`
	engineCheck    = 2 * time.Second  // for the first sign of whether an engine is there
)

// session is one `docker run` and the conversation with the sandbox-init in it.
type session struct {
	engine *Cold
	name   string // the container's
	proc   *dockercli.Process
	in     *bufio.Reader // what the container sends
	frames *initproto.Reader
	magic  string // of its hello
	log    *slog.Logger

	writing sync.Mutex // guards proc.Stdin: one frame at a time
}

func newSession(c *Cold, name string, args []string) (*session, error) {
	return startSession(c, name, args, initproto.FromInit, initproto.Magic)
}

func startSession(c *Cold, name string, args []string, dir initproto.Direction, magic string) (*session, error) {
	c.hold(name)
	proc, err := c.cfg.CLI.Start(args...)
	if err != nil {
		c.release(name)
		return nil, err
	}
	in := bufio.NewReaderSize(proc.Stdout, readBuffer)
	return &session{
		engine: c, name: name, proc: proc, log: c.cfg.Log, in: in, frames: initproto.NewReader(in, dir), magic: magic,
	}, nil
}

// readBuffer is what a session reads at once, in bytes. Every container that waits has one; a chunk of output is read past it.
const readBuffer = 4 << 10

// hello waits until init has said that it is there.
func (s *session) hello() error {
	t, payload, err := s.frames.Next()
	switch {
	case err != nil:
		return err
	case t != initproto.TypeHello || string(payload) != s.magic:
		return initproto.ErrProtocol
	}
	return nil
}

func (s *session) send(frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.proc.Stdin.Write(frame)
	return err
}

// run speaks the whole conversation. The job is sent only after init's hello: until then it is certain that nothing of it has run.
func (s *session) run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	if err := s.greet(ctx); err != nil {
		s.engine.release(s.name)
		return Exit{}, &RunError{Dead: true, Err: err}
	}
	return s.serve(ctx, job, stdout, stderr, nil)
}

// greet waits for init's hello, which ends the container's start; an error says why there was none, and that nothing has run.
func (s *session) greet(ctx context.Context) error {
	guard := s.guard(ctx, startPatience)
	err := s.hello()
	guard.stop()
	s.engine.started()
	if err != nil || ctx.Err() != nil {
		return s.neverStarted(ctx, err)
	}
	return nil
}

// linger is for how long a container is left alone after its job's end. All that remains of it is a sandbox-init that waits for its
// lease to end; the engine's work of taking it down would slow the answer, which takes some 3 ms from here.
const linger = 10 * time.Millisecond

// serve gives the job to an init that has said hello and sees it to its end. Where somebody else has begun to read from the container,
// stirred tells when he is done with that.
func (s *session) serve(ctx context.Context, job Job, stdout, stderr io.Writer, stirred <-chan struct{}) (Exit, error) {
	exit, err := s.converse(ctx, job, stdout, stderr, stirred)
	if err != nil {
		s.engine.release(s.name)
		return Exit{}, err
	}
	s.engine.teardown.Go(func() {
		s.engine.pause(linger)
		s.end(endPatience)
		s.engine.release(s.name)
	})
	return exit, nil
}

func (s *session) converse(ctx context.Context, job Job, stdout, stderr io.Writer, stirred <-chan struct{}) (Exit, error) {
	frame, err := initproto.AppendJSON(nil, initproto.TypeJob, wireJob(job))
	if err != nil {
		return Exit{}, &RunError{Dead: true, Err: s.neverStarted(ctx, err)}
	}
	guard := s.guard(ctx, deadline(job.Timeout))
	defer guard.stop()
	if err := s.send(frame); err != nil {
		return Exit{}, s.lost(err)
	}
	if job.OnStart != nil {
		job.OnStart()
	}
	credits := make(chan struct{}, initproto.StdinWindow)
	feeding, fed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fed)
		s.feed(job.Stdin, credits, feeding)
	}()
	if stirred != nil {
		<-stirred
	}
	exit, err := s.listen(job, stdout, stderr, credits)
	guard.stop()
	close(feeding)
	select {
	case <-fed:
	default: // it may be stuck in a write: end the lease, and the write with it
		_ = s.proc.Stdin.Close()
		<-fed
	}
	if err != nil {
		return Exit{}, s.lost(err)
	}
	return exit, nil
}

// deadline is when a job that should have been killed by init is killed by us.
func deadline(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 365 * 24 * time.Hour
	}
	return timeout + lateGrace
}

// listen reads frames until the exit.
func (s *session) listen(job Job, stdout, stderr io.Writer, credits chan<- struct{}) (Exit, error) {
	for {
		t, payload, err := s.frames.Next()
		if err != nil {
			return Exit{}, err
		}
		switch t {
		case initproto.TypeStdout:
			_, _ = stdout.Write(payload)
		case initproto.TypeStderr:
			_, _ = stderr.Write(payload)
		case initproto.TypeCredit:
			select {
			case credits <- struct{}{}:
			default:
				return Exit{}, initproto.ErrProtocol // more credit than we ever used up
			}
		case initproto.TypeExit:
			e, err := initproto.DecodeExit(payload)
			if err != nil {
				return Exit{}, err
			}
			return exitOf(e), nil
		case initproto.TypeUnlinked:
			if err := unlinked(job.OnUnlinked, payload); err != nil {
				return Exit{}, err
			}
		default:
			return Exit{}, initproto.ErrProtocol
		}
	}
}

// unlinked passes a report on. One that was not asked for is against the protocol.
func unlinked(to func(Unlinked), payload []byte) error {
	u, err := initproto.DecodeUnlinked(payload)
	if err == nil && to == nil {
		err = initproto.ErrProtocol
	}
	if err == nil {
		to(Unlinked(u))
	}
	return err
}

// feed sends the job's standard input, never further ahead than the window.
func (s *session) feed(stdin []byte, credits <-chan struct{}, done <-chan struct{}) {
	window := initproto.StdinWindow
	frame := make([]byte, 0, min(len(stdin), initproto.MaxChunk)+16)
	for chunk := range slices.Chunk(stdin, initproto.MaxChunk) {
		if window == 0 {
			select {
			case <-credits:
			case <-done:
				return
			}
		} else {
			window--
		}
		frame = initproto.Append(frame[:0], initproto.TypeStdin, chunk)
		if s.send(frame) != nil {
			return
		}
	}
	_ = s.send(initproto.Append(nil, initproto.TypeStdinEnd, nil))
}

// guard kills the job when ctx ends, and the container when that does not help or when the time is over.
func (s *session) guard(ctx context.Context, patience time.Duration) *guard {
	g := &guard{done: make(chan struct{})}
	go func() {
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case <-g.done:
			return
		case <-late.C:
			s.log.Warn("a container did not answer in time and is removed", "container", s.name, "patience", patience)
		case <-ctx.Done():
			go func() { _ = s.send(initproto.Append(nil, initproto.TypeKill, nil)) }()
			select {
			case <-g.done:
				return
			case <-time.After(killGrace):
				s.log.Warn("a container did not obey a kill and is removed", "container", s.name)
			}
		}
		s.engine.await(s.engine.removeForSure(s.name), deathPatience) // ends the CLI, and with it the reading
		select {
		case <-g.done:
		case <-time.After(killGrace):
			s.proc.Kill()
		}
	}()
	return g
}

type guard struct {
	once sync.Once
	done chan struct{}
}

func (g *guard) stop() { g.once.Do(func() { close(g.done) }) }

// end closes the lease and waits for the CLI, which waits for the engine's teardown. When the engine is closed it waits less long.
func (s *session) end(patience time.Duration) {
	_ = s.proc.Stdin.Close()
	ended := false
	wait := func(d time.Duration, hurry <-chan struct{}) {
		late := time.NewTimer(d)
		defer late.Stop()
		select {
		case <-s.proc.Done():
			ended = true
		case <-late.C:
		case <-hurry:
		}
	}
	begun := time.Now()
	wait(patience, s.engine.stop)
	if left := patience - time.Since(begun); !ended && left > 0 {
		wait(min(left, closePatience), nil)
	}
	if !ended {
		s.log.Warn("the docker CLI did not end after its container; ending it", "container", s.name, "patience", patience)
		s.proc.Kill()
		s.engine.removeForSure(s.name)
	}
	_ = s.proc.Wait()
}

// neverStarted tells why there was no hello. What may have been made of the container is removed behind our back: it has no job.
func (s *session) neverStarted(ctx context.Context, err error) error {
	s.end(killGrace)
	said := s.proc.Wait()
	if fault.Is(said, fault.ImageMissing) {
		return said
	}
	removed := s.engine.removeForSure(s.name)
	if s.proc.ExitCode() < 0 || fault.Is(said, fault.EngineUnavailable) {
		s.engine.trouble() // it may still be about to make the container
	}
	if ctx.Err() != nil {
		return fault.Wrap(fault.Internal, context.Cause(ctx), "killed before it started")
	}
	if said != nil && !fault.Is(said, fault.Internal) {
		return said
	}
	gone := s.engine.await(removed, engineCheck) // who cannot remove it could not start it either
	var failed *dockercli.Error
	switch failure := removed.lastErr(); {
	case fault.Is(failure, fault.EngineUnavailable):
		return failure
	case !gone && failure == nil && s.proc.ExitCode() < 0:
		return silent(said)
	case errors.As(said, &failed) && failed.Kind == dockercli.NotStartable:
		return fault.Wrap(fault.Internal, said, "the container could not be started; is there a sandbox-init in the image, and can the engine's runtime start containers at all? `core-api doctor` tells")
	case said != nil:
		return fault.Wrap(fault.Internal, said, "docker could not start the container")
	default:
		return fault.Wrap(fault.Internal, err, "the container's first process is no sandbox-init; rebuild the image")
	}
}

// lost makes sure that a container whose end nobody reported is gone, and tells why the exit is not known.
func (s *session) lost(err error) *RunError {
	removed := s.engine.removeForSure(s.name)
	gone := s.engine.await(removed, deathPatience)
	s.end(killGrace)
	said := s.proc.Wait()
	s.engine.trouble()
	// An engine that ends takes its containers along before its CLIs notice; the attempt to remove ours tells the two apart.
	for _, e := range []error{said, removed.lastErr()} {
		if fault.Is(e, fault.EngineUnavailable) {
			return &RunError{Started: true, Dead: gone, Err: fault.Wrap(fault.EngineUnavailable, e, "the Docker engine went away while the job ran")}
		}
	}
	if said == nil {
		said = err
	}
	if !gone && removed.lastErr() == nil {
		return &RunError{Started: true, Err: silent(said)}
	}
	return &RunError{Started: true, Dead: gone, Err: fault.Wrap(fault.Internal, said,
		"the container ended without a report (exit code %d of the docker CLI): it, or its CLI, was killed from outside", s.proc.ExitCode())}
}

// silent is for an engine that takes what it is told and never answers.
func silent(cause error) error {
	return fault.Wrap(fault.EngineUnavailable, cause, "the Docker engine did not answer in time; check `docker info` on its host")
}

func wireJob(job Job) initproto.Job {
	env := make([]string, 0, len(job.Env))
	for _, name := range slices.Sorted(maps.Keys(job.Env)) {
		env = append(env, name+"="+job.Env[name])
	}
	return initproto.Job{
		Argv: job.Argv, Env: env, Cwd: job.Cwd, TimeoutMS: job.Timeout.Milliseconds(),
		MaxStdout: job.MaxStdout, MaxStderr: job.MaxStderr, ReportUnlinked: job.OnUnlinked != nil,
	}
}

func exitOf(e initproto.Exit) Exit {
	return Exit{
		Code: e.Code, Signal: e.Signal, TimedOut: e.TimedOut, Killed: e.Killed, StartError: e.StartError,
		NoDir: e.NoDir, NoRoom: e.NoRoom, Outside: e.Outside, spent: e.Spent,
		OOMKills: e.OOMKills, PIDsMax: e.PIDsMax, StdoutBytes: e.StdoutBytes, StderrBytes: e.StderrBytes,
		UserCPU: time.Duration(e.UserUS) * time.Microsecond, SystemCPU: time.Duration(e.SystemUS) * time.Microsecond,
		MaxRSSBytes: e.MaxRSSKB * 1024,
	}
}
