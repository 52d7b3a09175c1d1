package session

import (
	"context"
	"errors"
	"io"

	"secbox/engine"
	"secbox/fault"
)

// mostInside is how many programs of Inside one session runs at once.
const mostInside = 8

// Inside starts programs of sandbox-init in the container of a session, such as sandbox/inside,
// with the arguments job.Argv and as the user of the session's execs. They are no execs, and have
// no rows. The end of ctx ends the program. Errors are fault.SessionEnded, fault.SessionLimit, and
// the errors of engine.Resident's Run.
type Inside interface {
	// Run returns at the program's end. The session is in use meanwhile.
	Run(ctx context.Context, job engine.Job, stdout io.Writer) (engine.Exit, error)

	// Watch is Run for a program that only looks: the session may end for idleness, and a drain
	// does not wait.
	Watch(ctx context.Context, job engine.Job, stdout io.Writer) (engine.Exit, error)
}

// Inside returns the means to start programs in a session, which may have ended.
func (s *Set) Inside(id string) Inside { return inside{s, id} }

type inside struct {
	of *Set
	id string
}

// Run implements Inside.
func (i inside) Run(ctx context.Context, job engine.Job, stdout io.Writer) (engine.Exit, error) {
	x, err := i.enter(func(x *live) {
		x.inside++
		x.begin()
	})
	if err != nil {
		return engine.Exit{}, err
	}
	x.watch.use(x.terms.Watch)
	defer x.leave(&x.inside)
	return x.runInside(ctx, job, stdout)
}

// Watch implements Inside.
func (i inside) Watch(ctx context.Context, job engine.Job, stdout io.Writer) (engine.Exit, error) {
	x, err := i.enter(func(x *live) {
		x.watching++
		x.leaving.Add(1)
	})
	if err != nil {
		return engine.Exit{}, err
	}
	defer func() {
		i.of.mu.Lock()
		defer i.of.mu.Unlock()
		x.watching--
		x.leaving.Done()
	}()
	return x.runInside(ctx, job, stdout)
}

// enter calls begin for a running session, with Set.mu held.
func (i inside) enter(begin func(x *live)) (*live, error) {
	s := i.of
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[i.id]
	switch {
	case x == nil, x.over, s.draining != nil:
		return nil, Ended(i.id)
	case x.inside+x.watching >= mostInside:
		return nil, busy("%d file operations run in session %s, which is the most; try again when one has ended", mostInside, i.id)
	}
	begin(x)
	return x, nil
}

func (x *live) runInside(ctx context.Context, job engine.Job, stdout io.Writer) (engine.Exit, error) {
	job.Argv = append([]string{engine.InitPath}, job.Argv...)
	job.Env, job.Cwd = map[string]string{"GOMAXPROCS": "1"}, "/"
	exit, err := x.resident.Run(ctx, job, stdout, io.Discard)
	lost, ok := errors.AsType[*engine.RunError](err)
	switch {
	case (ok || exit.Killed) && ctx.Err() != nil:
		err = context.Cause(ctx)
	case ok:
		err = fault.Wrap(fault.SessionEnded, lost, "session %s has ended; start another one", x.id)
	case err == nil && exit.NoRoom:
		err = busy("the execs of session %s have as many processes as they may, see policy pids; try again when some have ended", x.id)
	}
	return exit, err
}
