package engine

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"secbox/engine/initproto"
	"secbox/fault"
)

// ahead is a container that was started before anybody asked for it. It serves one job, or none.
//
// Whoever calls take and gets true owns it from then on and must call Run or Discard. Until then it belongs to the goroutine that
// started it, which notices when it dies: nothing may come from a container that has no job, so the first byte after its hello, or the
// end of its stream, is the end of its waiting.
type ahead struct {
	allotted
	session *session
	greeted chan struct{} // closed when init has said hello, or never will
	failure error         // why it never will; to be read after greeted
	stirred chan struct{} // closed when the container has sent something after its hello that is no answer, or is gone
	answers chan struct{} // one for each answer of init's
	asked   bool          // by ask; only its owner looks

	mu    sync.Mutex
	state aheadState
}

type aheadState int

const (
	waiting aheadState = iota
	taken
	over // given up, or dead
)

// aheadEvents tells who keeps the container how it fares. Each is called at most once, from a goroutine of the container's own.
type aheadEvents struct {
	ready func()      // init has said hello
	died  func(error) // it will never serve: it did not come up, or ended while it waited
}

// StartAhead starts a container for a job that is yet to come, and returns as soon as docker has been called. It outlives ctx, which
// is for the preparation only.
func (c *Cold) StartAhead(ctx context.Context, spec Spec, events aheadEvents) (*ahead, error) {
	allotted, err := c.allot(ctx, spec)
	if err != nil {
		return nil, &unprepared{err}
	}
	if err := c.mayStart(ctx); err != nil {
		allotted.place.drop()
		return nil, err
	}
	session, err := newSession(c, containerName(allotted.execID), allotted.args)
	if err != nil {
		c.started()
		allotted.place.drop()
		return nil, err
	}
	a := &ahead{allotted: allotted, session: session, greeted: make(chan struct{}), stirred: make(chan struct{}), answers: make(chan struct{}, mostAnswers)}
	c.teardown.Go(func() { a.live(events) })
	return a, nil
}

// unprepared is the failure of a spec's Prepare: it is the project's own and says nothing about the engine.
type unprepared struct{ error }

func (u *unprepared) Unwrap() error { return u.error }

// live sees the container from its start to its job, or to its end without one.
func (a *ahead) live(events aheadEvents) {
	a.failure = a.session.greet(context.Background())
	close(a.greeted)
	if a.failure == nil {
		events.ready()
		_ = a.session.send(slices.Concat(rehearse, rehearse)) // the second one for an answer
		for a.answered() {
		}
	} else {
		a.engine.release(a.session.name)
	}
	close(a.stirred)
	if !a.move(waiting, over) {
		return // whoever took it, or gave it up, sees to the rest
	}
	err := a.failure
	if err == nil {
		err = a.session.lost(io.EOF)
		a.engine.release(a.session.name)
	}
	a.place.drop()
	events.died(err)
}

// rehearse asks init to make ready for its job and, from the second time on, to answer.
var rehearse = initproto.Append(nil, initproto.TypeRehearse, nil)

// mostAnswers is how many answers are asked for: one after the hello, which shows that this init gives any, and one when the container is taken.
const mostAnswers = 2

// answered takes the next frame if it is an answer that was asked for. It leaves all else to be read.
func (a *ahead) answered() bool {
	first, err := a.session.in.Peek(1)
	if err != nil || initproto.Type(first[0]) != initproto.TypeReady || len(a.answers) == cap(a.answers) {
		return false
	}
	if _, _, err := a.session.frames.Next(); err != nil {
		return false
	}
	a.answers <- struct{}{}
	return true
}

// ask asks a container that was taken whether it still answers. Its owner does that at once, so that the answer has come when there is a job.
func (a *ahead) ask() {
	select {
	case <-a.greeted:
		a.asked = a.failure == nil && a.session.send(rehearse) == nil
	default:
	}
}

// frozen waits for the answer to ask, and reports whether the engine's patience ended first. It is false for an init that has not answered
// before: an older one never does.
func (a *ahead) frozen(ctx context.Context) bool {
	if !a.asked {
		return false
	}
	select {
	case <-a.answers:
	default:
		return false
	}
	select {
	case <-a.answers:
		return false
	default:
	}
	late := time.NewTimer(a.engine.cfg.AnswerPatience)
	defer late.Stop()
	select {
	case <-late.C:
		return true
	case <-a.answers:
	case <-a.stirred:
	case <-ctx.Done():
	}
	return false
}

// move changes the state if it is still from.
func (a *ahead) move(from, to aheadState) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != from {
		return false
	}
	a.state = to
	return true
}

// take hands the container over; false when it has died.
func (a *ahead) take() bool { return a.move(waiting, taken) }

// giveUp ends a container that nobody has taken. It returns at once; Cold.Close waits for the end.
func (a *ahead) giveUp() {
	if a.move(waiting, over) {
		a.end()
	}
}

func (a *ahead) Warm() bool { return true }

// Discard is for one that was taken.
func (a *ahead) Discard() {
	if a.move(taken, over) {
		a.end()
	}
}

// unwantedPatience is how long a container that nobody wants may take to come up before it is removed. Where a mount's source goes
// between its creation and its start, docker neither starts nor removes it, and the CLI waits for either.
const unwantedPatience = 5 * time.Second

// end takes down a container that has no job.
func (a *ahead) end() {
	_ = a.session.proc.Stdin.Close() // the lease: init ends, and the container with it
	a.engine.teardown.Go(func() {
		late := time.AfterFunc(unwantedPatience, func() { _ = a.engine.removeOnce(a.session.name) }) // ends the CLI
		<-a.greeted
		late.Stop()
		<-a.stirred
		if a.failure == nil {
			a.session.end(endPatience)
			a.engine.release(a.session.name)
		}
		a.place.drop()
	})
}

func (a *ahead) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	select {
	case <-a.greeted:
	case <-ctx.Done():
	}
	if a.frozen(ctx) {
		return a.replace(ctx, job, stdout, stderr)
	}
	if ctx.Err() != nil { // before the job was sent: nothing of it has run
		a.Discard()
		return Exit{}, &RunError{Dead: true, Err: fault.Wrap(fault.Internal, context.Cause(ctx), "killed before it started")}
	}
	if a.failure != nil {
		return Exit{}, &RunError{Dead: true, Err: a.failure}
	}
	select {
	case <-a.stirred: // it ended in the instant in which it was handed over
		defer a.engine.release(a.session.name)
		return Exit{}, &RunError{Dead: true, Err: a.session.neverStarted(ctx, io.EOF)}
	default:
	}
	return a.session.serve(ctx, job, stdout, stderr, a.stirred)
}

// replace removes a container that does not answer, and has a new one run the job in the same place. The job was not sent yet, so it is
// certain that nothing of it has run.
func (a *ahead) replace(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	a.session.log.Warn("a container that waited for a job does not answer; a new one replaces it",
		"container", a.session.name, "patience", a.engine.cfg.AnswerPatience)
	removed := a.engine.removeForSure(a.session.name)
	gone := a.engine.await(removed, deathPatience)
	a.session.end(killGrace)
	<-a.stirred
	a.engine.release(a.session.name)
	if !gone { // its name is not free
		return Exit{}, &RunError{Dead: true, Err: silent(removed.lastErr())}
	}
	return (&coldSlot{a.allotted}).Run(ctx, job, stdout, stderr)
}
