package visible

import (
	"context"

	"secbox/api/gate"
	"secbox/fault"
	"secbox/skills"
	"secbox/skills/library"
	"secbox/tokens"
)

// Catalog has the skills of the installation.
type Catalog interface {
	// Now returns the current catalog, never nil.
	Now() *skills.Snapshot
}

// Tools finds the packages of users that can be invoked.
type Tools interface {
	// Tools returns a user's packages that have a manifest.json: the usable ones, and the problems of the others.
	Tools(ctx context.Context, o library.Owner) ([]*skills.Skill, []skills.Broken, error)
}

// Skills is safe for concurrent use.
type Skills struct {
	Catalog Catalog
	Tools   Tools
}

// Of returns the catalog. With an agent and a user it adds that user's packages that have a manifest, if the caller may use the user's
// workspace.
func (s Skills) Of(ctx context.Context, caller tokens.Token, agentID, userID *string) (*skills.Snapshot, error) {
	now := s.Catalog.Now()
	if agentID == nil && userID == nil {
		return now, nil
	}
	for _, half := range []struct {
		name, other string
		value       *string
	}{{"agent_id", "user_id", agentID}, {"user_id", "agent_id", userID}} {
		if half.value == nil {
			return nil, fault.BadField(half.name, "is missing; %s needs it, since packages belong to a user of an agent", half.other)
		}
	}
	if caller.Role == tokens.Auditor { // reading may write: a user's first request fixes the versions of the agent's packages
		return nil, fault.New(fault.Forbidden, "a token with the role %s may not read a user's packages; leave out agent_id and user_id", caller.Role)
	}
	o, err := gate.Owner(caller, "user_id", *userID, "agent_id", *agentID)
	if err != nil {
		return nil, err
	}
	tools, broken, err := s.Tools.Tools(ctx, o)
	if err != nil {
		return nil, err
	}
	return now.WithPackages(tools, broken), nil
}
