package mcpserver

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/skills"
)

// Packages tells what the user of a workspace can call.
type Packages interface {
	// Catalog is the catalog together with the packages of the user whose workspace has this project id, and for what is no workspace
	// the catalog. It is asked again and again.
	Catalog(ctx context.Context, projectID string) (*skills.Snapshot, error)
}

// users are the servers of sessions whose project is a user's workspace: each has the tools of that user and of nobody else. They are
// there as long as a session is, and so is the one goroutine that looks whether their packages have changed.
type users struct {
	server   *Server
	packages Packages
	every    time.Duration

	mu      sync.Mutex
	byKey   map[userKey]*user
	looking bool
	closed  bool
}

type userKey struct{ project, names string }

type user struct {
	key   userKey
	tools *toolSet
	held  int        // by requests that may open a session
	first sync.Mutex // held during the first look
	known bool       // there was one
}

// serverFor is where the session begins that a request opens; done is to be called when the request has ended. For a project that the
// caller may not use, and for one that is no workspace, it has the tools of the catalog: a call says what is wrong.
func (s *Server) serverFor(r *http.Request, c caller, names string) (server *mcp.Server, done func()) {
	everybodys, nothing := s.tools.servers[names], func() {}
	if s.users.packages == nil || r.Header.Get(sessionHeader) != "" || r.Method != http.MethodPost {
		return everybodys, nothing
	}
	project := c.ofSession()
	if !strings.Contains(project, "~") || !c.token.MayUse(project, "", "") { // as in <agentId>~<userId>
		return everybodys, nothing
	}
	u := s.users.hold(userKey{project, names})
	if u == nil {
		return everybodys, nothing
	}
	u.first.Lock()
	if !u.known {
		s.users.look(r.Context(), u)
		u.known = true
	}
	u.first.Unlock()
	return u.tools.servers[names], func() { s.users.release(u) }
}

// hold finds or makes the user's server; nil when the endpoint is closing.
func (m *users) hold(key userKey) *user {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	u := m.byKey[key]
	if u == nil {
		u = &user{key: key, tools: m.server.newToolSet(key.names)}
		m.byKey[key] = u
	}
	u.held++
	if !m.looking {
		m.looking = true
		m.server.background.Go(m.watch)
	}
	return u
}

func (m *users) release(u *user) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u.held--
}

// look makes the user's tools what they are now.
func (m *users) look(ctx context.Context, u *user) {
	snapshot, err := m.packages.Catalog(ctx, u.key.project)
	if err != nil {
		if ctx.Err() == nil {
			m.server.cfg.Logger.Warn("a user's packages cannot be looked at; their tools stay as they were", "project", u.key.project, "error", err)
		}
		if u.known {
			return
		}
		snapshot = m.server.cfg.Catalog.Now()
	}
	u.tools.sync(m.server, snapshot)
}

// watch looks at the packages of those who have a session, one after the other, and ends with the last of them. It rests at least three
// times as long as it has worked.
func (m *users) watch() {
	pause := m.every
	for {
		select {
		case <-m.server.ended.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		for _, u := range m.present() {
			if m.server.ended.Err() == nil {
				u.first.Lock()
				m.look(m.server.ended, u)
				u.first.Unlock()
			}
		}
		pause = max(m.every, 3*time.Since(began))
		m.mu.Lock()
		if len(m.byKey) == 0 {
			m.looking = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}

// present are the users who have a session; the others are forgotten.
func (m *users) present() []*user {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.byKey, func(_ userKey, u *user) bool { return u.held == 0 && !u.tools.inUse() })
	return slices.Collect(maps.Values(m.byKey))
}

// servers are those of all users.
func (m *users) servers() (all []*mcp.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.byKey {
		for _, server := range u.tools.servers {
			all = append(all, server)
		}
	}
	return all
}

// close lets nobody in any more.
func (m *users) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}
