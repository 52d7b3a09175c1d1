package userservers

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/sandbox"
)

// Manager has the servers of all users. It is safe for concurrent use.
type Manager struct {
	cfg   Config
	ended context.Context // ends all processes
	end   context.CancelFunc
	open  context.Context // ends starts and the sweep
	shut  context.CancelFunc
	work  sync.WaitGroup

	onChange func(projectID string)

	mu      sync.Mutex
	slots   map[slotKey]*slot
	running map[string]int // processes that run or start, by user
	started map[string]int // the same, by the token that started them
	closed  bool           // spawn refuses
}

type slotKey struct {
	project string
	def     *Server
}

func (s *slot) key() slotKey { return slotKey{s.user.ProjectID(), s.def} }

// New makes a Manager. The caller must call Close. It starts nothing yet.
func New(cfg Config) *Manager {
	cfg.setDefaults()
	m := &Manager{cfg: cfg, onChange: func(string) {}, slots: map[slotKey]*slot{}, running: map[string]int{}, started: map[string]int{}}
	m.ended, m.end = context.WithCancel(context.Background())
	m.open, m.shut = context.WithCancel(m.ended)
	m.spawn(m.sweep)
	return m
}

// OnChange has f called when the tools of a workspace have changed. It must be called before the
// first Ensure.
func (m *Manager) OnChange(f func(projectID string)) { m.onChange = f }

func (m *Manager) changed(user sandbox.User) { m.onChange(user.ProjectID()) }

// spawn runs f in a goroutine that Close waits for; false after Close.
func (m *Manager) spawn(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.work.Go(f)
	return true
}

// over reports whether Drain or Close was called.
func (m *Manager) over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// userOf is the user of a workspace.
func userOf(projectID string) (user sandbox.User, ok bool) {
	agent, id, ok := strings.Cut(projectID, "~")
	return sandbox.User{AgentID: agent, ID: id}, ok && id != ""
}

// slotsOf returns the slots of a workspace, in the order of their names.
func (m *Manager) slotsOf(projectID string) (all []*slot) {
	user, ok := userOf(projectID)
	if !ok {
		return nil
	}
	for _, def := range m.cfg.of(user.AgentID) {
		all = append(all, m.slot(def, user))
	}
	return all
}

func (m *Manager) slot(def *Server, user sandbox.User) *slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := slotKey{user.ProjectID(), def}
	s := m.slots[key]
	if s == nil {
		s = &slot{m: m, def: def, user: user, used: m.cfg.Now()}
		m.slots[key] = s
	}
	return s
}

// Ensure starts the servers of a workspace whose tools are not known, for the holder of a token who
// may use the workspace, and waits for them for a few seconds. OnChange reports servers that take
// longer.
func (m *Manager) Ensure(ctx context.Context, projectID, token string) {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	var starts []*attempt
	for _, s := range m.slotsOf(projectID) {
		s.mu.Lock()
		if !s.known {
			if a, err := s.start(token); err == nil && a != nil {
				starts = append(starts, a)
			}
		}
		s.mu.Unlock()
	}
	for _, a := range starts {
		select {
		case <-a.done:
		case <-ctx.Done():
			return
		}
	}
}

// Offered returns the tools of a workspace's servers as far as they are known. It starts nothing.
func (m *Manager) Offered(projectID string) (all []*tools.Tool) {
	for _, s := range m.slotsOf(projectID) {
		all = append(all, s.offered()...)
	}
	return all
}

// Running is how many processes run or start now.
func (m *Manager) Running() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, of := range m.running {
		n += of
	}
	return n
}

// reserve counts a process that will start. At a limit it ends the process that has been idle
// longest among the processes that count for the limit.
func (m *Manager) reserve(user sandbox.User, token string) error {
	maxToken := max(1, m.cfg.Max*3/4)
	if token == "" || token == sandbox.Tokenless {
		maxToken = m.cfg.Max
	}
	for {
		m.mu.Lock()
		of, by, all := m.running[user.ID], m.started[token], 0
		for _, n := range m.running {
			all += n
		}
		if of < m.cfg.MaxUser && by < maxToken && all < m.cfg.Max {
			m.running[user.ID]++
			m.started[token]++
			m.mu.Unlock()
			return nil
		}
		candidates := slices.Collect(maps.Values(m.slots))
		m.mu.Unlock()
		ending := longestIdle(candidates, func(s *slot) bool {
			switch {
			case of >= m.cfg.MaxUser:
				return s.user.ID == user.ID
			case by >= maxToken:
				return s.current.token == token
			}
			return true
		})
		switch {
		case ending != nil:
			<-ending.freed // it is killed if it does not end by itself
		case of >= m.cfg.MaxUser:
			return sandbox.Busy("all %d MCP servers that one user may have at once are in use; try again when their calls have ended",
				m.cfg.MaxUser)
		case by >= maxToken:
			return sandbox.Busy("all %d MCP servers that one token may run at once are in use; try again when their calls have ended",
				maxToken)
		default:
			return sandbox.Busy("all %d MCP servers that this node runs at once are in use; try again shortly", m.cfg.Max)
		}
	}
}

