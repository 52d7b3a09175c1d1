package userservers

import (
	"context"
	"strings"
	"sync"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/tools"
)

// Manager has the servers of all users. It is safe for concurrent use.
type Manager struct {
	cfg   Config
	ended context.Context // ends all processes
	end   context.CancelFunc
	drain context.CancelFunc // ends sweep
	work  sync.WaitGroup

	onChange func(projectID string)

	mu      sync.Mutex
	slots   map[slotKey]*slot
	running map[string]int // processes that run or start, by user
	closed  bool           // spawn refuses
}

type slotKey struct {
	project string
	def     *Server
}

// New makes a Manager. The caller must call Close. It starts nothing yet.
func New(cfg Config) *Manager {
	cfg.setDefaults()
	m := &Manager{cfg: cfg, onChange: func(string) {}, slots: map[slotKey]*slot{}, running: map[string]int{}}
	m.ended, m.end = context.WithCancel(context.Background())
	sweeping, stop := context.WithCancel(m.ended)
	m.drain = stop
	m.spawn(func() { m.sweep(sweeping) })
	return m
}

// OnChange has f called when the tools of a workspace have changed. It must be called before the first Ensure.
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

// Ensure starts the servers of a workspace whose tools are not known, for the holder of a token who may use the workspace, and waits for them for a
// few seconds. OnChange tells of those that take longer.
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

// reserve counts a process that will start. At a limit it ends the process that has been idle longest.
func (m *Manager) reserve(user sandbox.User) error {
	for {
		m.mu.Lock()
		of, all := m.running[user.ID], 0
		for _, n := range m.running {
			all += n
		}
		if of < m.cfg.MaxUser && all < m.cfg.Max {
			m.running[user.ID]++
			m.mu.Unlock()
			return nil
		}
		candidates := make([]*slot, 0, len(m.slots))
		for _, s := range m.slots {
			if of < m.cfg.MaxUser || s.user.ID == user.ID {
				candidates = append(candidates, s)
			}
		}
		m.mu.Unlock()
		ending := longestIdle(candidates)
		if ending == nil {
			if of >= m.cfg.MaxUser {
				return sandbox.Busy("all %d MCP servers that one user may have at once are in use; try again when their calls have ended", m.cfg.MaxUser)
			}
			return sandbox.Busy("all %d MCP servers that this node runs at once are in use; try again shortly", m.cfg.Max)
		}
		<-ending.freed // it is killed if it does not end by itself
	}
}

// longestIdle ends the process that has been idle longest and returns it; nil: none is idle.
func longestIdle(candidates []*slot) *process {
	var oldest *slot
	var since time.Time
	for _, s := range candidates {
		s.mu.Lock()
		if p := s.current; p != nil && p.calls == 0 && (oldest == nil || s.used.Before(since)) {
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
	if p == nil || p.calls > 0 { // it was used meanwhile
		return nil
	}
	oldest.retire(p)
	return p
}

func (m *Manager) free(user sandbox.User) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running[user.ID]--; m.running[user.ID] == 0 {
		delete(m.running, user.ID)
	}
}

// all returns the slots of all users.
func (m *Manager) all() []*slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*slot, 0, len(m.slots))
	for _, s := range m.slots {
		all = append(all, s)
	}
	return all
}

// sweep ends idle processes and those of tokens that are no longer valid, and forgets servers that are not used.
func (m *Manager) sweep(ctx context.Context) {
	ticker := time.NewTicker(m.cfg.Sweep)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		valid := map[string]bool{}
		for _, s := range m.all() {
			s.sweep(func(token string) bool {
				known, asked := valid[token]
				if !asked {
					known = m.valid(token)
					valid[token] = known
				}
				return known
			})
		}
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

func (s *slot) sweep(valid func(token string) bool) {
	s.mu.Lock()
	p, idle := s.current, s.m.cfg.Now().Sub(s.used)
	switch {
	case p != nil && p.calls == 0 && idle >= s.def.Idle:
		s.retire(p)
	case p == nil && s.starting == nil && idle >= forgetAfter:
		s.m.forget(s)
	}
	s.mu.Unlock()
	if p == nil || valid(p.token) { // valid asks the store: not under mu
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill(p)
}

func (m *Manager) forget(s *slot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.slots, slotKey{s.user.ProjectID(), s.def})
}

// Drain ends idle processes at once, and the others when their calls have ended, or when ctx does. Nothing starts any more. Safe to call twice.
func (m *Manager) Drain(ctx context.Context) {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.drain()
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
