package mcpserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"secbox/api/problem"
	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/runner"
)

// sessionHeader has the session's id, in requests and in the answer that opens one.
const sessionHeader = "Mcp-Session-Id"

// sessions limits the number and the idle time of the SDK's sessions. A session is busy while it
// has an open HTTP request, including its stream of notifications, or a call in progress. Only idle
// sessions are ended.
type sessions struct {
	max         int
	maxPerToken int
	end         func(*session) // called without the lock

	mu      sync.Mutex
	byID    map[string]*session
	opening map[string]int // requests that may open a session, by token
	closed  bool
	posts   sync.WaitGroup // requests with messages; none is added after closed is set
}

type session struct {
	id      string
	token   string // the id of its only token
	project string // ?project_id= of the address that opened it, its only one
	busy    int
	used    time.Time // when it was last busy
	calls   map[*call]struct{}
	tools   *tools.Session // nil: not used yet
	held    *held          // nil: no sandbox session
}

func newSessions(limit int, end func(*session)) *sessions {
	return &sessions{max: limit, maxPerToken: max(1, limit*3/4), end: end, byID: map[string]*session{}, opening: map[string]int{}}
}

// use is the use of a session by one HTTP request, which may open it.
type use struct {
	of      *sessions
	post    bool
	session *session // nil: none yet
	opens   string   // the token, as long as this request may open a session
	project string
	ends    string // the session that this request ends
}

// unknownSession is the answer for a session that was never opened, or has ended: after a 404, the
// protocol's clients open a new one.
func unknownSession() *fault.Error {
	return fault.New(fault.UnknownSession,
		"the session in the header %s is unknown or has ended; start a new one with initialize, without the header", sessionHeader)
}

// enter registers an HTTP request; the caller must call leave. A request without a session may open
// one, which must be within the limits.
func (s *sessions) enter(r *http.Request, token, project string) (*use, error) {
	id := r.Header.Get(sessionHeader)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		e := fault.New(fault.ShuttingDown, "this node is shutting down; try another node, or try again shortly")
		e.RetryAfter = 5 * time.Second
		return nil, e
	}
	u := &use{of: s, post: r.Method == http.MethodPost, project: project}
	if id != "" || !u.post {
		defer s.mu.Unlock()
		if known := s.byID[id]; known != nil && known.token == token && known.project != project {
			return nil, fault.BadField("project_id", "is %q, and the session was started with %q: start a new session for another project",
				problem.Clip(project), problem.Clip(known.project))
		}
		if u.post {
			s.posts.Add(1)
		}
		if known := s.byID[id]; known != nil && known.token == token {
			known.busy++
			u.session = known
			if r.Method == http.MethodDelete {
				u.ends = id
				for c := range known.calls {
					c.cancel() // its result cannot be sent
				}
			}
		}
		return u, nil
	}
	victim, err := s.makeRoom(token)
	if err == nil {
		s.opening[token]++
		s.posts.Add(1)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if victim != nil {
		s.end(victim)
	}
	u.opens = token
	return u, nil
}

// makeRoom removes an idle session if a limit leaves no room for one more of token, and returns it
// for end. A token at its own limit loses one of its own, otherwise the token with the most
// sessions loses one. fault.QueueFull if all are busy.
func (s *sessions) makeRoom(token string) (victim *session, err error) {
	held, all := map[string]int{}, len(s.byID)
	for _, one := range s.byID {
		held[one.token]++
	}
	own := held[token]
	for t, n := range s.opening {
		all += n
		if t == token {
			own += n
		}
	}
	full := token != runner.Tokenless && own >= s.maxPerToken
	if !full && all < s.max {
		return nil, nil
	}
	for _, one := range s.byID {
		if one.busy > 0 || full && one.token != token {
			continue
		}
		if victim == nil || held[one.token] > held[victim.token] || held[one.token] == held[victim.token] && one.used.Before(victim.used) {
			victim = one
		}
	}
	if victim == nil {
		e := fault.New(fault.QueueFull, "server limit reached: all %d MCP sessions are in use; end one, or try again later", s.max)
		if full {
			e = fault.New(fault.QueueFull, "token limit reached: all %d MCP sessions of this token are in use; end one, or try again later",
				s.maxPerToken)
		}
		e.RetryAfter = 30 * time.Second
		return nil, e
	}
	s.remove(victim.id)
	return victim, nil
}

// doneOpening undoes the count of enter: the session has been opened, or will not be.
func (s *sessions) doneOpening(token string) {
	if s.opening[token]--; s.opening[token] == 0 {
		delete(s.opening, token)
	}
}

// opened registers the session that this request has opened, if the header of its answer has one.
func (u *use) opened(header http.Header) {
	id := header.Get(sessionHeader)
	if u.opens == "" || id == "" || u.session != nil {
		return
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.session = &session{id: id, token: u.opens, project: u.project, busy: 1, calls: map[*call]struct{}{}}
	u.of.byID[id] = u.session
	u.of.doneOpening(u.opens)
	u.opens = ""
}

func (u *use) leave() {
	if u.post {
		u.of.posts.Done()
	}
	u.of.mu.Lock()
	if u.opens != "" {
		u.of.doneOpening(u.opens)
	}
	if u.session != nil {
		u.session.busy--
		u.session.used = time.Now()
	}
	if u.ends != "" {
		u.of.remove(u.ends)
	}
	u.of.mu.Unlock()
	if u.ends != "" {
		u.of.end(u.session)
	}
}

// remove forgets a session, and what its tools have kept. The caller holds the lock.
func (s *sessions) remove(id string) {
	if one := s.byID[id]; one != nil && one.tools != nil {
		one.tools.Close()
	}
	delete(s.byID, id)
}

// begin registers a call, which is canceled with its session until done is called.
func (s *sessions) begin(id string, c *call) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byID[id]
	if one == nil {
		return func() {}
	}
	one.busy++
	one.calls[c] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(one.calls, c)
		one.busy--
		one.used = time.Now()
	}
}

// toolsOf returns the state that the tools of package tools keep for a session, which begin makes
// at the first call.
func (s *sessions) toolsOf(id string, begin func() *tools.Session) *tools.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byID[id]
	if one == nil { // it has just ended
		state := begin()
		state.Close()
		return state
	}
	if one.tools == nil {
		one.tools = begin()
	}
	return one.tools
}

// heldBy returns the sandbox sessions of a session.
func (s *sessions) heldBy(id string) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.byID[id]
	if one == nil { // it has just ended
		return &held{over: true}
	}
	if one.held == nil {
		one.held = &held{}
	}
	return one.held
}

// expire ends idle sessions until ctx ends.
func (s *sessions) expire(ctx context.Context, idle time.Duration) {
	ticker := time.NewTicker(max(idle/20, time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, one := range s.expired(now.Add(-idle)) {
				s.end(one)
			}
		}
	}
}

func (s *sessions) expired(before time.Time) (ended []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.byID {
		if one.busy == 0 && one.used.Before(before) {
			s.remove(id)
			ended = append(ended, one)
		}
	}
	return ended
}

// close refuses new requests. answered is closed when all requests with messages have left.
func (s *sessions) close() (answered <-chan struct{}) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.posts.Wait()
		close(done)
	}()
	return done
}

// cancelAll cancels the calls of all sessions.
func (s *sessions) cancelAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byID {
		for c := range one.calls {
			c.cancel()
		}
	}
}
