package engine

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/engine/attach"
	"secbox/engine/initproto"
	"secbox/fault"
)

// standby is a container that was started before there was a job for it. It serves one job, or none.
//
// A caller whose take returns true owns the container from then on and must call Run or Discard. Until then, the goroutine that started it
// owns it and notices its death: a container without a job must send nothing, so the first byte after its hello that is not an answer, or the end
// of its stream, ends the wait.
type standby struct {
	allocation
	session  *session
	greeted  chan struct{} // closed after init's hello, or when there will be none
	failure  error         // why there will be none; to be read after greeted
	activity chan struct{} // closed when the container has sent anything but answers, or is gone
	answer   chan struct{} // capacity 1: has an element after an answer of init
	limited  chan error    // the result of limit; nil: it was not called
	cold     []string      // docker argv of a container that replaces it; nil: the same

	adopted    chan struct{} // closed when adopt has done its work; nil: it was not called. It precedes reads of refusal, unattached, limited, args, mounts and cold
	refusal    error         // of Prepare
	unattached bool          // Run attaches the directories
	unfit      bool          // and that has failed
	replaced   bool          // Run has started another container

	mu       sync.Mutex
	state    standbyState
	asked    int // how many answers were requested
	answered int
}

type standbyState int

const (
	waiting standbyState = iota
	taken
	ended // given up, or dead, or has a job
)

// standbyEvents are callbacks. Each is called at most once, from a goroutine of the container.
type standbyEvents struct {
	ready func()      // init has said hello
	died  func(error) // the container did not start, or ended while it waited
}

// StartStandby starts a container for a future job and returns as soon as docker was called. The container outlives ctx, which is for the
// preparation only. With a base, it is for any project: see adopt.
func (c *Cold) StartStandby(ctx context.Context, spec Spec, base *attach.Base, events standbyEvents) (*standby, error) {
	var allocation allocation
	var points *points
	var err error
	if base == nil {
		if allocation, err = c.allocate(ctx, spec); err != nil {
			err = &prepareError{err}
		}
	} else {
		allocation, points, err = c.allocatePoints(spec, base)
	}
	if err != nil {
		return nil, err
	}
	if err := c.mayStart(ctx); err != nil {
		allocation.mounts.drop()
		points.remove()
		return nil, err
	}
	session, err := newSession(c, containerName(allocation.execID), allocation.args)
	if err != nil {
		c.started()
		allocation.mounts.drop()
		points.remove()
		return nil, err
	}
	session.points = points
	a := &standby{allocation: allocation, session: session, greeted: make(chan struct{}), activity: make(chan struct{}), answer: make(chan struct{}, 1)}
	c.teardown.Go(func() { a.live(events) })
	return a, nil
}

// allocatePoints allocates a container that can serve any project.
func (c *Cold) allocatePoints(spec Spec, base *attach.Base) (allocation, *points, error) {
	id := c.cfg.NewID()
	points, err := newPoints(base, id, spec.User, spec.Targets, c.cfg.Log)
	if err != nil {
		return allocation{}, nil, err
	}
	return allocation{engine: c, execID: id, args: runArgs(c.cfg.Identity, c.cfg.Options, spec, id, nil, points)}, points, nil
}

// adopt makes a container for any project that was taken the one of an exec, and returns at once: the exec's directories are prepared and
// attached beside the opening of its row. adoption waits for that. Run attaches them to a container that is being started now, and tries again
// after a failure. If cannotLimit is not nil, the container's limits are changed to the spec's, too.
func (a *standby) adopt(ctx context.Context, spec Spec, cannotLimit func(error)) {
	spec.ExecID = cmp.Or(spec.ExecID, a.execID)
	a.execID, a.attached, a.adopted = spec.ExecID, true, make(chan struct{})
	a.engine.teardown.Go(func() {
		defer close(a.adopted)
		exec, err := a.engine.allocate(ctx, spec)
		if err != nil {
			a.refusal = err
			return
		}
		a.mounts, a.cold = exec.mounts, exec.args
		if cannotLimit != nil {
			a.limit(spec, cannotLimit)
		}
		select {
		case <-a.greeted:
			a.unattached = a.failure != nil || a.session.points.attach(exec.mounts) != nil
		default:
			a.unattached = true
		}
	})
}

// adoption waits for adopt. After an error, which is that of Prepare, the caller may give the container back or must discard it.
func (a *standby) adoption() error {
	if a.adopted == nil {
		return nil
	}
	<-a.adopted
	return a.refusal
}

