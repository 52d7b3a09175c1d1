package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"secbox/engine/dockercli"
	"secbox/fault"
)

// stepSharing does what is due for containers that wait for any project: the trial, and
// setDefaults. It returns how long to wait before the next call.
func (p *Pool) stepSharing() time.Duration {
	p.mu.Lock()
	s := &p.sharing
	busy := p.draining || p.misses > 0 || p.stats.MemoryLow
	wait := s.againAt.Sub(p.cfg.Now())
	try := s.trial == due && (s.asked || p.cfg.Ready > 0)
	ask := s.trial == passed && s.unset
	p.mu.Unlock()
	switch {
	case busy || !try && !ask:
		return tick
	case within(wait, mostTrialRetry):
		return min(tick, wait)
	case try:
		p.runTrial()
		return 0
	default:
		return p.setDefaults()
	}
}

// The pauses after a trial that failed for a reason that may pass, such as an engine that is away;
// doubling.
const (
	leastTrialRetry = time.Second
	mostTrialRetry  = 10 * time.Second
)

// backOff pauses the trial and setDefaults; p.mu is held.
func (s *sharing) backOff(now time.Time) time.Duration {
	pause := min(leastTrialRetry<<min(s.tries, 10), mostTrialRetry)
	s.tries++
	s.againAt = now.Add(pause)
	return pause
}

// runTrial lets containers wait for any project if one shows that it sees attached directories;
// until then, and otherwise, they wait for their project.
func (p *Pool) runTrial() {
	runtime, err := p.seesAttached(p.ctx)
	if docker, ok := errors.AsType[*dockercli.Error](err); ok && docker.Kind == dockercli.BadMount {
		err = errUnseen // its machine has no such directory
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.sharing
	switch {
	case p.ctx.Err() != nil:
	case err == nil:
		s.tries, s.runtime = 0, runtime
		s.trial, p.stats.NotShared = passed, ""
		p.decide()
		if !p.draining {
			p.replaceUnshared()
			p.cfg.Log.Info("containers that wait serve any project")
		}
	case errors.Is(err, errUnseen), errors.Is(err, errors.ErrUnsupported):
		p.stopSharing(failed, reasonOf(err))
		p.dropShared()
		p.cfg.Log.Warn("each container that waits serves one project only: directories cannot be attached to a container that runs",
			"error", err)
	default:
		p.stopSharing(due, NotKnownYet+reasonOf(err))
		if s.tries == 0 {
			p.cfg.Log.Warn("each container that waits serves one project only until a container shows that directories can be attached",
				"error", err)
		}
		s.backOff(p.cfg.Now())
	}
}

// errUnseen is the failure of an engine that does not get the mounts of this process.
var errUnseen = errors.New("the engine does not see the mounts of this machine: it runs rootless, or on another machine, such as that of " +
	"Docker Desktop, " +
	"or it or core-api has a mount namespace of its own, as by PrivateTmp= of systemd; run both as root on this machine, in its own " +
	"mount namespace")

// reasonOf describes the failure of seesAttached for a user.
func reasonOf(err error) string {
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return ours.Message + "; the log has the reason"
	}
	return err.Error()
}

// dropShared drops the containers for any project, which were started on an earlier engine; p.mu is
// held.
func (p *Pool) dropShared() {
	given := p.dropWhere(func(s *bucket, _ *pooled) bool { return s.any })
	p.stats.Dropped.Stale += int64(len(given))
	dropAll(given)
	maps.DeleteFunc(p.buckets, func(_ key, s *bucket) bool { return s.any })
	p.sharing.defaults, p.sharing.unset, p.stats.Ready = nil, p.cfg.Ready > 0, 0
}

// replaceUnshared replaces containers for one project by containers for any project, where these
// can serve it; p.mu is held.
func (p *Pool) replaceUnshared() {
	now := p.cfg.Now()
	replaced := func(s *bucket) bool { return !s.any && p.sharing.with(s.spec) }
	given := p.dropWhere(func(s *bucket, _ *pooled) bool { return replaced(s) })
	p.stats.Dropped.Stale += int64(len(given))
	dropAll(given)
	for _, s := range p.byDemand() {
		if replaced(s) {
			delete(p.buckets, s.key)
			any := p.bucket(s.spec)
			any.demand.add(s.demand.at(now), now)
			any.demand.raise(p.enough(any, now), now)
		}
	}
}

// setDefaults asks for the default spec, and has its Ready containers started.
func (p *Pool) setDefaults() time.Duration {
	p.mu.Lock()
	p.sharing.unset = false // unless an image is replaced meanwhile
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, defaultTimeout)
	defer cancel()
	spec, err := p.cfg.Default(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.sharing
	switch {
	case p.draining || s.unset || s.trial != passed:
		return 0
	case err != nil:
		s.unset = true // the image has just gone, or the engine
		return s.backOff(p.cfg.Now())
	case !s.with(spec): // another runtime than at the trial
		s.trial, s.unset = due, true
		return 0
	}
	s.tries = 0
	if s.defaults != nil {
		s.defaults.ready = 0
	}
	s.defaults = p.bucket(spec)
	s.defaults.ready = min(p.cfg.Ready, p.max)
	p.stats.Ready = s.defaults.ready
	return 0
}

// defaultTimeout is for the name of an image, which the engine is asked for.
const defaultTimeout = 15 * time.Second

// seesAttached starts a container, attaches a directory, and runs a job that makes a directory in
// it. It returns the runtime. errors.ErrUnsupported: it was not seen, or never will be.
func (p *Pool) seesAttached(ctx context.Context) (runtime string, err error) {
	limited, cancel := context.WithTimeout(ctx, defaultTimeout)
	spec, err := p.cfg.Default(limited)
	cancel()
	if err != nil {
		return "", err
	}
	dir, err := p.cfg.Base.TempDir()
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(filepath.Join(dir, "made")); _ = os.Remove(dir) }()
	if err := giveTo(spec.User, dir); err != nil {
		return "", fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	died := make(chan error, 1)
	container, err := p.cold.StartStandby(ctx, spec, p.cfg.Base, standbyEvents{ready: func() {}, died: func(err error) { died <- err }})
	if err != nil {
		return "", err
	}
	select {
	case <-container.greeted:
	case <-ctx.Done():
	}
	if !container.take() {
		return "", <-died
	}
	spec.Prepare = func(context.Context, string) (MountSet, error) {
		return MountSet{
			Mounts: []Mount{{Source: dir, Target: workspaceTarget + "/work"}},
			Open: func() ([]*os.File, error) {
				f, err := os.Open(dir)
				return []*os.File{f}, err
			},
		}, nil
	}
	container.assign(ctx, spec, keepLimits, nil)
	if err := container.awaitAssignment(); err != nil {
		container.Discard()
		return "", err
	}
	// init makes the directory that the job starts in.
	exit, err := container.Run(ctx, Job{Argv: []string{InitPath}, Cwd: workspaceTarget + "/work/made", Timeout: 10 * time.Second},
		io.Discard, io.Discard)
	if err != nil {
		return "", err
	}
	if exit.TimedOut || exit.Killed {
		return "", errors.New("the container did not run a job in time")
	}
	if _, err := os.Lstat(filepath.Join(dir, "made")); err != nil {
		return "", fmt.Errorf("%w (%s)", errUnseen, exit.StartError)
	}
	return spec.Runtime, nil
}
