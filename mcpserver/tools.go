package mcpserver

import (
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/skills"
)

// syncTools makes the tools those of the catalog as it is now. The SDK tells every session when something has changed.
func (s *Server) syncTools() {
	s.toolsMu.Lock()
	defer s.toolsMu.Unlock()
	gone := make(map[string]bool, len(s.known))
	for id := range s.known {
		gone[id] = true
	}
	for _, skill := range s.cfg.Catalog.Now().Skills() {
		delete(gone, skill.ID())
		if s.known[skill.ID()] == skill.Digest {
			continue
		}
		if err := s.addTool(skill); err != nil {
			s.cfg.Logger.Warn("a skill cannot be offered as an MCP tool", "skill", skill.ID(), "error", err)
			gone[skill.ID()] = true
			continue
		}
		s.known[skill.ID()] = skill.Digest
	}
	for id := range gone {
		delete(s.known, id)
		s.servers[namesDotted].RemoveTools(skills.ToolName(id))
		s.servers[namesUnderscore].RemoveTools(skills.UnderscoreToolName(id))
	}
}

func (s *Server) addTool(skill *skills.Skill) (err error) {
	// The SDK panics about a schema that it does not like; what is in a manifest must not end the server.
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("%v", why)
		}
	}()
	tool, ours, err := toolOf(skill)
	if err != nil {
		return err
	}
	handler := s.toolHandler(skill.ID(), ours)
	dotted, underscore := *tool, *tool
	dotted.Name, underscore.Name = skills.ToolName(skill.ID()), skills.UnderscoreToolName(skill.ID())
	s.servers[namesDotted].AddTool(&dotted, handler)
	s.servers[namesUnderscore].AddTool(&underscore, handler)
	return nil
}

// toolOf is a skill as a tool, without a name. It reports whether the argument project_id is ours.
func toolOf(skill *skills.Skill) (tool *mcp.Tool, ours bool, err error) {
	m := &skill.Manifest
	inputs, ours, err := withProject(m.Interface.Inputs)
	if err != nil {
		return nil, false, err
	}
	readOnly, destructive, openWorld := m.ReadOnly(), !m.ReadOnly(), false
	tool = &mcp.Tool{
		Title: m.Name, Description: m.Description, InputSchema: inputs,
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