// Mounts waits for adopt.
func (a *standby) Mounts() []Mount {
	_ = a.adoption()
	return a.mounts.Mounts
}

// Args waits for adopt, which may change the limits.
func (a *standby) Args() []string {
	_ = a.adoption()
	return a.args
}

// leave undoes adopt for a container that may serve another exec. That one gets another id, because this one's may be on record. It is false
// when the container was given a job, has other limits now, or keeps its directories.
func (a *standby) leave() bool {
	_ = a.adoption()
	if !a.is(taken) || a.session.points == nil || a.limited != nil || !a.session.points.detach() {
		return false
	}
	a.mounts.drop()
	a.execID, a.mounts, a.cold, a.attached, a.unattached = a.engine.cfg.NewID(), MountSet{}, nil, false, false
	a.adopted, a.refusal = nil, nil
	return true
}

// limit changes the limits of a container that is ready to those of spec; Run waits for that. When it fails, the job gets a container of its
// own; failed is called unless the owner has ended the container.
func (a *standby) limit(spec Spec, failed func(error)) {
	spec.ProjectID = ""
	a.args = runArgs(a.engine.cfg.Identity, a.engine.cfg.Options, spec, strings.TrimPrefix(a.session.name, containerName("")), nil, a.session.points)
	a.limited = make(chan error, 1)
	a.engine.teardown.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limitTimeout)
		defer cancel()
		err := a.engine.cfg.CLI.Update(ctx, a.session.name, limitArgs(spec.Limits)...)
		if err != nil && a.is(taken) { // else the container was ended meanwhile
			failed(err)
		}
		a.limited <- err
	})
}

// limitTimeout is far more than the 30 ms of a call, and less than a cold start takes on a machine that slow.
const limitTimeout = 2 * time.Second

// prepareError is an error of a spec's Prepare, which is about the project and not the engine.
type prepareError struct{ error }

func (u *prepareError) Unwrap() error { return u.error }

// live follows the container from its start to its job, or to its end without a job.
func (a *standby) live(events standbyEvents) {
	a.failure = a.session.greet(context.Background())
	close(a.greeted)
	if a.failure == nil {
		events.ready()
		a.rehearse()
		for a.readAnswer() {
		}
	} else {
		a.session.release()
	}
	close(a.activity)
	if !a.move(waiting, ended) {
		return // the caller of take or giveUp does the rest
	}
	err := a.failure
	if err == nil {
		err = a.session.lost(io.EOF)
		a.session.release()
	}
	a.mounts.drop()
	events.died(err)
}

// rehearsal asks init to prepare for its job and, from the second time on, to answer.
var rehearsal = initproto.Append(nil, initproto.TypeRehearse, nil)

// rehearse has init prepare for its job, once, if the container waits. An exec that has taken it already would only be delayed.
func (a *standby) rehearse() {
	a.mu.Lock()
	send := a.state == waiting && a.asked == 0
	if send {
		a.asked++
	}
	a.mu.Unlock()
	if send {
		_ = a.session.send(slices.Concat(rehearsal, rehearsal)) // the second one for an answer
	}
}

// readAnswer reads the next frame if it is an answer that was requested. Other frames are not consumed.
func (a *standby) readAnswer() bool {
	first, err := a.session.in.Peek(1)
	if err != nil || initproto.Type(first[0]) != initproto.TypeReady || !a.owes() {
		return false
	}
	if _, _, err := a.session.frames.Next(); err != nil {
		return false
	}
	a.mu.Lock()
	a.answered++
	a.mu.Unlock()
	select {
	case a.answer <- struct{}{}:
	default:
	}
	return true
}

// owes reports whether an answer was requested that has not come.
func (a *standby) owes() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered < a.asked
}

// ask requests an answer of a container that was taken, unless one is yet to come, or it did not wait. The owner does this at once, so that the answer has come when
// the job is sent.
func (a *standby) ask() {
	select {
	case <-a.greeted:
	default:
		return
	}
	a.mu.Lock()
	send := a.failure == nil && a.asked > 0 && a.answered == a.asked
	if send {
		a.asked++
	}
	a.mu.Unlock()
	if send {
		_ = a.session.send(rehearsal) // after an error the container is gone, which frozen notices
	}
}

