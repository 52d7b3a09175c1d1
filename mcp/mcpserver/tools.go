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

// toolSet is a set of tools, with their protocol server. It knows them by their names with dots.
type toolSet struct {
	server *mcp.Server
	dotted sync.Map // names with dots, by their plain spelling

	mu      sync.Mutex
	version string            // of the snapshot that they were made from
	digests map[string]string // of the skills that are tools, by id
}

func (s *Server) newToolSet(instructions string) *toolSet {
	t := &toolSet{server: s.newProtocolServer(instructions), digests: map[string]string{}}
	t.server.AddReceivingMiddleware(t.spell)
	s.addSessionTools(t)
	return t
}

// spell lists tools in the spelling of the caller's address, and lets calls use either.
func (t *toolSet) spell(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if call, ok := req.(*mcp.CallToolRequest); ok {
			if name, ok := t.dotted.Load(call.Params.Name); ok {
				call.Params.Name = name.(string)
			}
		}
		result, err := next(ctx, method, req)
		if listed, ok := result.(*mcp.ListToolsResult); ok && err == nil {
			if who, err := callerOf(req.GetExtra()); err == nil && !who.dotted {
				for i, one := range listed.Tools {
					named := *one
					named.Name = skills.PlainName(one.Name)
					listed.Tools[i] = &named
				}
			}
		}
		return result, err
	}
}

// offer adds a tool, or replaces the one with its name. It panics on an invalid schema.
func (t *toolSet) offer(tool *mcp.Tool, handler mcp.ToolHandler) {
	t.server.AddTool(tool, handler)
	t.dotted.Store(skills.PlainName(tool.Name), tool.Name)
}

func (t *toolSet) withdraw(names ...string) {
	t.server.RemoveTools(names...)
	for _, name := range names {
		t.dotted.CompareAndDelete(skills.PlainName(name), name)
	}
}

// inUse reports whether there is a session with these tools.
func (t *toolSet) inUse() bool {
	for range t.server.Sessions() {
		return true
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
		t.withdraw(skills.ToolName(id))
	}
}

// syncTools updates the tools of the catalog.
func (s *Server) syncTools() { s.tools.sync(s, s.cfg.Catalog.Now()) }

func (t *toolSet) add(s *Server, skill *skills.Skill) (err error) {
	// The SDK panics on an invalid schema. A manifest must not end the server.
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	inputs, added, err := argumentSchema(skill.Manifest.Interface.Inputs, skill.Manifest.Runtime.Session == skills.SessionOptional)
	if err != nil {
		return err
	}
	t.offer(s.toolOf(skill, inputs), s.toolHandler(skill.ID(), inputs, added))
	return nil
}

// conditions describes the limits of a tool for the model.
func (s *Server) conditions(skill *skills.Skill) string {
	// Ignore the error: a call will report values that the policy refuses.
	p, _ := s.cfg.Runner.Resolve(context.Background(), runner.Request{Skill: &runner.Skill{Layer: skill.Manifest.Layer()}})
	v := p.Values
	return fmt.Sprintf("\n\nIt runs in a container without a network: nothing can be downloaded or installed (no pip, no curl). It has "+
		"%s (timeout_ms), %d MiB of memory, "+
		"%g CPUs and %d processes. A result shows up to 32 KiB of what it prints; the rest is a resource.",
		time.Duration(v.TimeoutMS)*time.Millisecond, v.MemoryMB, v.CPUCores, v.PIDs)
}

// toolOf converts a skill to a tool with a schema of its arguments.
func (s *Server) toolOf(skill *skills.Skill, inputs json.RawMessage) *mcp.Tool {
	m := &skill.Manifest
	readOnly, destructive, openWorld := m.ReadOnly(), !m.ReadOnly(), false
	tool := &mcp.Tool{
		Name: skills.ToolName(skill.ID()), Title: m.Name, Description: m.Description + s.conditions(skill), InputSchema: inputs,
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
	return tool
}
