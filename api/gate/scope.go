package gate

import (
	"regexp"
	"slices"
	"strings"

	"secbox/access/tokens"
	"secbox/api/problem"
	"secbox/audit"
	"secbox/fault"
	"secbox/packages/library"
)

// CheckProject refuses a project, agent or user outside the token's scope and names the field at
// fault. Without a project, the conversation counts as one.
func CheckProject(t tokens.Token, project, conversation, user string) error {
	field := "project_id"
	if project == "" && conversation != "" {
		project, field = conversation, "conversation_id"
	}
	if t.MayUse(project, "", user) {
		return nil
	}
	if len(t.Users) > 0 && !strings.Contains(project, "~") && !slices.Contains(t.Projects, project) {
		return OutOfScope(fault.Field{
			Field:  field,
			Reason: "the token is limited to users and may use only their workspaces: <agentId>~<userId>",
		})
	}
	return outOfScope(project, "", user, []scopePart{
		{field, "project", tokens.Token{Projects: t.Projects}},
		{field, "agent", tokens.Token{Agents: t.Agents}},
		{"user_id", "user", tokens.Token{Users: t.Users}},
	})
}

// MaySee reports whether the token may read a record: a worker only its own execs, every other role
// all of them.
func MaySee(t tokens.Token, rec audit.Record) bool {
	return t.Role != tokens.Worker || rec.RequestedBy == t.ID
}

// ownerPart is the form of agent and user ids; openapi.yaml has the same pattern. Package library
// refuses names that file systems reserve.
var ownerPart = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const ownerPartReason = "must be a letter or digit, then up to 62 letters, digits, dots, underscores or dashes"

// Owner returns the workspace of a user of an agent if the token may use it. userField and
// agentField are the names of the two values in the request.
func Owner(t tokens.Token, userField, userID, agentField, agentID string) (library.Owner, error) {
	var malformed fault.Fields
	if !ownerPart.MatchString(agentID) {
		malformed.Add(agentField, ownerPartReason)
	}
	if !ownerPart.MatchString(userID) {
		malformed.Add(userField, ownerPartReason)
	}
	if err := malformed.Err(); err != nil {
		return library.Owner{}, err
	}
	o := library.Owner{AgentID: agentID, UserID: userID}
	if t.MayUse(o.ProjectID(), agentID, userID) {
		return o, nil
	}
	return library.Owner{}, outOfScope(o.ProjectID(), agentID, userID, []scopePart{
		{agentField, "agent", tokens.Token{Agents: t.Agents}},
		{userField, "user", tokens.Token{Users: t.Users}},
		{agentField, "project " + o.ProjectID(), tokens.Token{Projects: t.Projects}},
	})
}

// CheckUser refuses a malformed user id and a user outside the token's scope for every agent.
func CheckUser(t tokens.Token, userID string) error {
	if !ownerPart.MatchString(userID) {
		return fault.BadField("userId", ownerPartReason)
	}
	if !HasUser(t, userID) {
		return OutOfScope(fault.Field{Field: "userId", Reason: "the user is not in the token's scope"})
	}
	return nil
}

// HasUser reports whether a user is in the token's scope for at least one agent. A token that is
// limited to projects has the users whose workspaces are among them.
func HasUser(t tokens.Token, userID string) bool {
	if len(t.Users) > 0 && !slices.Contains(t.Users, userID) {
		return false
	}
	return len(t.Projects) == 0 || slices.ContainsFunc(t.Projects, func(project string) bool {
		_, user, ok := strings.Cut(project, "~")
		return ok && user == userID
	})
}

// SkillScope parses the parameter scope, nil or empty for the default. Only administrators may
// change an agent's baseline; Owner has checked that the agent is in the token's scope.
func SkillScope(t tokens.Token, param *string) (library.Scope, error) {
	if param == nil {
		return library.Overlay, nil
	}
	switch scope := library.Scope(*param); scope {
	case "", library.Overlay:
		return library.Overlay, nil
	case library.Baseline:
		if t.Role != tokens.AgentAdmin && t.Role != tokens.Admin {
			return "", fault.New(fault.Forbidden, "a token with the role %s may not change an agent's baseline; allowed are: %s, %s",
				t.Role, tokens.AgentAdmin, tokens.Admin)
		}
		return scope, nil
	default:
		return "", fault.BadField("scope", "is %q; allowed are overlay and baseline", problem.Clip(string(scope)))
	}
}

// scopePart is one part of a token's scope, and the field that it limits.
type scopePart struct {
	field, noun string
	scope       tokens.Token
}

// outOfScope names the fields of the parts that do not cover the request.
func outOfScope(project, agent, user string, parts []scopePart) error {
	var bad []fault.Field
	for _, part := range parts {
		if !part.scope.MayUse(project, agent, user) {
			bad = append(bad, fault.Field{Field: part.field, Reason: "the " + part.noun + " is not in the token's scope"})
		}
	}
	return OutOfScope(bad...)
}

// OutOfScope returns a fault.Forbidden that names the fields outside a token's scope.
func OutOfScope(bad ...fault.Field) error {
	e := fault.New(fault.Forbidden, "the token is limited to some projects, agents or users; ask for one whose scope covers this request")
	if len(bad) > 0 {
		e.Message = bad[0].Field + ": " + bad[0].Reason + "; ask an administrator for one that covers it"
	}
	e.Fields = bad
	return e
}
