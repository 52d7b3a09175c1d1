package engine

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"secbox/engine/attach"
	"secbox/engine/initproto"
	"secbox/fault"
)

// standby is a container that was started before there was a job for it. It serves one job, or
// none, or becomes a Resident.
//
// # States
//
//	         StartStandby
//	              |
//	              v          take
//	         +---------+ ------------> +-------+
//	         | waiting |               | taken |
//	         +---------+ <------------ +-------+
//	              |         giveBack       |
//	drop, or the  |                        | Run sends the job or replaces
//	container     |                        | the container, or Discard
//	dies          v                        v
//	         +---------------------------------+
//	         |            finished             |
//	         +---------------------------------+
//
// The state says who owns the container, and so who cleans up after it.
//
//   - waiting: the goroutine of watch does. When the container dies, watch releases it and calls
//     died.
//   - taken: the caller of take does. It must call Run, Discard or giveBack. When the container
//     dies, watch only closes activity, and Run or giveBack notices.
//   - finished: the container has its job, or never gets one.
//
// move changes the state under mu. So when a container dies just as it is taken, either take fails
// or died is not called.
//
// # Start
//
// A container is taken before it has started, too. greeted is closed when it has, or when its start
// has failed: startErr. Run waits for that. A waiting container sends nothing but the answers that
// it was asked for (rehearse, requestAnswer). Any other byte, and the end of its stream, end
// watch's reading; activity is closed.
//
// # Assignment
//
// A container for one project has its directories from its start. A container for any project gets
// them from its owner while it is taken:
//
//	unassigned --assign--> preparing --+--> attached ---------------------+--> Run sends the job
//	     ^                     |       |                                  |
//	     |                     |       +--> attachInRun --Run tries it----+--> attachFailed: Run replaces the container
//	     |                     v
//	     |                  refused: Prepare returned assignment.err
//	     |
//	     +---- unassign detaches the directories, before Run
//
// A goroutine of assign prepares and attaches. It leaves the attaching to Run (attachInRun) if the
// container has not started yet, or if attaching failed.
type standby struct {
	allocation
	session  *session
	greeted  chan struct{} // closed after init's hello, or when there will be none
	startErr error         // why there will be none; to be read after greeted
	activity chan struct{} // closed when the container has sent anything but answers, or is gone
	answer   chan struct{} // capacity 1: has an element after an answer of init

	assignment   *assignment // nil: not assigned
	attachFailed bool        // Run could not attach the directories
	replaced     bool        // Run has started another container

	mu       sync.Mutex
	state    standbyState
	asked    int // how many answers were requested
	answered int
}

type standbyState int

const (
	waiting standbyState = iota
	taken
	finished
)

// standbyEvents are callbacks. Each is called at most once, from a goroutine of the container.
type standbyEvents struct {
	ready func()      // init has said hello
	died  func(error) // the container did not start, or ended while it waited
}

// StartStandby starts a container for a future job and returns as soon as docker was called. The
// container outlives ctx, which is for the preparation only. With a base, or if directories are
// copied, any project can use it: see assign.
func (c *Cold) StartStandby(ctx context.Context, spec Spec, base *attach.Base, events standbyEvents) (*standby, error) {
	var allocation allocation
	var points *mountPoints
	var err error
	if base == nil && c.cfg.Copy == nil {
		if allocation, err = c.allocate(ctx, spec); err != nil {
			err = &prepareError{err}
		}
	} else {
		allocation, points, err = c.allocateShared(spec, base)
	}
	if err != nil {
		return nil, err
	}
	if err := c.mayStart(ctx); err != nil {
		allocation.mounts.drop()
		points.remove()
		return nil, err
	}
	session, err := newSession(c, allocation.container)
	if err != nil {
		c.started()
		allocation.mounts.drop()
		points.remove()
		return nil, err
	}
	session.points = points
	a := &standby{
		allocation: allocation, session: session, greeted: make(chan struct{}), activity: make(chan struct{}),
		answer: make(chan struct{}, 1),
	}
	c.teardown.Go(func() { a.watch(events) })
	return a, nil
}

