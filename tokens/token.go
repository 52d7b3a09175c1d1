// Package tokens knows who may use the API: bearer tokens with a role and, for some, a scope of projects, agents and users.
//
// A secret is shown once, when its token is made; only its SHA-256 is kept. That is enough because a secret of ours has 256 random
// bits: there is nothing to guess, so there is nothing that a slow hash would protect. The package does not know which role may use
// which route (api does) and knows no SQL (store does).
package tokens

import (
	"slices"
	"strings"
	"time"
)

// Role is what a token may do; api holds the table of roles and routes.
type Role string

// The roles.
const (
	Worker     Role = "worker"      // execs and invokes, sees its own execs
	Auditor    Role = "auditor"     // reads all history
	AgentAdmin Role = "agent-admin" // the baseline of its agents
	Admin      Role = "admin"       // everything
	Runner     Role = "runner"      // dials in as the machine of one user
)

// Roles lists every role, for messages and help.
func Roles() []Role { return []Role{Worker, Auditor, AgentAdmin, Admin, Runner} }

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return slices.Contains(Roles(), r) }

// Token is what is known of a token, without its secret.
type Token struct {
	ID        string    `json:"id"` // UUIDv7; requested_by of the execs that it starts
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Projects  []string  `json:"projects,omitempty"` // only these; empty: all
	Agents    []string  `json:"agents,omitempty"`   // only these; empty: all
	Users     []string  `json:"users,omitempty"`    // only these; empty: all
	UserID    string    `json:"user_id,omitempty"`  // of a runner: whose machine it is
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Revoked reports whether the token was taken back.
func (t Token) Revoked() bool { return !t.RevokedAt.IsZero() }

// MayUse reports whether the token's scope allows a project together with the agent and the user that the request names. Each list
// of the token that is not empty must hold the value; a value that is not given is in no list. A project "<agent>~<user>" is a
// workspace: its agent and its user must be in scope too, whatever else the request names. Whose files another project holds is not known, so
// that a token which is limited to users may use one only if its Projects name it.
//
// A list of execs that is narrowed by Projects, Agents and Users holds the same as what MayUse allows, provided that the rows of a
// workspace carry its agent and its user.
func (t Token) MayUse(projectID, agentID, userID string) bool {
	if agent, user, ok := strings.Cut(projectID, "~"); ok {
		if !allows(t.Agents, agent) || !allows(t.Users, user) {
			return false
		}
		if agentID == "" {
			agentID = agent
		}
		if userID == "" {
			userID = user
		}
	} else if len(t.Users) > 0 && !slices.Contains(t.Projects, projectID) {
		return false
	}
	return allows(t.Projects, projectID) && allows(t.Agents, agentID) && allows(t.Users, userID)
}

func allows(scope []string, value string) bool {
	return len(scope) == 0 || slices.Contains(scope, value)
}
