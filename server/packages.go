package server

import (
	"context"

	"secbox/fault"
	"secbox/skills"
	"secbox/skills/library"
	"secbox/workspace"
)

// userPackages are the packages of users as those who run skills ask for them: by the project id of the user's workspace.
type userPackages struct {
	library *library.Library
	catalog *skills.Catalog
}

// Tool is one package as a skill that can be run; see library.Tool.
func (p userPackages) Tool(ctx context.Context, projectID, skillID string) (*skills.Skill, error) {
	agent, user, ok := workspace.SplitWorkspaceID(projectID)
	if !ok {
		return nil, fault.New(fault.UnknownSkill, "there is no skill %q: the project is no user's workspace, so it has none of its own", skillID)
	}
	return p.library.Tool(ctx, library.Owner{AgentID: agent, UserID: user}, skillID)
}

// Catalog is the catalog as the user of a workspace sees it; for any other project it is the catalog.
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
	return now.With(tools, broken), nil
}
