package engine

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"secbox/engine/dockercli"
	"secbox/engine/initproto"
	"secbox/fault"
)

// Timeouts, after which a container is removed or a CLI killed.
const (
	startTimeout   = 90 * time.Second // from `docker run` to init's hello; an engine on a loaded laptop needs seconds
	killGrace      = 3 * time.Second  // from a kill frame to the exit frame; init needs milliseconds
	lateGrace      = 15 * time.Second // beyond the job's deadline, which init enforces itself
	endTimeout     = 60 * time.Second // from the exit frame to the CLI's end: the engine's teardown
	closeTimeout   = 10 * time.Second // the same while core-api ends
	removalTimeout = 10 * time.Second // for the removal of a container whose end was not reported

	rmTimeout   = 20 * time.Second // for one `docker rm -f`
	engineCheck = 2 * time.Second  // for a first answer of the engine
)

// session is one container and the conversation with the sandbox-init in it.
type session struct {
	engine *Cold
	name   string // the container's
	proc   Process
	in     *bufio.Reader // from the container
	frames *initproto.Reader
	magic  string       // of its hello
	points *mountPoints // of a container for any project; else nil
	copies *copies      // of a container that mounts nothing of its project; else nil
	log    *slog.Logger

	writing sync.Mutex  // guards proc.Stdin(): one frame at a time
	removed atomic.Bool // by remove, before its end was noticed
}

func newSession(c *Cold, container Container) (*session, error) {
	if !container.Copied {
		return startSession(c, container, initproto.FromInit, initproto.Magic)
	}
	s, err := startSession(c, container, initproto.FromInit, initproto.MagicFiles)
	if err == nil {
		s.copies = newCopies(*c.cfg.Copy, container.Spec.User)
	}
	return s, err
}

func startSession(c *Cold, container Container, dir initproto.Direction, magic string) (*session, error) {
	name := container.Name()
	c.held.Store(name, nil)
	proc, err := c.cfg.Driver.Start(container)
	if err != nil {
		c.held.Delete(name)
		return nil, err
	}
	in := bufio.NewReaderSize(proc.Stdout(), readBuffer)
	return &session{
		engine: c, name: name, proc: proc, log: c.cfg.Log, in: in, frames: initproto.NewReader(in, dir), magic: magic,
	}, nil
}

// readBuffer is the size of a session's read buffer, in bytes. It is small because every waiting
// container has one; large chunks of output bypass it.
const readBuffer = 4 << 10

// release ends this process's responsibility for a container that is gone, or that Sweep will
// remove.
func (s *session) release() {
	s.points.remove()
	s.engine.held.Delete(s.name)
}

func (s *session) send(frame []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	_, err := s.proc.Stdin().Write(frame)
	return err
}

// anyProject reports whether the container does not have its project from its start.
func (s *session) anyProject() bool { return s.points != nil || s.copies != nil }

// run starts the container and runs the job. The job is sent only after init's hello: before that,
// nothing of it has run.
func (s *session) run(ctx context.Context, mounts MountSet, job Job, stdout, stderr io.Writer) (Exit, error) {
	err := s.greet(ctx)
	if err == nil {
		if err = s.sendFiles(ctx, mounts); err != nil {
			err = s.notSent(err)
		}
	}
	if err != nil {
		s.release()
		return Exit{}, &RunError{Dead: true, Err: err}
	}
	return s.serve(ctx, job, stdout, stderr, nil)
}

// greet waits for init's hello, which ends the container's start. After an error, nothing has run.
func (s *session) greet(ctx context.Context) error {
	stop := s.guard(ctx, startTimeout)
	t, payload, err := s.frames.Next()
	switch {
	case err != nil:
	case t == initproto.TypeHello && s.magic == initproto.MagicServe && string(payload) == initproto.MagicServe1:
		s.magic = initproto.MagicServe1
	case t == initproto.TypeHello && s.magic == initproto.MagicFiles && string(payload) == initproto.Magic:
		err = errNoFiles
	case t != initproto.TypeHello || string(payload) != s.magic:
		err = initproto.ErrProtocol
	}
	removing := stop() // a hello may come just then: a job would be lost with the container
	s.engine.started()
	if err != nil || removing || ctx.Err() != nil {
		return s.neverStarted(ctx, err)
	}
	return nil
}