// frozen waits for the answer to ask, and reports whether AnswerTimeout ended first. It is false for an init that has never answered: older
// ones do not.
func (a *standby) frozen(ctx context.Context) bool {
	a.mu.Lock()
	answers := a.answered > 0
	a.mu.Unlock()
	if !answers {
		return false
	}
	timeout := time.After(a.engine.cfg.AnswerTimeout)
	for a.owes() {
		select {
		case <-timeout:
			return true
		case <-a.answer:
		case <-a.activity:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// move changes the state if it is still from.
func (a *standby) move(from, to standbyState) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != from {
		return false
	}
	a.state = to
	return true
}

func (a *standby) is(state standbyState) bool { return a.move(state, state) }

// take makes the caller the owner; false when the container has died.
func (a *standby) take() bool { return a.move(waiting, taken) }

// giveBack undoes take, after leave; false when the container has ended.
func (a *standby) giveBack() bool {
	if !a.move(taken, waiting) {
		return false
	}
	select {
	case <-a.activity: // live may have gone while it was taken
		return a.move(waiting, taken) && false
	default:
	}
	select {
	case <-a.greeted:
		a.rehearse() // it may have been taken before its init was ready
	default:
	}
	return true
}

// giveUp ends a container that was not taken. It returns at once; Cold.Close waits for the end.
func (a *standby) giveUp() {
	if a.move(waiting, ended) {
		a.end()
	}
}

func (a *standby) Warm() bool { return !a.replaced }

// Discard ends a container that was taken.
func (a *standby) Discard() {
	_ = a.adoption()
	if a.move(taken, ended) {
		a.end()
	}
}

// abandonTimeout is how long a dropped container may take to end before it is removed. A frozen one does not notice the end of its lease. And
// when a mount's source disappears between creation and start, docker neither starts nor removes the container, and the CLI waits.
const abandonTimeout = 5 * time.Second

// end ends a container that has no job.
func (a *standby) end() {
	a.session.points.detach()
	_ = a.session.proc.Stdin.Close() // the lease: init ends, and the container with it
	a.engine.teardown.Go(func() {
		select {
		case <-a.activity:
		case <-time.After(abandonTimeout):
			a.session.remove(a.activity, nil) // ends the CLI
			<-a.activity
		}
		if a.failure == nil {
			a.session.end(endTimeout)
			a.session.release()
		}
		a.mounts.drop()
	})
}

func (a *standby) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	if err := a.adoption(); err != nil {
		a.Discard()
		return Exit{}, &RunError{Dead: true, Err: err}
	}
	select {
	case <-a.greeted:
	case <-ctx.Done():
	}
	if a.frozen(ctx) {
		a.session.log.Warn("a container that waited for a job does not answer; a new one replaces it",
			"container", a.session.name, "patience", a.engine.cfg.AnswerTimeout)
		return a.replace(ctx, job, stdout, stderr)
	}
	if a.limited != nil && <-a.limited != nil {
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
	case <-a.activity: // it ended while it was taken
		defer a.session.release()
		return Exit{}, &RunError{Dead: true, Err: a.session.neverStarted(ctx, io.EOF)}
	default:
	}
	if a.unattached {
		if err := a.session.points.attach(a.mounts); err != nil {
			a.unfit = true
			a.session.log.Warn("the project's directories cannot be attached to a container; a new one replaces it", "container", a.session.name, "error", err)
			return a.replace(ctx, job, stdout, stderr)
		}
	}
	a.move(taken, ended) // from here on it has seen a job
	return a.session.serve(ctx, job, stdout, stderr, a.activity)
}

// replace removes a container and runs the job in a new one with the same mounts, which must still be the prepared ones. The job was not sent
// yet, so nothing of it has run.
func (a *standby) replace(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	a.move(taken, ended)
	a.replaced = true
	if a.cold != nil {
		a.args, a.attached = a.cold, false
	}
	removed := a.engine.removeUntilGone(a.session.name)
	gone := a.engine.await(removed, removalTimeout)
	a.session.end(killGrace)
	<-a.activity
	a.session.release()
	if !gone { // its name is not free
		return Exit{}, &RunError{Dead: true, Err: noAnswer(removed.lastErr())}
	}
	if !a.mounts.intact() {
		return Exit{}, &RunError{Dead: true, Err: fault.New(fault.ProjectDamaged, "a directory of the project was removed or replaced while the exec was starting: run it again")}
	}
	return (&coldSlot{a.allocation}).Run(ctx, job, stdout, stderr)
}
