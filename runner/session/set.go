// Package session keeps the containers of sessions: an exec whose container stays, in which other
// execs run. To runner, both are slots: the slot of a session holds the container until the session
// ends, the slot of an exec in it runs one job there. Rows, output and artifacts are runner's.
package session

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"secbox/engine"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/policy"
)

// Engine gives containers; engine.Engine does, with slots that are Keepers.
type Engine interface {
	Acquire(ctx context.Context, spec engine.Spec) (engine.Slot, error)
}

// Config configures Set.
type Config struct {
	Engine      Engine
	Max         int // sessions on this node
	MaxPerToken int // of them of one token; a request without a token has no such bound
	AtOnce      int // execs in one session
	// Imports are modules that the first interpreter of Python imports before it has a cell. If
	// there are any, a session starts it at once.
	Imports []string
	Now     func() time.Time
	NewID   func() string
}

// Why a session ends by itself; causes of the end of its slot's context.
var (
	ErrIdle    = errors.New("ended because it had no exec for its idle_ms")
	ErrExpired = errors.New("ended at the end of its ttl_ms")
)

// Terms are what a session was started with.
type Terms struct {
	Token    string            // empty: none
	Idle     time.Duration     // without an exec, after which it ends
	TTL      time.Duration     // from the start of its container
	Env      map[string]string // of its execs; an exec's own replace them
	Cwd      string            // of its interpreters
	Snapshot policy.Snapshot
	// Watch begins to watch what the session writes, until end is called: while an exec or an
	// interpreter runs.
	Watch func() (end func())
	Image engine.Image
	// Used gets what the container used, at its end.
	Used func(Samples)
}

// State is a running session as it is now.
type State struct {
	Terms
	ID            string
	ProjectID     string
	Running       int   // execs in it now
	Execs         int64 // execs so far
	StartedAt     time.Time
	ExpiresAt     time.Time
	IdleExpiresAt time.Time // zero while it is in use
	Contexts      []ContextState
}

// Set are the sessions of this node. It is safe for concurrent use.
type Set struct {
	cfg Config

	mu       sync.Mutex
	all      map[string]*live // whose container runs, by id
	held     int              // slots given out by Hold
	byToken  map[string]int   // of them
	draining func(*live)      // ends a session without execs; nil: not draining
	totals   Totals
}

// live is a session whose container runs.
type live struct {
	of       *Set
	id       string
	project  string
	terms    Terms
	resident *engine.Resident
	end      func(cause error)
	leaving  sync.WaitGroup // uses of it
	watch    watch
	usage    *usage
	// onConnection carries the connections of interpreters, which belong to the session; nil: they
	// have no network.
	onConnection func(context.Context, net.Conn)
	networkCA    string // see engine.Job

	// Guarded by Set.mu.
	running  int // execs
	inside   int // programs of Inside.Run
	watching int // programs of Inside.Watch
	dialed   int // connections of Dial
	ports    *ports
	execs    int64
	started  time.Time
	expires  time.Time
	contexts []*interpreter
	ahead    *interpreter    // of Python, for the first context; nil: none
	lost     map[string]bool // names of interpreters that have ended
	turns    admission.Locks // of execs, by the name of their context; also while its interpreter is replaced
	idleAt   time.Time
	expiry   *time.Timer
	idle     *time.Timer
	over     bool
}

// New makes an empty set.
func New(cfg Config) *Set {
	return &Set{cfg: cfg, all: map[string]*live{}, byToken: map[string]int{}}
}

// Count is how many sessions there are, starting ones included.
func (s *Set) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Totals counts from the start of the program.
type Totals struct {
	Started      int64 // sessions whose container has started
	ContextsLost int64 // interpreters that have ended, neither by request nor with their session
}

// Totals returns the present totals.
func (s *Set) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.totals
}

// State returns a running session; false if none has the id.
func (s *Set) State(id string) (State, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[id]
	if x == nil || x.over {
		return State{}, false
	}
	return x.state(), true
}

// Usage returns what the container of a running session has used so far.
func (s *Set) Usage(id string) Samples {
	s.mu.Lock()
	x := s.all[id]
	s.mu.Unlock()
	if x == nil {
		return Samples{}
	}
	return x.usage.samples()
}

func (x *live) state() State {
	st := State{
		Terms: x.terms, ID: x.id, ProjectID: x.project, Running: x.running, Execs: x.execs, StartedAt: x.started,
		ExpiresAt: x.expires,
	}
	if x.running+x.inside+x.dialed == 0 {
		st.IdleExpiresAt = x.idleAt
	}
	for _, it := range x.contexts {
		st.Contexts = append(st.Contexts, ContextState{it.Context, it.cells, it.started})
	}
	return st
}

// Extend sets the times of a session, from now on; zero leaves one as it is. fault.SessionEnded.
func (s *Set) Extend(id string, idle, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[id]
	if x == nil || x.over {
		return Ended(id)
	}
	now := s.cfg.Now()
	if ttl != 0 {
		x.expires = now.Add(ttl)
		x.terms.TTL = x.expires.Sub(x.started)
		x.expiry.Reset(ttl)
	}
	if idle != 0 {
		x.terms.Idle, x.idleAt = idle, now.Add(idle)
		if x.running+x.inside+x.dialed == 0 {
			x.idle.Reset(idle)
		}
	}
	return nil
}

// Ended is the error of a session that does not run on this node.
func Ended(id string) error {
	return fault.New(fault.SessionEnded, "session %s has ended; start another one", id)
}

// Drain ends each session as soon as no exec runs in it, and refuses new ones and new execs until
// resume is called.
func (s *Set) Drain(cause error) (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = func(x *live) { x.close(cause) }
	for _, x := range s.all {
		if x.running+x.inside == 0 {
			s.draining(x)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.draining = nil
	}
}

// close ends a session, with Set.mu held. Only the first cause counts.
func (x *live) close(cause error) {
	if !x.over {
		x.over = true
		x.expiry.Stop()
		x.idle.Stop()
		x.end(cause)
	}
}