// promote makes an init that waits for its job serve many commands. activity is closed when another
// goroutine has stopped reading from the container. Nothing has run after an error, which an init
// that is too old causes, too.
func (s *session) promote(ctx context.Context, activity <-chan struct{}) error {
	stop := s.guard(ctx, killGrace)
	defer stop()
	if err := s.send(initproto.Append(nil, initproto.TypeServe, nil)); err != nil {
		return err
	}
	<-activity
	s.frames, s.magic = initproto.NewReader(s.in, initproto.FromServe), initproto.MagicServe
	t, payload, err := s.frames.Next()
	if err == nil && (t != initproto.TypeHello || string(payload) != s.magic) {
		err = initproto.ErrProtocol
	}
	if stop() && err == nil { // a hello may come just then
		err = initproto.ErrProtocol
	}
	return err
}

// linger is how long a container stays after its job's end. Only its sandbox-init is left, which
// waits for its lease to end. An immediate teardown by the engine would slow the answer, which
// takes some 3 ms from here.
const linger = 10 * time.Millisecond

// serve gives the job to an init that has said hello and waits for its end. activity, if not nil,
// is closed when another goroutine has stopped reading from the container.
func (s *session) serve(ctx context.Context, job Job, stdout, stderr io.Writer, activity <-chan struct{}) (Exit, error) {
	exit, err := s.converse(ctx, job, stdout, stderr, activity)
	if lost, ok := errors.AsType[*RunError](err); ok && !lost.Dead && s.points != nil {
		s.log.Warn("the directories of an exec are detached from a container whose death is not confirmed; its processes keep what they "+
			"have open",
			"container", s.name)
	}
	s.points.detach()
	if err != nil {
		s.release()
		return Exit{}, err
	}
	s.engine.teardown.Go(func() {
		s.engine.pause(linger)
		s.end(endTimeout)
		s.release()
	})
	return exit, nil
}

func (s *session) converse(ctx context.Context, job Job, stdout, stderr io.Writer, activity <-chan struct{}) (Exit, error) {
	defer s.copies.close()
	wire := wireJob(job)
	wire.Files = s.copies.wire()
	frame, err := initproto.AppendJSON(nil, initproto.TypeJob, wire)
	if err != nil {
		return Exit{}, &RunError{Dead: true, Err: s.neverStarted(ctx, err)}
	}
	endLease := func() { _ = s.proc.Stdin().Close() } // it unblocks a write
	conns, err := newConnections(job, func(chunk []byte) error { return s.send(initproto.Append(nil, initproto.TypeNetwork, chunk)) })
	if err != nil {
		return Exit{}, &RunError{Dead: true, Err: s.neverStarted(ctx, err)}
	}
	stop := s.guard(ctx, deadline(job.Timeout))
	defer stop()
	if err := s.send(frame); err != nil {
		conns.close(0, endLease)
		return Exit{}, s.lost(err)
	}
	if job.OnStart != nil {
		job.OnStart()
	}
	var buf []byte
	feed := initproto.NewFeed(job.Stdin, func(t initproto.Type, chunk []byte) error {
		buf = initproto.Append(buf[:0], t, chunk)
		return s.send(buf)
	})
	go feed.Run()
	if activity != nil {
		<-activity
	}
	exit, err := s.listen(job, stdout, stderr, feed, conns, stop)
	stop()
	if err != nil {
		conns.close(0, endLease)
	} else {
		conns.close(closingTimeout, endLease)
	}
	feed.Stop(endLease)
	if err != nil {
		return Exit{}, s.lost(err)
	}
	if err := conns.check(exit); err != nil {
		return Exit{}, &RunError{Started: true, Dead: true, Err: err}
	}
	s.copies.finish(&exit)
	return exit, nil
}

// deadline is when a job is killed that init should have killed at its timeout.
func deadline(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 365 * 24 * time.Hour
	}
	return timeout + lateGrace
}