// allocateShared allocates a container that can serve any project.
func (c *Cold) allocateShared(spec Spec, base *attach.Base) (allocation, *mountPoints, error) {
	id := c.cfg.NewID()
	if base == nil {
		return allocation{engine: c, execID: id, container: c.container(id, spec, nil)}, nil, nil
	}
	points, err := newMountPoints(base, id, spec.User, spec.Targets, c.cfg.Log)
	if err != nil {
		return allocation{}, nil, err
	}
	container := c.container(id, spec, nil)
	container.points = points
	return allocation{engine: c, execID: id, container: container}, points, nil
}

// prepareError is an error of a spec's Prepare, which is about the project and not the engine.
type prepareError struct{ error }

func (u *prepareError) Unwrap() error { return u.error }

// watch follows the container from its start to its job, or to its end without a job.
func (a *standby) watch(events standbyEvents) {
	a.startErr = a.session.greet(context.Background())
	close(a.greeted)
	if a.startErr == nil {
		events.ready()
		a.rehearse()
		for a.readAnswer() {
		}
	} else {
		a.session.release()
	}
	close(a.activity)
	if !a.move(waiting, finished) {
		return // the caller of take or drop does the rest
	}
	err := a.startErr
	if err == nil {
		err = a.session.lost(io.EOF)
		a.session.release()
	}
	a.mounts.drop()
	events.died(err)
}

// rehearsal asks init to prepare for its job and, from the second time on, to answer.
var rehearsal = initproto.Append(nil, initproto.TypeRehearse, nil)

// rehearse has init prepare for its job, once, if the container waits. An exec that has taken it
// already would only be delayed.
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

