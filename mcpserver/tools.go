package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/runner"
	"secbox/skills"
)

// toolSet is the tools that some sessions have: on one protocol server for each spelling of their names.
type toolSet struct {
	servers map[string]*mcp.Server // by spelling; they differ in the names of their tools only

	mu    sync.Mutex
	seen  string            // the version of the snapshot that they were made from
	known map[string]string // the digest of each skill that is a tool, by id
}

func (s *Server) newToolSet(names ...string) *toolSet {
	t := &toolSet{servers: map[string]*mcp.Server{}, known: map[string]string{}}
	for _, one := range names {
		t.servers[one] = s.newProtocolServer()
	}
	return t
}

// inUse reports whether a session has these tools.
func (t *toolSet) inUse() bool {
	for _, server := range t.servers {
		for range server.Sessions() {
			return true
		}
	}
	return false
}

// sync makes the tools those of a snapshot. The SDK tells every session when something has changed.
func (t *toolSet) sync(s *Server, now *skills.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == now.Version() {
		return
	}
	t.seen = now.Version()
	gone := make(map[string]bool, len(t.known))
	for id := range t.known {
		gone[id] = true
	}
	for _, skill := range now.Skills() {
		delete(gone, skill.ID())
		if t.known[skill.ID()] == skill.Digest {
			continue
		}
		if err := t.add(s, skill); err != nil {
			s.cfg.Logger.Warn("a skill cannot be offered as an MCP tool", "skill", skill.ID(), "error", err)
			gone[skill.ID()] = true
			continue
		}
		t.known[skill.ID()] = skill.Digest
	}
	for id := range gone {
		delete(t.known, id)
		for names, server := range t.servers {
			server.RemoveTools(nameOf(id, names))
		}
	}
}

// syncTools makes everybody's tools those of the catalog as it is now.
func (s *Server) syncTools() { s.tools.sync(s, s.cfg.Catalog.Now()) }

// nameOf is the name of a skill's tool in one of the spellings.
func nameOf(id, names string) string {
	if names == namesUnderscore {
		return skills.UnderscoreToolName(id)
	}
	return skills.ToolName(id)
}

func (t *toolSet) add(s *Server, skill *skills.Skill) (err error) {
	// The SDK panics about a schema that it does not like; what is in a manifest must not end the server.
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	tool, ours, err := s.toolOf(skill)
	if err != nil {
		return err
	}
	handler := s.toolHandler(skill.ID(), ours)
	for names, server := range t.servers {
		named := *tool
		named.Name = nameOf(skill.ID(), names)
		server.AddTool(&named, handler)
	}
	return nil
}

// conditions says what a model cannot know of the tool otherwise: its limits, and what is not there.
func (s *Server) conditions(skill *skills.Skill) string {
	// A value that the policy refuses is not in the snapshot; the call says so.
	p, _ := s.cfg.Runner.Resolve(context.Background(), runner.Request{Skill: &runner.Skill{Layer: skill.Manifest.Layer()}})
	v := p.Values
	return fmt.Sprintf("\n\nIt runs in a container without a network: nothing can be downloaded or installed (no pip, no curl). It has %s (timeout_ms), %d MiB of memory, "+
		"%g CPUs and %d processes. A result shows up to 32 KiB of what it prints; the rest is a resource.",
		time.Duration(v.TimeoutMS)*time.Millisecond, v.MemoryMB, v.CPUCores, v.PIDs)
}

// toolOf is a skill as a tool, without a name, and which of its arguments are ours.
func (s *Server) toolOf(skill *skills.Skill) (tool *mcp.Tool, ours []string, err error) {
	m := &skill.Manifest
	inputs, ours, err := withOurs(m.Interface.Inputs)
	if err != nil {
		return nil, nil, err
	}
	readOnly, destructive, openWorld := m.ReadOnly(), !m.ReadOnly(), false
	tool = &mcp.Tool{
		Title: m.Name, Description: m.Description + s.conditions(skill), InputSchema: inputs,
		Annotations: &mcp.ToolAnnotations{
			Title: m.Name, ReadOnlyHint: readOnly, DestructiveHint: &destructive, IdempotentHint: readOnly, OpenWorldHint: &openWorld,
		},
	}
	// The protocol knows only objects as structured results.
	var outputs struct {
		Type any `json:"type"`
	}
	if json.Unmarshal(m.Interface.Outputs, &outputs) == nil && outputs.Type == "object" {
		tool.OutputSchema = m.Interface.Outputs
	}
	return tool, ours, nil
}