// listen reads frames until the exit. endJob ends the guard of the job.
func (s *session) listen(job Job, stdout, stderr io.Writer, feed *initproto.Feed, conns *connections, endJob func() bool) (Exit, error) {
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
			if !feed.Credit() {
				return Exit{}, initproto.ErrProtocol
			}
		case initproto.TypeExit:
			e, err := initproto.DecodeExit(payload)
			if err != nil {
				return Exit{}, err
			}
			return exitOf(e), nil
		case initproto.TypeChanges:
			if err := s.copies.take(s, payload, endJob); err != nil {
				return Exit{}, err
			}
		case initproto.TypeNetwork:
			if err := conns.take(payload); err != nil {
				return Exit{}, err
			}
		case initproto.TypeUnlinked:
			if err := unlinked(job.OnUnlinked, payload); err != nil {
				return Exit{}, err
			}
		case initproto.TypeUsage:
			if err := usage(job.OnUsage, payload); err != nil {
				return Exit{}, err
			}
		default:
			return Exit{}, initproto.ErrProtocol
		}
	}
}

// unlinked passes a report on. A report that was not requested violates the protocol.
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

// usage is unlinked for a report of what the container uses.
func usage(to func(Usage), payload []byte) error {
	u, err := initproto.DecodeUsage(payload)
	if err == nil && to == nil {
		err = initproto.ErrProtocol
	}
	if err == nil {
		to(Usage{
			CPU: time.Duration(u.CPUUS) * time.Microsecond, Elapsed: time.Duration(u.ElapsedUS) * time.Microsecond,
			MemoryBytes: u.MemoryBytes,
		})
	}
	return err
}

// guard kills the job when ctx ends, and removes the container when that does not help or the
// timeout ends. It ends with stop, which reports whether the container is being removed. stop is
// safe to call twice.
func (s *session) guard(ctx context.Context, timeout time.Duration) (stop func() (removing bool)) {
	return s.guardUntil(ctx, time.NewTimer(timeout))
}

// guardUntil is guard with a timer for the timeout.
func (s *session) guardUntil(ctx context.Context, late *time.Timer) (stop func() (removing bool)) {
	begun := time.Now()
	done := make(chan struct{})
	var mu sync.Mutex
	var stopped, removing bool
	go func() {
		select {
		case <-done:
			return
		case <-late.C:
			s.log.Warn("a container did not answer in time and is removed", "container", s.name, "patience", time.Since(begun))
		case <-ctx.Done():
			go func() { _ = s.send(initproto.Append(nil, initproto.TypeKill, nil)) }()
			select {
			case <-done:
				return
			case <-time.After(killGrace):
				s.log.Warn("a container ignored a kill and is removed", "container", s.name)
			}
		}
		mu.Lock()
		removing = !stopped
		mu.Unlock()
		if removing {
			s.remove(done, nil)
		}
	}()
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			stopped = true
			late.Stop()
			close(done)
		}
		return removing
	}
}

// remove removes the container, which ends the CLI and so the stream. If the engine does not do
// that, the CLI is killed, unless done or enough is closed first.
func (s *session) remove(done, enough <-chan struct{}) {
	s.removed.Store(true)
	s.engine.await(s.engine.removeUntilGone(s.name), removalTimeout)
	select {
	case <-done:
	case <-enough:
	case <-time.After(killGrace):
		s.proc.Kill()
	}
}

// end closes the lease and waits for the CLI, which waits for the engine's teardown. The wait is
// shorter when the engine is closed.
func (s *session) end(timeout time.Duration) {
	_ = s.proc.Stdin().Close()
	ended := false
	wait := func(d time.Duration, hurry <-chan struct{}) {
		select {
		case <-s.proc.Done():
			ended = true
		case <-time.After(d):
		case <-hurry:
		}
	}
	begun := time.Now()
	wait(timeout, s.engine.stop)
	if left := timeout - time.Since(begun); !ended && left > 0 {
		wait(min(left, closeTimeout), nil)
	}
	if !ended {
		s.log.Warn("a container's connection did not end after the container; ending it", "container", s.name, "patience", timeout)
		s.proc.Kill()
		s.engine.removeUntilGone(s.name)
	}
	_ = s.proc.Wait()
}

