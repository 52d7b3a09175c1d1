package session

import (
	"context"
	"io"
	"time"

	"secbox/engine"
	"secbox/fault"
)

// Hold takes a place for a session, and returns the slot that holds its container: its Run starts
// the container, calls ready, and returns when the session has ended. end must end the context of
// Run. fault.SessionLimit when there are too many.
func (s *Set) Hold(ctx context.Context, spec engine.Spec, terms Terms, end func(cause error)) (engine.Slot, error) {
	s.mu.Lock()
	switch {
	case s.cfg.Max == 0:
		s.mu.Unlock()
		return nil, fault.New(fault.SessionLimit, "sessions are off on this node (the setting sandbox.sessions.max is 0)")
	case s.held >= s.cfg.Max:
		s.mu.Unlock()
		return nil, busy("%d sessions run on this node, which is the most; end one, or try again later (the setting sandbox.sessions.max "+
			"raises the limit)", s.cfg.Max)
	case terms.Token != "" && s.byToken[terms.Token] >= s.cfg.MaxPerToken:
		s.mu.Unlock()
		return nil, busy("%d sessions of this token run, which is the most; end one (the setting sandbox.sessions.max_per_token raises the "+
			"limit)", s.cfg.MaxPerToken)
	}
	s.held++
	s.byToken[terms.Token]++
	s.mu.Unlock()
	h := &hold{of: s, project: spec.ProjectID, terms: terms, end: end}
	spec.Serve = true
	slot, err := s.cfg.Engine.Acquire(ctx, spec)
	if err != nil {
		h.release()
		return nil, err
	}
	h.Keeper = slot.(engine.Keeper)
	return h, nil
}

func busy(format string, args ...any) error {
	e := fault.New(fault.SessionLimit, format, args...)
	e.RetryAfter = time.Second
	return e
}

// hold is the slot of a session.
type hold struct {
	engine.Keeper
	of      *Set
	project string
	terms   Terms
	end     func(error)
	usage   usage
}

// Discard gives the place back.
func (h *hold) Discard() {
	h.release()
	h.Keeper.Discard()
}

func (h *hold) release() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.held--
	if h.of.byToken[h.terms.Token]--; h.of.byToken[h.terms.Token] == 0 {
		delete(h.of.byToken, h.terms.Token)
	}
}

// Run holds the container until ctx ends, or the container does. When it returns, no process of it
// is alive, and every exec in it has its artifacts.
func (h *hold) Run(ctx context.Context, job engine.Job, _, _ io.Writer) (engine.Exit, error) {
	defer h.release()
	resident, err := h.Serve(ctx, engine.Reports{OnUnlinked: job.OnUnlinked, OnUsage: func(u engine.Usage) {
		job.OnUsage(u)
		h.usage.add(u, h.of.cfg.Now())
	}})
	if err != nil {
		return engine.Exit{}, err
	}
	x := h.of.open(h, resident, job)
	job.OnStart()
	var lost error
	select {
	case <-ctx.Done():
	case <-resident.Done():
		lost = fault.New(fault.Internal, "the session's container ended: it, or its CLI, was killed from outside")
	}
	h.of.remove(x)
	resident.Stop()
	x.leaving.Wait()
	x.watch.stop()
	h.terms.Used(h.usage.samples())
	if lost != nil {
		return engine.Exit{}, &engine.RunError{Started: true, Dead: true, Err: lost}
	}
	return engine.Exit{Killed: true}, nil
}

// open makes the session of a container that has started.
func (s *Set) open(h *hold, resident *engine.Resident, job engine.Job) *live {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	x := &live{
		of: s, id: h.ExecID(), project: h.project, terms: h.terms, resident: resident, end: h.end, usage: &h.usage, lost: map[string]bool{},
		onConnection: job.OnConnection, networkCA: job.NetworkCA,
		started: now, expires: now.Add(h.terms.TTL), idleAt: now.Add(h.terms.Idle),
	}
	x.expiry = time.AfterFunc(h.terms.TTL, func() { s.expire(x) })
	x.idle = time.AfterFunc(h.terms.Idle, func() { s.endIdle(x) })
	s.all[x.id] = x
	x.startAhead(resident.Limits().MemoryMB)
	s.totals.Started++
	if s.draining != nil {
		s.draining(x)
	}
	return x
}

// expire ends a session at the end of its time.
func (s *Set) expire(x *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cfg.Now().Before(x.expires) { // it may have got more time just now
		x.close(ErrExpired)
	}
}

// endIdle ends a session for idleness, unless an exec has begun meanwhile.
func (s *Set) endIdle(x *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := s.cfg.Now(); {
	case x.running+x.inside+x.dialed > 0 || now.Before(x.idleAt):
	case now.Before(x.expires):
		x.close(ErrIdle)
	default: // both at once
		x.close(ErrExpired)
	}
}

// remove ends the use of a session: no exec can begin in it.
func (s *Set) remove(x *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.over = true
	x.expiry.Stop()
	x.idle.Stop()
	delete(s.all, x.id)
}
