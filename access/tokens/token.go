// Package tokens creates, checks and revokes the bearer tokens of the API: each has a role and, for
// some roles, a scope of projects, agents and users.
//
// A secret is shown once, when its token is created; only its SHA-256 is stored. A slow hash would
// protect nothing more, since a secret has 256 random bits. The package does not know which role
// may use which route (api does), nor SQL (store does).
package tokens

import (
	"slices"
	"strings"
	"time"
)

// Role is the set of routes that a token may use; api has the table.
type Role string

// The roles.
const (
	Worker     Role = "worker"      // execs and invokes, sees its own execs
	Auditor    Role = "auditor"     // reads all history
	AgentAdmin Role = "agent-admin" // the baseline of its agents
	Admin      Role = "admin"       // everything
	Runner     Role = "runner"      // connects as the machine of one user
)

// Roles lists every role, for messages and help.
func Roles() []Role { return []Role{Worker, Auditor, AgentAdmin, Admin, Runner} }

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return slices.Contains(Roles(), r) }

// Token is a token without its secret.
type Token struct {
	ID        string    `json:"id"` // UUIDv7; requested_by of the execs that it starts
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Projects  []string  `json:"projects,omitempty"` // only these; empty: all
	Agents    []string  `json:"agents,omitempty"`   // only these; empty: all
	Users     []string  `json:"users,omitempty"`    // only these; empty: all
	UserID    string    `json:"user_id,omitempty"`  // of a runner: the user of the machine
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
}

// Revoked reports whether the token was revoked.
func (t Token) Revoked() bool { return !t.RevokedAt.IsZero() }

// MayUse reports whether the token's scope allows a project together with the agent and the user
// that the request names. Each list of the token that is not empty must contain the value; a
// missing value is in no list. A project "<agent>~<user>" is a workspace: its agent and its user
// must also be in scope. The users of other projects are not known, so a token with a scope of
// users may use only those that its Projects name.
//
// A list of execs with the filters Projects, Agents and Users shows the same as MayUse allows,
// since the rows of a workspace have its agent and its user.
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
