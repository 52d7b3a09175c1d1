package engine

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// assignment is the exec that a container for any project was assigned to. Other fields, and the
// container and mounts of the allocation, may be read after done was closed.
type assignment struct {
	done        chan struct{}
	err         error      // of Prepare
	attachInRun bool       // Run attaches the directories
	cold        Container  // that replaces it
	limits      chan error // the result of changeLimits; nil: it was not called
	limitsLater bool       // the container can serve before that
	refused     func(error)
}

// assign assigns a container that was taken, and that any project can use, to an exec. It returns
// at once: the exec's directories are prepared and attached while the exec's row is opened, and
// awaitAssignment waits for them. change says whether the container's limits are changed to the
// limits of spec; refused is called if the engine does not.
func (a *standby) assign(ctx context.Context, spec Spec, change limitChange, refused func(error)) {
	spec.ExecID = cmp.Or(spec.ExecID, a.execID)
	to := &assignment{done: make(chan struct{}), limitsLater: change == changeLater, refused: refused}
	a.execID, a.attached, a.assignment = spec.ExecID, true, to
	a.engine.teardown.Go(func() {
		defer close(to.done)
		exec, err := a.engine.allocate(ctx, spec)
		if err != nil {
			to.err = err
			return
		}
		a.mounts, a.limits, to.cold = exec.mounts, exec.limits, exec.container
		if change != keepLimits {
			to.limits = a.changeLimits(spec, change, refused)
		}
		select {
		case <-a.greeted:
			to.attachInRun = a.session.copies != nil || a.startErr != nil || a.session.points.attach(exec.mounts) != nil
		default:
			to.attachInRun = true
		}
	})
}

// enlarge changes the limits of a container that was taken, and that waited for its project, to the
// limits of one that serves.
func (a *standby) enlarge(spec Spec, change limitChange, refused func(error)) {
	a.assignment = &assignment{
		done: make(chan struct{}), limitsLater: change == changeLater, refused: refused,
		cold: a.engine.container(a.execID, spec, a.mounts.Mounts),
	}
	a.limits, a.assignment.limits = limitsOf(spec), a.changeLimits(spec, change, refused)
	close(a.assignment.done)
}

// limitChange is whether and when a container gets other limits than it was started with.
type limitChange int

const (
	keepLimits  limitChange = iota
	changeFirst             // before it is used
	changeLater             // it serves meanwhile, and its first job is not slowed by it
)

// awaitAssignment waits for the goroutine of assign and returns Prepare's error. After an error the
// caller must give the container back or discard it. It returns nil if assign was not called.
func (a *standby) awaitAssignment() error {
	if a.assignment == nil {
		return nil
	}
	<-a.assignment.done
	return a.assignment.err
}

// Mounts waits for the assignment.
func (a *standby) Mounts() []Mount {
	_ = a.awaitAssignment()
	return a.mounts.Mounts
}

// Args waits for the assignment, which may change the limits.
func (a *standby) Args() []string {
	_ = a.awaitAssignment()
	return a.allocation.Args()
}

// unassign undoes assign, so that the container may serve another exec. It gets a new exec id,
// because the present one may be on record. unassign returns false when the container was given a
// job, has other limits now, or keeps its directories.
func (a *standby) unassign() bool {
	_ = a.awaitAssignment()
	to := a.assignment
	if !a.is(taken) || !a.session.anyProject() || to != nil && to.limits != nil || !a.session.points.detach() {
		return false
	}
	a.mounts.drop()
	a.execID, a.mounts, a.attached, a.assignment = a.engine.cfg.NewID(), MountSet{}, false, nil
	return true
}

// changeLimits changes the limits of a container, as soon as it is ready, to the limits of spec.
// It returns a channel with the result. If it fails, Run replaces the container. It calls failed
// unless the owner has ended the container.
func (a *standby) changeLimits(spec Spec, change limitChange, failed func(error)) chan error {
	spec.Limits, spec.Serve = limitsOf(spec), false
	if a.session.anyProject() {
		spec.ProjectID = ""
	}
	a.container.Spec = spec
	result := make(chan error, 1)
	a.engine.teardown.Go(func() {
		<-a.greeted // it may have been taken while it was being started
		if a.startErr != nil {
			result <- a.startErr
			return
		}
		if change == changeLater {
			if !a.waitForLimits() {
				result <- errEnded
				return
			}
			defer func() { <-a.engine.later }()
		}
		ctx, cancel := context.WithTimeout(context.Background(), limitTimeout)
		defer cancel()
		err := a.engine.cfg.Driver.ChangeLimits(ctx, a.session.name, spec.Limits)
		switch {
		case err == nil:
			a.engine.changes.Store(true)
		case a.is(taken): // else the container was ended meanwhile
			failed(err)
		}
		result <- err
	})
	return result
}

// waitForLimits waits until no other container gets limits: many sessions that begin at once would
// slow each other's commands. False: the container has ended. Else the caller receives from later
// when this one has its limits.
func (a *standby) waitForLimits() bool {
	ended := a.session.proc.Done()
	select {
	case <-time.After(refillDelay):
	case <-ended:
		return false
	}
	select {
	case a.engine.later <- struct{}{}:
		return true
	case <-ended:
		return false
	}
}

var errEnded = errors.New("the container has ended")

// limitTimeout is far more than the 30 ms of a call, and less than a cold start takes on a machine
// that slow.
const limitTimeout = 2 * time.Second

// refusalGrace is how long a container that did not get its limits may take to end for another
// reason, which is then why.
const refusalGrace = time.Second

// followLimits ends a container that serves when it does not get its limits.
func (a *standby) followLimits(r *Resident) {
	to := a.assignment
	if to == nil || to.limits == nil || !to.limitsLater {
		return
	}
	a.engine.teardown.Go(func() {
		err := <-to.limits
		if err == nil || r.ending() {
			return
		}
		select {
		case <-r.Done(): // an engine changes nothing of a container that is about to end
		case <-time.After(refusalGrace):
			to.refused(err)
			r.Stop()
		}
	})
}
