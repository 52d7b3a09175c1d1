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

// toolSet is a set of tools, with one protocol server for each spelling of their names.
type toolSet struct {
	servers map[string]*mcp.Server // by spelling

	mu      sync.Mutex
	version string            // of the snapshot that they were made from
	digests map[string]string // of the skills that are tools, by id
}

func (s *Server) newToolSet(instructions string, names ...string) *toolSet {
	t := &toolSet{servers: map[string]*mcp.Server{}, digests: map[string]string{}}
	for _, one := range names {
		t.servers[one] = s.newProtocolServer(instructions)
	}
	return t
}

// inUse reports whether there is a session with these tools.
func (t *toolSet) inUse() bool {
	for _, server := range t.servers {
		for range server.Sessions() {
			return true
		}
	}
	return false
}

// sync updates the tools to a snapshot. The SDK notifies every session of changes.
func (t *toolSet) sync(s *Server, now *skills.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.version == now.Version() {
		return
	}
	t.version = now.Version()
	gone := make(map[string]bool, len(t.digests))
	for id := range t.digests {
		gone[id] = true
	}
	for _, skill := range now.Skills() {
		delete(gone, skill.ID())
		if t.digests[skill.ID()] == skill.Digest {
			continue
		}
		if err := t.add(s, skill); err != nil {
			s.cfg.Logger.Warn("cannot offer a skill as an MCP tool", "skill", skill.ID(), "error", err)
			gone[skill.ID()] = true
			continue
		}
		t.digests[skill.ID()] = skill.Digest
	}
	for id := range gone {
		delete(t.digests, id)
		for names, server := range t.servers {
			server.RemoveTools(nameOf(id, names))
		}
	}
}

// syncTools updates the tools of the catalog.
func (s *Server) syncTools() { s.tools.sync(s, s.cfg.Catalog.Now()) }

// nameOf returns the name of a skill's tool in a spelling.
func nameOf(id, names string) string {
	if names == namesUnderscore {
		return skills.UnderscoreToolName(id)
	}
	return skills.ToolName(id)
}

func (t *toolSet) add(s *Server, skill *skills.Skill) (err error) {
	// The SDK panics on an invalid schema. A manifest must not end the server.
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	tool, added, err := s.toolOf(skill)
	if err != nil {
		return err
	}
	handler := s.toolHandler(skill.ID(), added)
	for names, server := range t.servers {
		named := *tool
		named.Name = nameOf(skill.ID(), names)
		server.AddTool(&named, handler)
	}
	return nil
}

// conditions describes the limits of a tool for the model.
func (s *Server) conditions(skill *skills.Skill) string {
	// Ignore the error: a call will report values that the policy refuses.
	p, _ := s.cfg.Runner.Resolve(context.Background(), runner.Request{Skill: &runner.Skill{Layer: skill.Manifest.Layer()}})
	v := p.Values
	return fmt.Sprintf("\n\nIt runs in a container without a network: nothing can be downloaded or installed (no pip, no curl). It has %s (timeout_ms), %d MiB of memory, "+
		"%g CPUs and %d processes. A result shows up to 32 KiB of what it prints; the rest is a resource.",
		time.Duration(v.TimeoutMS)*time.Millisecond, v.MemoryMB, v.CPUCores, v.PIDs)
}

// toolOf converts a skill to a tool without a name. It returns the arguments that are not inputs of the skill.
func (s *Server) toolOf(skill *skills.Skill) (tool *mcp.Tool, added []string, err error) {
	m := &skill.Manifest
	inputs, added, err := argumentSchema(m.Interface.Inputs)
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
	// Structured results must be objects.
	var outputs struct {
		Type any `json:"type"`
	}
	if json.Unmarshal(m.Interface.Outputs, &outputs) == nil && outputs.Type == "object" {
		tool.OutputSchema = m.Interface.Outputs
	}
	return tool, added, nil
}
