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

	"secbox/mcp/tools"
	"secbox/skills"
)

// Packages finds the skills of the user of a workspace.
type Packages interface {
	// Catalog returns the catalog, with the packages of the user if the project is a user's
	// workspace. It is called often.
	Catalog(ctx context.Context, projectID string) (*skills.Snapshot, error)
}

// userTools has the tools of sessions whose project is a user's workspace, for each user apart.
// They exist as long as such a session, and so does one goroutine that watches their packages for
// changes.
type userTools struct {
	server   *Server
	packages Packages
	interval time.Duration // of the watch

	mu       sync.Mutex
	byKey    map[string]*user // by project
	watching bool
	closed   bool
}

type user struct {
	project string
	tools   *toolSet
	held    int // requests that may open a session

	loading sync.Mutex
	loaded  bool // under loading

	external externalTools
}

// serverFor returns the protocol server for the session that a request may open. The caller must
// call done after the request. A project that is not a workspace, or that the caller may not use,
// gets the tools of the catalog; a call reports the error.
func (s *Server) serverFor(r *http.Request, c caller) (server *mcp.Server, done func()) {
	common, nothing := s.tools.server, func() {}
	if s.users.packages == nil || r.Header.Get(sessionHeader) != "" || r.Method != http.MethodPost {
		return common, nothing
	}
	project := c.sessionProject()
	if !strings.Contains(project, "~") || !c.token.MayUse(project, "", "") { // as in <agentId>~<userId>
		return common, nothing
	}
	u := s.users.hold(project)
	if u == nil {
		return common, nothing
	}
	u.loading.Lock()
	if !u.loaded {
		s.users.load(r.Context(), u)
		u.loaded = true
	}
	u.loading.Unlock()
	return u.tools.server, func() { s.users.release(u) }
}

// hold finds or makes the tools of a user. It returns nil when the server is closing.
func (m *userTools) hold(project string) *user {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	u := m.byKey[project]
	if u == nil {
		text, offered := instructions, []*tools.Tool(nil)
		if begin := m.server.cfg.Tools; begin != nil {
			if session := begin(project); session != nil {
				text, offered = workspaceInstructions, session.Tools()
			}
		}
		u = &user{project: project, tools: m.server.newToolSet(text)}
		m.server.addFileTools(u.tools, offered, project)
		if m.server.cfg.Servers != nil && offered != nil {
			u.external.init(m.server, u, offered)
		}
		m.byKey[project] = u
	}
	u.held++
	if !m.watching {
		m.watching = true
		m.server.background.Go(m.watch)
	}
	return u
}

func (m *userTools) release(u *user) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u.held--
}

// load updates the tools of a user; the caller holds u.loading.
func (m *userTools) load(ctx context.Context, u *user) {
	snapshot, err := m.packages.Catalog(ctx, u.project)
	if err != nil {
		if ctx.Err() == nil {
			m.server.cfg.Logger.Warn("cannot read a user's packages; their tools stay unchanged", "project", u.project, "error", err)
		}
		if u.loaded {
			return
		}
		snapshot = m.server.cfg.Catalog.Now()
	}
	u.tools.sync(m.server, snapshot)
}

// watch reloads the tools of users with a session, one after the other, until there are none. It
// pauses at least three times as long as a round took.
func (m *userTools) watch() {
	pause := m.interval
	for {
		select {
		case <-m.server.ended.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		for _, u := range m.present() {
			if m.server.ended.Err() == nil {
				u.loading.Lock()
				m.load(m.server.ended, u)
				u.loading.Unlock()
			}
		}
		pause = max(m.interval, 3*time.Since(began))
		m.mu.Lock()
		if len(m.byKey) == 0 {
			m.watching = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
	}
}

// present returns the users with a session, and removes the others.
func (m *userTools) present() []*user {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.byKey, func(_ string, u *user) bool { return u.held == 0 && !u.tools.inUse() })
	return slices.Collect(maps.Values(m.byKey))
}

// servers returns the protocol servers of all users.
func (m *userTools) servers() (all []*mcp.Server) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.byKey {
		all = append(all, u.tools.server)
	}
	return all
}

// close makes hold return nil.
func (m *userTools) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}
