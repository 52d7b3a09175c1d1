package userservers

import (
	"context"
	"sync"
	"time"

	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/sandbox"
)

// slot is one server of one user's agent: its process, if there is one, and what is known about it.
// Manager.mu may be locked while mu is.
type slot struct {
	m    *Manager
	def  *Server
	user sandbox.User

	mu       sync.Mutex
	current  *process  // gets new calls; nil: none
	starting *attempt  // nil: none
	failures int       // in a row
	notUntil time.Time // after a failure, when the next start may be
	failure  error     // the last one
	listed   []*tools.Tool
	known    bool      // listed is the server's list, not its status
	statusOf string    // the failure that the status in listed tells
	used     time.Time // when it was last used
}

// attempt is a start under way.
type attempt struct {
	done chan struct{}
	err  error // after done
}

// start returns the start under way, or begins one; nil: there is a process. It fails if a start
// failed a moment ago, with that error. mu is held.
func (s *slot) start(token string) (*attempt, error) {
	s.used = s.m.cfg.Now()
	if s.current != nil || s.starting != nil {
		return s.starting, nil
	}
	if wait := s.notUntil.Sub(s.used); wait > 0 {
		e := *fault.From(s.failure)
		e.RetryAfter = wait
		return nil, &e
	}
	if !s.m.keep(s) {
		return nil, sandbox.Busy("the MCP server %s is being started; try again shortly", s.def.Name)
	}
	a := &attempt{done: make(chan struct{})}
	if !s.m.spawn(func() { s.run(token, a) }) {
		return nil, shuttingDown()
	}
	s.starting = a
	return a, nil
}

// run starts a process, and looks after it until it has ended.
func (s *slot) run(token string, a *attempt) {
	err := s.m.reserve(s.user, token)
	if err != nil {
		s.settle(a, nil, err)
		return
	}
	p, listed, err := s.m.launch(s.def, s.user, token)
	if err != nil {
		s.m.free(s.user, token)
		s.m.cfg.Log.Warn("an MCP server of a user did not start", "server", s.def.Name, "user", s.user.ProjectID(), "error", err)
		s.settle(a, nil, err)
		return
	}
	s.m.cfg.Log.Info("an MCP server of a user runs", "server", s.def.Name, "user", s.user.ProjectID(), "exec_id", p.execID)
	s.learn(listed)
	s.settle(a, p, nil)
	s.watch(p)
}

// settle ends an attempt.
func (s *slot) settle(a *attempt, p *process, err error) {
	s.mu.Lock()
	s.starting, s.current, s.used = nil, p, s.m.cfg.Now()
	if err != nil {
		s.fail(err)
	} else if s.m.over() {
		s.retire(p)
	}
	a.err = err
	close(a.done)
	s.mu.Unlock()
	s.m.changed(s.user)
}

// watch waits for a process's end, and reads its tools again when they change.
func (s *slot) watch(p *process) {
	for p.stay.Err() == nil {
		select {
		case <-p.stay.Done():
		case <-p.changed:
			s.relist(p)
		}
	}
	p.close()
	s.mu.Lock()
	s.noteEnd(p)
	s.mu.Unlock()
	s.m.free(s.user, p.token)
	close(p.freed)
}

// noteEnd takes note of the end of a process, once. mu is held.
func (s *slot) noteEnd(p *process) {
	if p.endNoted {
		return
	}
	p.endNoted, s.used = true, s.m.cfg.Now()
	if s.current == p {
		s.current = nil
	}
	about := []any{"server", s.def.Name, "user", s.user.ProjectID(), "exec_id", p.execID}
	if p.wanted {
		s.m.cfg.Log.Info("an MCP server of a user was ended", about...)
		return
	}
	s.fail(p.why)
	s.m.cfg.Log.Warn("an MCP server of a user ended", append(about, "error", p.why)...)
}

// relist reads the tools again, once in relistPause.
func (s *slot) relist(p *process) {
	ctx, cancel := context.WithTimeout(p.stay, s.def.StartTimeout)
	defer cancel()
	if listed, err := s.m.list(ctx, p, s.user); err == nil {
		s.learn(listed)
		s.m.changed(s.user)
	}
	select {
	case <-p.stay.Done():
	case <-time.After(relistPause):
	}
}

// learn takes a new list. Tools that have not changed stay the same pointers.
func (s *slot) learn(listed []*tools.Tool) {
	if len(listed) == 0 { // so that a call can start it again
		listed = []*tools.Tool{s.m.unknown(s.def, s.user, "it lists none that the settings offer")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range listed {
		for _, before := range s.listed {
			if same(one, before) {
				listed[i] = before
			}
		}
	}
	s.listed, s.known = listed, true
}

// fail remembers the failure of a start, or of a process that ended by itself. mu is held. After an
// error of the sandbox, such as that the user's machine is offline or that the sandbox was closed,
// the next use tries again at once.
func (s *slot) fail(err error) {
	s.failure = err
	if fault.Is(err, fault.UpstreamFailed) {
		s.failures++
		s.notUntil = s.m.cfg.Now().Add(pause(s.failures))
	}
}

// acquire returns a process for one call, which must be released.
func (s *slot) acquire(ctx context.Context, token string) (*process, error) {
	for {
		p, a, err := s.take(token)
		if p != nil || err != nil {
			return p, err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if a.err != nil {
			return nil, a.err
		}
	}
}

// take takes the process for one call, or returns the start to wait for.
func (s *slot) take(token string) (*process, *attempt, error) {
	lifetime, _ := s.m.cfg.Bounds()
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.current; p != nil {
		switch {
		case p.over():
			s.noteEnd(p)
		case p.expired(s.m.cfg.Now(), lifetime):
			s.retire(p)
		case p.calls >= maxCalls:
			return nil, nil, sandbox.Busy("%d calls of the MCP server %s are in progress; try again when some have ended", p.calls,
				s.def.Name)
		default:
			p.calls++
			s.used = s.m.cfg.Now()
			return p, nil, nil
		}
	}
	a, err := s.start(token)
	return nil, a, err
}

// release ends the use of a process by a call. answered says that the server has done its part.
func (s *slot) release(p *process, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = s.m.cfg.Now()
	if answered {
		s.failures = 0
	}
	if p.calls--; p.retired && p.calls == 0 {
		s.finish(p)
	}
}

// retire gives a process no new calls, and ends it after the calls in progress. mu is held.
func (s *slot) retire(p *process) {
	if s.current == p {
		s.current, s.used = nil, s.m.cfg.Now()
	}
	if p.retired = true; p.calls == 0 {
		s.finish(p)
	}
}

// finish ends a process that is not in use. mu is held.
func (s *slot) finish(p *process) {
	p.wanted = true
	p.leave()
}

// kill ends a process at once, with its calls. mu is held.
func (s *slot) kill(p *process) {
	s.retire(p)
	p.wanted = true
	p.leave() // before end: its reason is not the exit code
	p.end()
}

// offered returns the tools of the server. While they are not known, it returns one tool, which
// starts the server and reports why it does not run.
func (s *slot) offered() []*tools.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known {
		return s.listed
	}
	why := ""
	if s.failure != nil {
		why = fault.From(s.failure).Message
	}
	if s.listed == nil || s.statusOf != why {
		s.listed, s.statusOf = []*tools.Tool{s.m.unknown(s.def, s.user, why)}, why
	}
	return s.listed
}

func shuttingDown() error {
	e := fault.New(fault.ShuttingDown, "this node is shutting down; try another one, or again shortly")
	e.RetryAfter = 5 * time.Second
	return e
}
