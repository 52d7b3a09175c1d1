package mcpserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/mcp/tools"
	"secbox/skills"
)

// UserServers are the MCP servers that run in users' sandboxes; see userservers.Manager.
type UserServers interface {
	// Ensure starts the servers of a workspace whose tools are not known, for the holder of a
	// token, and waits for them for a few seconds at most.
	Ensure(ctx context.Context, projectID, token string)

	// Offered returns the tools of a workspace's servers, as far as they are known, without
	// starting any. A tool that has not changed is the same pointer.
	Offered(projectID string) []*tools.Tool

	// OnChange has f called when what Offered returns may have changed.
	OnChange(f func(projectID string))
}

// externalTools are the tools of the servers in a user's sandbox, in the sessions of one workspace.
type externalTools struct {
	mu      sync.Mutex
	offered map[string]*tools.Tool // by name; nil: there are no servers
	taken   map[string]bool        // plain names of other tools
}

// init offers the tools that are known, and has the first listing of tools start the other servers.
func (e *externalTools) init(s *Server, u *user, others []*tools.Tool) {
	e.offered, e.taken = map[string]*tools.Tool{}, map[string]bool{}
	for _, one := range others {
		e.taken[skills.PlainName(one.Name)] = true
	}
	for _, one := range sessionTools {
		e.taken[skills.PlainName(one.Name)] = true
	}
	e.sync(s, u)
	u.tools.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				if who, err := callerOf(req.GetExtra()); err == nil && who.token.MayUse(u.project, "", "") {
					s.cfg.Servers.Ensure(ctx, u.project, who.token.ID)
					e.sync(s, u)
				}
			}
			return next(ctx, method, req)
		}
	})
}

// sync adds and removes tools. The SDK notifies the sessions of changes.
func (e *externalTools) sync(s *Server, u *user) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.offered == nil {
		return
	}
	gone, seen := maps.Clone(e.offered), map[string]bool{}
	for _, one := range s.cfg.Servers.Offered(u.project) {
		name, plain := one.Name, skills.PlainName(one.Name)
		if e.taken[plain] || seen[plain] {
			s.cfg.Logger.Warn("a tool of an MCP server is not offered: another tool has its name", "project", u.project, "tool", name)
			continue
		}
		seen[plain] = true
		if e.offered[name] == one {
			delete(gone, name)
			continue
		}
		if err := s.addExternalTool(u.tools, one, u.project); err != nil {
			s.cfg.Logger.Warn("a tool of an MCP server is not offered", "project", u.project, "tool", name, "error", err)
			continue
		}
		delete(gone, name)
		e.offered[name] = one
	}
	for name := range gone {
		delete(e.offered, name)
	}
	u.tools.withdraw(slices.Sorted(maps.Keys(gone))...)
}

func (s *Server) addExternalTool(to *toolSet, tool *tools.Tool, project string) (err error) {
	// The SDK panics on an invalid schema. A user's server must not end this one.
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	s.addFileTools(to, []*tools.Tool{tool}, project)
	return nil
}

// serversChanged updates the tools of a workspace in its sessions.
func (m *userTools) serversChanged(projectID string) {
	m.mu.Lock()
	u := m.byKey[projectID]
	m.mu.Unlock()
	if u != nil {
		u.external.sync(m.server, u)
	}
}
