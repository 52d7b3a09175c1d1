package session

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"

	"secbox/engine"
	"secbox/fault"
)

// ArtifactsVariable tells a job in a session the directory for its artifacts.
const ArtifactsVariable = "SECBOX_ARTIFACTS"

// Directories are the directories of execs in a session: below the session's artifacts/.
type Directories interface {
	NewSessionArtifacts(sessionID, execID string) (made *os.Root, err error)
	TakeSessionArtifacts(sessionID, execID string, made *os.Root) (kept bool, err error)
	DropSessionArtifacts(sessionID, execID string, made *os.Root) error
}

// Enter begins an exec in a session, and returns its slot and its place among the session's execs.
// fault.SessionEnded, or fault.SessionLimit when too many run in it.
func (s *Set) Enter(id, execID string, in Context, dirs Directories) (engine.Slot, int64, error) {
	s.mu.Lock()
	x := s.all[id]
	switch {
	case x == nil, x.over, s.draining != nil:
		s.mu.Unlock()
		return nil, 0, Ended(id)
	case x.running >= s.cfg.AtOnce:
		s.mu.Unlock()
		return nil, 0, busy("%d execs run in session %s, which is the most; try again when one has ended", x.running, id)
	}
	x.running++
	x.execs++
	seq := x.execs
	x.begin()
	s.mu.Unlock()
	x.watch.use(x.terms.Watch)
	slot := &slot{in: x, execID: execID, dirs: dirs, context: in}
	var err error
	if slot.made, err = dirs.NewSessionArtifacts(id, execID); err != nil {
		slot.leave()
		return nil, 0, err
	}
	return slot, seq, nil
}

// slot is the slot of an exec in a session.
type slot struct {
	in      *live
	context Context
	execID  string
	dirs    Directories
	made    *os.Root // the directory of its artifacts
}

func (s *slot) ExecID() string         { return s.execID }
func (s *slot) Warm() bool             { return true }
func (s *slot) Attached() bool         { return false }
func (s *slot) Mounts() []engine.Mount { return nil }
func (s *slot) Args() []string         { return s.in.resident.Args() }

func (s *slot) leave() { s.in.leave(&s.in.running) }

// begin begins a use of a session, with Set.mu held; watch.use follows.
func (x *live) begin() {
	x.idle.Stop()
	x.leaving.Add(1)
}

// leave ends a use, which number counts.
func (x *live) leave(number *int) {
	x.watch.leave()
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	defer x.leaving.Done()
	*number--
	x.rest()
}

// rest begins the time without a use, if there is none, with Set.mu held.
func (x *live) rest() {
	if x.running+x.inside > 0 || x.over {
		return
	}
	if x.dialed == 0 {
		x.idleAt = x.of.cfg.Now().Add(x.terms.Idle)
		x.idle.Reset(x.terms.Idle)
	}
	if x.of.draining != nil {
		x.of.draining(x)
	}
}

// Discard removes the exec's directory.
func (s *slot) Discard() {
	defer s.leave()
	_ = s.dirs.DropSessionArtifacts(s.in.id, s.execID, s.made) // it is empty, and goes with the session
}

// Run runs the job. When it returns, the exec's artifacts are out of the container's reach.
func (s *slot) Run(ctx context.Context, job engine.Job, stdout, stderr io.Writer) (engine.Exit, error) {
	defer s.leave()
	env := map[string]string{}
	maps.Copy(env, s.in.terms.Env)
	maps.Copy(env, job.Env)
	env[ArtifactsVariable] = "/workspace/artifacts/" + s.execID
	job.Env = env
	if job.CodeFile != "" {
		job.CodeFile = "/tmp/exec-" + s.execID + ".py"
	}
	var exit engine.Exit
	var err error
	if s.context.Kind != "" {
		exit, err = s.runCell(ctx, job, stdout, stderr)
	} else if exit, err = s.in.resident.Run(ctx, job, stdout, stderr); err != nil {
		err = s.lost(ctx, err)
	}
	switch {
	case err != nil:
	case exit.NoRoom:
		exit.StartError = "the session's execs have as many processes as they may, see policy pids"
	case exit.Outside:
		err = &engine.RunError{Started: true, Dead: true, Err: fault.New(fault.Internal,
			"the process that ran it was killed by a command of the session, its own or another's")}
	}
	kept, failed := s.dirs.TakeSessionArtifacts(s.in.id, s.execID, s.made)
	switch {
	case err != nil:
	case failed != nil:
		err = &engine.RunError{Started: true, Err: failed}
	case !kept:
		exit.Note = join(exit.Note, "it has no artifacts: a command of the session removed or replaced its directory for them")
	}
	return exit, err
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// lost returns why the exit of a job is unknown: the session has ended, or the job never began.
func (s *slot) lost(ctx context.Context, err error) error {
	lost, ok := errors.AsType[*engine.RunError](err)
	switch {
	case !ok: // the container refuses it
		return &engine.RunError{Dead: true, Err: err}
	case ctx.Err() != nil:
		return lost
	case !lost.Started:
		return &engine.RunError{Dead: true, Err: Ended(s.in.id)}
	}
	return &engine.RunError{Started: true, Dead: lost.Dead, Err: fault.Wrap(fault.SessionEnded, lost, "session %s ended while the exec ran",
		s.in.id)}
}