// readAnswer reads the next frame if it is an answer that was requested. Other frames are not
// consumed.
func (a *standby) readAnswer() bool {
	first, err := a.session.in.Peek(1)
	if err != nil || initproto.Type(first[0]) != initproto.TypeReady || !a.answerDue() {
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

// answerDue reports whether an answer was requested that has not come.
func (a *standby) answerDue() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered < a.asked
}

// requestAnswer asks a container that was taken for an answer. The owner does this at once, so that
// the answer has come when the job is sent. It does nothing if an answer is due already, or the
// container had not started when it was taken.
func (a *standby) requestAnswer() {
	select {
	case <-a.greeted:
	default:
		return
	}
	a.mu.Lock()
	send := a.startErr == nil && a.asked > 0 && a.answered == a.asked
	if send {
		a.asked++
	}
	a.mu.Unlock()
	if send {
		_ = a.session.send(rehearsal) // after an error the container is gone, which frozen notices
	}
}

// frozen waits for the requested answer, and reports whether AnswerTimeout ended first. An init
// that has never answered is not frozen: older versions do not answer.
func (a *standby) frozen(ctx context.Context) bool {
	a.mu.Lock()
	answers := a.answered > 0
	a.mu.Unlock()
	if !answers {
		return false
	}
	timeout := time.After(a.engine.cfg.AnswerTimeout)
	for a.answerDue() {
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

// move changes the state and returns true if the state is still from.
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

// take makes the caller the owner. It returns false when the container has died.
func (a *standby) take() bool { return a.move(waiting, taken) }

// giveBack undoes take, after unassign. It returns false when the container has ended.
func (a *standby) giveBack() bool {
	if !a.move(taken, waiting) {
		return false
	}
	select {
	case <-a.activity: // watch may have returned while it was taken
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

// drop ends a container that was not taken. It returns at once; Cold.Close waits for the end.
func (a *standby) drop() {
	if a.move(waiting, finished) {
		a.end()
	}
}

func (a *standby) Warm() bool { return !a.replaced }

// Discard ends a container that was taken.
func (a *standby) Discard() {
	_ = a.awaitAssignment()
	if a.move(taken, finished) {
		a.end()
	}
}

// abandonTimeout is how long a dropped container may take to end before it is removed. A frozen one
// does not notice the end of its lease. And when a mount's source disappears between creation and
// start, docker neither starts nor removes the container, and the CLI waits.
const abandonTimeout = 5 * time.Second

// end ends a container that has no job.
func (a *standby) end() {
	a.session.points.detach()
	_ = a.session.proc.Stdin().Close() // the lease: init ends, and the container with it
	a.engine.teardown.Go(func() {
		select {
		case <-a.activity:
		case <-time.After(abandonTimeout):
			a.session.remove(a.activity, nil) // ends the CLI
			<-a.activity
		}
		if a.startErr == nil {
			a.session.end(endTimeout)
			a.session.release()
		}
		a.mounts.drop()
	})
}

func (a *standby) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	replacement, err := a.prepare(ctx)
	switch {
	case err != nil:
		return Exit{}, &RunError{Dead: true, Err: err}
	case replacement != nil:
		return replacement.Run(ctx, job, stdout, stderr)
	}
	return a.session.serve(ctx, job, stdout, stderr, a.activity)
}

// Serve implements Keeper.
func (a *standby) Serve(ctx context.Context, reports Reports) (*Resident, error) {
	replacement, err := a.prepare(ctx)
	if err == nil && replacement == nil {
		failed := a.session.promote(ctx, a.activity)
		if failed == nil {
			r := a.keep(a.session, reports)
			a.followLimits(r)
			return r, nil
		}
		a.session.log.Warn("a container that waited for a job does not serve many; a new one replaces it", "container", a.session.name,
			"error", failed)
		a.session.points.detach()
		replacement, err = a.replacement()
	}
	if err != nil {
		return nil, &RunError{Dead: true, Err: err}
	}
	return replacement.Serve(ctx, reports)
}

// prepare makes the container ready to get its job, after which it is finished, or returns a slot
// that replaces it.
func (a *standby) prepare(ctx context.Context) (replacement *coldSlot, err error) {
	if err := a.awaitAssignment(); err != nil {
		a.Discard()
		return nil, err
	}
	select {
	case <-a.greeted:
	case <-ctx.Done():
	}
	if a.frozen(ctx) {
		a.session.log.Warn("a container that waited for a job does not answer; a new one replaces it",
			"container", a.session.name, "patience", a.engine.cfg.AnswerTimeout)
		return a.replacement()
	}
	to := a.assignment
	if to != nil && to.limits != nil && !to.limitsLater && <-to.limits != nil {
		return a.replacement()
	}
	if ctx.Err() != nil { // before the job was sent: nothing of it has run
		a.Discard()
		return nil, fault.Wrap(fault.Internal, context.Cause(ctx), "killed before it started")
	}
	if a.startErr != nil {
		return nil, a.startErr
	}
	select {
	case <-a.activity: // it ended while it was taken
		defer a.session.release()
		return nil, a.session.neverStarted(ctx, io.EOF)
	default:
	}
	if err := a.session.sendFiles(ctx, a.mounts); err != nil {
		if _, is := errors.AsType[*fault.Error](err); is {
			a.Discard()
			return nil, err
		}
		a.session.log.Warn("the project's files cannot be copied to a container; a new one replaces it", "container", a.session.name,
			"error", err)
		return a.replacement()
	}
	if to != nil && to.attachInRun && a.session.copies == nil {
		if err := a.session.points.attach(a.mounts); err != nil {
			a.attachFailed = true
			a.session.log.Warn("the project's directories cannot be attached to a container; a new one replaces it", "container",
				a.session.name, "error", err)
			return a.replacement()
		}
	}
	a.move(taken, finished) // from here on it may have seen the job
	return nil, nil
}

// replacement removes a container and returns a slot for a new one with the same mounts, which must
// still be the prepared ones. The job was not sent yet, so nothing of it has run.
func (a *standby) replacement() (*coldSlot, error) {
	a.move(taken, finished)
	a.replaced = true
	if a.assignment != nil {
		a.container, a.attached = a.assignment.cold, a.engine.cfg.Copy != nil
	}
	removed := a.engine.removeUntilGone(a.session.name)
	gone := a.engine.await(removed, removalTimeout)
	a.session.end(killGrace)
	<-a.activity
	a.session.release()
	if !gone { // its name is not free
		return nil, a.engine.cfg.Driver.NoAnswer(removed.lastErr())
	}
	if !a.mounts.intact() {
		return nil, fault.New(fault.ProjectDamaged,
			"a directory of the project was removed or replaced while the exec was starting: run it again")
	}
	return &coldSlot{a.allocation}, nil
}
