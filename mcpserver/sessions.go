package mcpserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"secbox/fault"
	"secbox/runner"
)

// sessionHeader names a session in requests, and in the answer that opens one.
const sessionHeader = "Mcp-Session-Id"

// sessions bounds the sessions that the SDK keeps: in number, and in how long one may be idle. A session is busy while an HTTP request
// of it is open, its stream of notifications included, or a call runs; only idle ones are ended.
type sessions struct {
	most int
	each int             // of one token
	end  func(id string) // ends one; called without the lock

	mu      sync.Mutex
	byID    map[string]*session
	opening map[string]int // that may become sessions, by token
	closed  bool
	posts   sync.WaitGroup // requests that carry messages; none is added once closed is set
}

type session struct {
	token string // the id of the one token that may use it
	busy  int
	used  time.Time // when it was busy last
	calls map[*call]struct{}
}

func newSessions(most int, end func(id string)) *sessions {
	return &sessions{most: most, each: max(1, most*3/4), end: end, byID: map[string]*session{}, opening: map[string]int{}}
}

// use is one HTTP request's hold on a session, or on the place for one.
type use struct {
	of      *sessions
	post    bool
	session *session // nil: none yet
	opens   string   // the token, while this request may open a session
	ends    string   // the session that this request ends, if the SDK agrees
}

// enter begins an HTTP request; leave ends it. A request without a session may open one: then there must be room.
func (s *sessions) enter(r *http.Request, token string) (*use, error) {
	id := r.Header.Get(sessionHeader)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		e := fault.New(fault.ShuttingDown, "this node is shutting down; try another one, or again shortly")
		e.RetryAfter = 5 * time.Second
		return nil, e
	}
	u := &use{of: s, post: r.Method == http.MethodPost}
	if id != "" || !u.post {
		defer s.mu.Unlock()
		if u.post {
			s.posts.Add(1)
		}
		if known := s.byID[id]; known != nil && known.token == token {
			known.busy++
			u.session = known
			if r.Method == http.MethodDelete {
				u.ends = id
				for c := range known.calls {
					c.cancel() // nobody can be told its result any more
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
	if victim != "" {
		s.end(victim)
	}
	u.opens = token
	return u, nil
}

// makeRoom says which session must go for one more of a token, if any must. The token with the most of them loses one first, and a token that
// has its share one of its own; fault.QueueFull when they are all busy.
func (s *sessions) makeRoom(token string) (victim string, err error) {
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
	full := token != runner.Tokenless && own >= s.each
	if !full && all < s.most {
		return "", nil
	}
	for id, one := range s.byID {
		if one.busy > 0 || full && one.token != token {
			continue
		}
		best := s.byID[victim]
		if best == nil || held[one.token] > held[best.token] || held[one.token] == held[best.token] && one.used.Before(best.used) {
			victim = id
		}
	}
	if victim == "" {
		e := fault.New(fault.QueueFull, "all %d MCP sessions of this server are in use; end one, or try again later", s.most)
		if full {
			e = fault.New(fault.QueueFull, "all %d MCP sessions that one token may have are in use; end one, or try again later", s.each)
		}
		e.RetryAfter = 30 * time.Second
		return "", e
	}
	delete(s.byID, victim)
	return victim, nil
}

// opened ends what makeRoom has counted: the session is there, or will not be.
func (s *sessions) opened(token string) {
	if s.opening[token]--; s.opening[token] == 0 {
		delete(s.opening, token)
	}
}

// opened is told the header of the answer, which names the session that this request has opened.
func (u *use) opened(header http.Header) {
	id := header.Get(sessionHeader)
	if u.opens == "" || id == "" || u.session != nil {
		return
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	u.session = &session{token: u.opens, busy: 1, calls: map[*call]struct{}{}}
	u.of.byID[id] = u.session
	u.of.opened(u.opens)
	u.opens = ""
}

// leave ends the request that enter began.
func (u *use) leave() {
	if u.post {
		u.of.posts.Done()
	}
	u.of.mu.Lock()
	defer u.of.mu.Unlock()
	if u.opens != "" {
		u.of.opened(u.opens)
	}
	if u.session != nil {
		u.session.busy--
		u.session.used = time.Now()
	}
	if u.ends != "" {
		delete(u.of.byID, u.ends)
	}
}

// begin registers a call, so that it ends with its session; the returned function takes it out again.
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

// expire ends sessions that have been idle for too long, until ctx ends.
func (s *sessions) expire(ctx context.Context, idle time.Duration) {
	look := time.NewTicker(max(idle/20, time.Second))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-look.C:
			for _, id := range s.expired(now.Add(-idle)) {
				s.end(id)
			}
		}
	}
}

func (s *sessions) expired(before time.Time) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, one := range s.byID {
		if one.busy == 0 && one.used.Before(before) {
			delete(s.byID, id)
			ids = append(ids, id)
		}
	}
	return ids
}

// close lets nobody in any more; answered is closed when everybody who was in has an answer.
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
