package mcpserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/tools"
)

// UserServers are the MCP servers that run in users' sandboxes; see userservers.Manager.
type UserServers interface {
	// Ensure starts the servers of a workspace whose tools are not known, for the holder of a token, and waits for them for a few seconds at most.
	Ensure(ctx context.Context, projectID, token string)

	// Offered returns the tools of a workspace's servers, as far as they are known, without starting any. A tool that has not changed is the
	// same pointer.
	Offered(projectID string) []*tools.Tool

	// OnChange has f called when what Offered returns may have changed.
	OnChange(f func(projectID string))
}

// externalTools are the tools of the servers in a user's sandbox, in the sessions of one workspace with one spelling of names.
type externalTools struct {
	mu      sync.Mutex
	offered map[string]*tools.Tool // by name in the spelling; nil: there are no servers
	taken   map[string]bool        // names of other tools
}

// init offers the tools that are known, and has the first listing of tools start the other servers.
func (e *externalTools) init(s *Server, u *user, others []*tools.Tool) {
	e.offered, e.taken = map[string]*tools.Tool{}, map[string]bool{}
	for _, one := range others {
		e.taken[spelled(one.Name, u.key.names)] = true
	}
	e.sync(s, u)
	u.tools.servers[u.key.names].AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				if who, err := callerOf(req.GetExtra()); err == nil && who.token.MayUse(u.key.project, "", "") {
					s.cfg.Servers.Ensure(ctx, u.key.project, who.token.ID)
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
	server := u.tools.servers[u.key.names]
	gone, seen := maps.Clone(e.offered), map[string]bool{}
	for _, one := range s.cfg.Servers.Offered(u.key.project) {
		name := spelled(one.Name, u.key.names)
		if e.taken[name] || seen[name] {
			s.cfg.Logger.Warn("a tool of an MCP server is not offered: another tool has its name", "project", u.key.project, "tool", name)
			continue
		}
		seen[name] = true
		if e.offered[name] == one {
			delete(gone, name)
			continue
		}
		if err := s.addExternalTool(server, one, u.key); err != nil {
			s.cfg.Logger.Warn("a tool of an MCP server is not offered", "project", u.key.project, "tool", name, "error", err)
			continue
		}
		delete(gone, name)
		e.offered[name] = one
	}
	for name := range gone {
		delete(e.offered, name)
	}
	server.RemoveTools(slices.Sorted(maps.Keys(gone))...)
}

func (s *Server) addExternalTool(server *mcp.Server, tool *tools.Tool, key userKey) (err error) {
	// The SDK panics on an invalid schema. A user's server must not end this one.
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	s.addFileTools(server, []*tools.Tool{tool}, key.project, key.names)
	return nil
}

// serversChanged updates the tools of a workspace in its sessions.
func (m *userTools) serversChanged(projectID string) {
	m.mu.Lock()
	var found []*user
	for key, u := range m.byKey {
		if key.project == projectID {
			found = append(found, u)
		}
	}
	m.mu.Unlock()
	for _, u := range found {
		u.external.sync(m.server, u)
	}
}

// spelled returns the name of a tool in a spelling.
func spelled(name, names string) string {
	if names == namesUnderscore {
		return strings.ReplaceAll(name, ".", "_")
	}
	return name
}
