package visible

import (
	"context"
	"io"
	"slices"

	"secbox/access/tokens"
	"secbox/api/gate"
	"secbox/fault"
	"secbox/packages/library"
	"secbox/skills"
)

// Catalog has the skills of the installation.
type Catalog interface {
	// Now returns the current catalog, never nil. A changed catalog has another pointer.
	Now() *skills.Snapshot
}

// Packages reads the skills of agents and users. Paths are relative and unchecked. Errors are
// UnknownSkill, UnknownFile, PathRefused, InvalidRequest and DatabaseUnavailable.
type Packages interface {
	// List returns the user's skills by id.
	List(ctx context.Context, o library.Owner) ([]library.Listed, error)
	Files(ctx context.Context, o library.Owner, skillID string) ([]string, error)
	Read(ctx context.Context, o library.Owner, skillID, path string) ([]byte, error)
	ReadLines(ctx context.Context, o library.Owner, skillID, path string, r library.LineRange) ([]string, error)

	// Tools returns the user's packages that have a manifest.json: the usable ones, and the
	// problems of the others.
	Tools(ctx context.Context, o library.Owner) ([]*skills.Skill, []skills.Broken, error)

	Diff(ctx context.Context, o library.Owner, skillID string) (diff, digest string, err error)

	// Download writes the skill as a ZIP. It may fail before the first byte is written.
	Download(ctx context.Context, o library.Owner, skillID string, w io.Writer) error
}

// View is Packages for those who only look: it changes nothing; see library.View.
type View interface {
	Packages
	Versions
}

// Versions are the versions that agents and users have of their skills.
type Versions interface {
	// Pointers returns a user's pointer to a skill, and the agent's baseline of it; nil where there
	// is none.
	Pointers(ctx context.Context, o library.Owner, skillID string) (mine, baseline *skills.Pointer, err error)

	// Baselines returns at most limit baselines of an agent, by skill, after one of them.
	Baselines(ctx context.Context, agentID, after string, limit int) ([]skills.Pointer, error)

	// Baseline returns an agent's baseline of a skill and the paths of its files, and ReadBaseline
	// one of these.
	Baseline(ctx context.Context, agentID, skillID string) (skills.Pointer, []string, error)
	ReadBaseline(ctx context.Context, agentID, skillID, path string) ([]byte, error)

	// Agents returns at most limit agents that have skills, by id, after one of them.
	Agents(ctx context.Context, after string, limit int) ([]string, error)
}

// Skills is safe for concurrent use.
type Skills struct {
	Catalog Catalog
	Library Packages // for the users' own requests: the first one of a user fixes the versions of the agent's skills
	View    View
}

// Of returns the catalog. With an agent and a user it adds that user's packages that have a
// manifest, if the caller may read the user's workspace.
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
	o, err := gate.Owner(caller, "user_id", *userID, "agent_id", *agentID)
	if err != nil {
		return nil, err
	}
	tools, broken, err := s.Packages(caller).Tools(ctx, o)
	if err != nil {
		return nil, err
	}
	return now.WithPackages(tools, broken), nil
}

// Packages returns what the caller reads users' packages from: an auditor only looks.
func (s Skills) Packages(caller tokens.Token) Packages {
	if caller.Role == tokens.Auditor {
		return s.View
	}
	return s.Library
}

// Owner returns the workspace of a user of an agent if the caller may read it.
func (s Skills) Owner(caller tokens.Token, agentID, userID string) (library.Owner, error) {
	return gate.Owner(caller, "user_id", userID, "agent_id", agentID)
}

// List returns the packages of a user of an agent by id, if the caller may read the user's
// workspace.
func (s Skills) List(ctx context.Context, caller tokens.Token, agentID, userID string) ([]library.Listed, error) {
	o, err := s.Owner(caller, agentID, userID)
	if err != nil {
		return nil, err
	}
	return s.Packages(caller).List(ctx, o)
}

// Baselines returns at most limit baselines of an agent, by skill, after one of them. Auditors and
// admins read the baselines of every agent, an agent-admin the baselines of its own agents. Others
// find them among the packages of a user.
func (s Skills) Baselines(ctx context.Context, caller tokens.Token, agentID, after string, limit int) ([]skills.Pointer, error) {
	if err := checkBaselines(caller, agentID); err != nil {
		return nil, err
	}
	return s.View.Baselines(ctx, agentID, after, limit)
}

// Baseline returns an agent's baseline of a skill and its files, to the same callers as Baselines.
func (s Skills) Baseline(ctx context.Context, caller tokens.Token, agentID, skillID string) (skills.Pointer, []string, error) {
	if err := checkBaselines(caller, agentID); err != nil {
		return skills.Pointer{}, nil, err
	}
	return s.View.Baseline(ctx, agentID, skillID)
}

// ReadBaseline returns a file of an agent's baseline of a skill, to the same callers.
func (s Skills) ReadBaseline(ctx context.Context, caller tokens.Token, agentID, skillID, path string) ([]byte, error) {
	if err := checkBaselines(caller, agentID); err != nil {
		return nil, err
	}
	return s.View.ReadBaseline(ctx, agentID, skillID, path)
}

func checkBaselines(caller tokens.Token, agentID string) error {
	switch {
	case caller.Role == tokens.Worker:
		return fault.BadField("user_id", "is missing; a token with the role %s reads the packages of a user of the agent", caller.Role)
	case len(caller.Agents) > 0 && !slices.Contains(caller.Agents, agentID):
		return gate.OutOfScope(fault.Field{Field: "agent_id", Reason: "the agent is not in the token's scope"})
	}
	return nil
}
