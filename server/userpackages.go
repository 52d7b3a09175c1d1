package server

import (
	"context"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/skills"
	"secbox/workspace"
)

// userPackages finds the packages of a user by the project id of their workspace.
type userPackages struct {
	library *library.Library
	catalog *skills.Catalog
}

// Tool returns one package as a skill; see library.Tool.
func (p userPackages) Tool(ctx context.Context, projectID, skillID string) (*skills.Skill, error) {
	agent, user, ok := workspace.SplitWorkspaceID(projectID)
	if !ok {
		return nil, fault.New(fault.UnknownSkill, "there is no skill %q: the project is not a user's workspace, so it has no packages",
			skillID)
	}
	return p.library.Tool(ctx, library.Owner{AgentID: agent, UserID: user}, skillID)
}

// ToolVersion returns a version of a package as a skill; see library.ToolVersion.
func (p userPackages) ToolVersion(ctx context.Context, projectID, skillID, digest string) (*skills.Skill, error) {
	agent, user, ok := workspace.SplitWorkspaceID(projectID)
	if !ok {
		return nil, fault.New(fault.UnknownSkill, "there is no version %s of the skill %q", digest, skillID)
	}
	return p.library.ToolVersion(ctx, library.Owner{AgentID: agent, UserID: user}, skillID, digest)
}

// Catalog returns the catalog, with the packages of the user if the project is a user's workspace.
func (p userPackages) Catalog(ctx context.Context, projectID string) (*skills.Snapshot, error) {
	now := p.catalog.Now()
	agent, user, ok := workspace.SplitWorkspaceID(projectID)
	if !ok {
		return now, nil
	}
	tools, broken, err := p.library.Tools(ctx, library.Owner{AgentID: agent, UserID: user})
	if err != nil {
		return nil, err
	}
	return now.WithPackages(tools, broken), nil
}

// materialise puts the skills of a project that is a user's workspace where its execs find them.
func (s *Server) materialise(ctx context.Context, projectID string) error {
	agent, user, ok := workspace.SplitWorkspaceID(projectID)
	if !ok {
		return nil
	}
	return s.library.MaterialiseAll(ctx, library.Owner{AgentID: agent, UserID: user}, workspace.ToolTarget)
}