// longestIdle ends the process that has been idle longest among the processes for which counts is
// true, and returns it; nil: none is idle.
func longestIdle(candidates []*slot, counts func(*slot) bool) *process {
	var oldest *slot
	var since time.Time
	for _, s := range candidates {
		s.mu.Lock()
		if p := s.current; p != nil && p.calls == 0 && counts(s) && (oldest == nil || s.used.Before(since)) {
			oldest, since = s, s.used
		}
		s.mu.Unlock()
	}
	if oldest == nil {
		return nil
	}
	oldest.mu.Lock()
	defer oldest.mu.Unlock()
	p := oldest.current
	if p == nil || p.calls > 0 || !counts(oldest) { // it was used meanwhile
		return nil
	}
	oldest.retire(p)
	return p
}

// free undoes reserve.
func (m *Manager) free(user sandbox.User, token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[user.ID]--; m.running[user.ID] == 0 {
		delete(m.running, user.ID)
	}
	if m.started[token]--; m.started[token] == 0 {
		delete(m.started, token)
	}
}

// all returns the slots of all users.
func (m *Manager) all() []*slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.slots))
}

// sweep ends idle processes and the processes of tokens that are no longer valid. It forgets unused
// servers.
func (m *Manager) sweep() {
	ticker := time.NewTicker(m.cfg.Sweep)
	defer ticker.Stop()
	for {
		select {
		case <-m.open.Done():
			return
		case <-ticker.C:
		}
		valid := map[string]bool{}
		var unused []unusedSlot
		for _, s := range m.all() {
			since, used := s.sweep(func(token string) bool {
				known, asked := valid[token]
				if !asked {
					known = m.valid(token)
					valid[token] = known
				}
				return known
			})
			if !used {
				unused = append(unused, unusedSlot{s, since})
			}
		}
		m.forgetOldest(unused)
	}
}

// valid is true when the store cannot tell.
func (m *Manager) valid(token string) bool {
	if token == "" || token == sandbox.Tokenless {
		return true
	}
	err := m.cfg.Valid(m.ended, token)
	return !fault.Is(err, fault.TokenRevoked) && !fault.Is(err, fault.Unauthenticated)
}

// sweep ends the process if it is idle or worn, or if its token is no longer valid. used is false
// if there is none, since a time.
func (s *slot) sweep(valid func(token string) bool) (since time.Time, used bool) {
	lifetime, _ := s.m.cfg.Bounds()
	s.mu.Lock()
	p, starting, since := s.current, s.starting, s.used
	now := s.m.cfg.Now()
	idle := now.Sub(since)
	switch {
	case p != nil && p.calls == 0 && (idle >= s.def.Idle || p.expired(now, lifetime)):
		s.retire(p)
	case p == nil && starting == nil && idle >= forgetAfter:
		s.m.forget(s)
	}
	s.mu.Unlock()
	if p == nil || valid(p.token) { // valid asks the store: not under mu
		return since, p != nil || starting != nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill(p)
	return since, true
}

// unusedSlot had no process when sweep saw it.
type unusedSlot struct {
	slot  *slot
	since time.Time
}

// forgetOldest forgets unused slots until at most maxSlots are left, beginning with the slots that
// have been unused longest.
func (m *Manager) forgetOldest(unused []unusedSlot) {
	if len(unused) <= maxSlots {
		return
	}
	slices.SortFunc(unused, func(a, b unusedSlot) int { return a.since.Compare(b.since) })
	for _, one := range unused[:len(unused)-maxSlots] {
		s := one.slot
		s.mu.Lock()
		if s.current == nil && s.starting == nil {
			m.forget(s)
		}
		s.mu.Unlock()
	}
}

func (m *Manager) forget(s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key := s.key(); m.slots[key] == s {
		delete(m.slots, key)
	}
}

// keep undoes forget for a slot that is in use after all; false if another is in its place.
func (m *Manager) keep(s *slot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := s.key()
	if m.slots[key] == nil {
		m.slots[key] = s
	}
	return m.slots[key] == s
}

// Drain ends idle processes at once, and the others when their calls have ended, or when ctx does.
// Nothing starts any more. Safe to call twice.
func (m *Manager) Drain(ctx context.Context) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.shut()
	for _, s := range m.all() {
		s.mu.Lock()
		if s.current != nil {
			s.retire(s.current)
		}
		s.mu.Unlock()
	}
	idle := make(chan struct{})
	go func() {
		m.work.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// Close ends all processes and waits for their end. Safe to call twice.
func (m *Manager) Close() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	m.Drain(now)
	m.end()
	m.work.Wait()
}