// neverStarted returns why there was no hello. A container that was created nonetheless is removed
// in the background: it has no job.
func (s *session) neverStarted(ctx context.Context, err error) error {
	s.end(killGrace)
	said := s.proc.Wait()
	if fault.Is(said, fault.ImageMissing) {
		return said
	}
	removed := s.engine.removeUntilGone(s.name)
	if errors.Is(err, errNoFiles) {
		return fault.Wrap(fault.Internal, err, "%s", errNoFiles.Error())
	}
	if s.proc.ExitCode() < 0 || fault.Is(said, fault.EngineUnavailable) {
		s.engine.requestSweeps() // the engine may create the container later
	}
	if ctx.Err() != nil {
		return fault.Wrap(fault.Internal, context.Cause(ctx), "killed before it started")
	}
	if said != nil && !fault.Is(said, fault.Internal) {
		return said
	}
	gone := s.engine.await(removed, engineCheck) // an engine that cannot remove it could not start it either
	var failed *dockercli.Error
	switch failure := removed.lastErr(); {
	case fault.Is(failure, fault.EngineUnavailable):
		return failure
	case !gone && failure == nil && s.proc.ExitCode() < 0:
		return s.engine.cfg.Driver.NoAnswer(said)
	case errors.As(said, &failed) && failed.Kind == dockercli.NotStartable:
		return fault.Wrap(fault.Internal, said, "the container could not be started; is there a sandbox-init in the image, and can the "+
			"engine's runtime start containers at all? `core-api doctor` tells")
	case said != nil:
		return fault.Wrap(fault.Internal, said, "the engine could not start the container")
	case err == nil:
		return fault.New(fault.Internal, "the container did not start within %s", startTimeout)
	default:
		return fault.Wrap(fault.Internal, err, "the container's first process is no sandbox-init; rebuild the image")
	}
}

// notSent ends a container that did not get its files, and returns why.
func (s *session) notSent(err error) error {
	if _, is := errors.AsType[*fault.Error](err); !is {
		return s.lost(err).Err
	}
	s.end(killGrace)
	return err
}

// lost removes a container whose end was not reported, and returns why the exit is unknown.
func (s *session) lost(err error) *RunError {
	removed := s.engine.removeUntilGone(s.name)
	gone := s.engine.await(removed, removalTimeout)
	s.end(killGrace)
	said := s.proc.Wait()
	s.engine.requestSweeps()
	// An engine that shuts down kills its containers before its CLIs notice. The attempt to remove
	// the container shows which one ended.
	for _, e := range []error{said, removed.lastErr()} {
		if fault.Is(e, fault.EngineUnavailable) {
			return &RunError{
				Started: true, Dead: gone,
				Err: fault.Wrap(fault.EngineUnavailable, e, "the engine went away while the job ran"),
			}
		}
	}
	if said == nil {
		said = err
	}
	if !gone && removed.lastErr() == nil {
		return &RunError{Started: true, Err: s.engine.cfg.Driver.NoAnswer(said)}
	}
	if s.removed.Load() {
		return &RunError{Started: true, Dead: gone, Err: fault.Wrap(fault.Internal, said,
			"the container did not answer in time, as if it was paused, and was removed")}
	}
	return &RunError{Started: true, Dead: gone, Err: fault.Wrap(fault.Internal, said,
		"the container ended without a report (exit code %d): it, or the connection to it, was killed from outside",
		s.proc.ExitCode())}
}

func wireJob(job Job) initproto.Job {
	env := make([]string, 0, len(job.Env))
	for _, name := range slices.Sorted(maps.Keys(job.Env)) {
		env = append(env, name+"="+job.Env[name])
	}
	return initproto.Job{
		Argv: job.Argv, Env: env, Cwd: job.Cwd, TimeoutMS: job.Timeout.Milliseconds(), GraceMS: job.Grace.Milliseconds(),
		MaxStdout: job.MaxStdout, MaxStderr: job.MaxStderr, ReportUnlinked: job.OnUnlinked != nil,
		ReportUsage: job.OnUsage != nil, Network: job.OnConnection != nil, Ports: job.ports != nil, NetworkCA: job.NetworkCA,
		CPUs: int64(math.Ceil(job.CPUCores)), CodeFile: job.CodeFile,
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
