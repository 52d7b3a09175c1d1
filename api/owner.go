package api

import (
	"regexp"

	"secbox/fault"
	"secbox/skills/library"
	"secbox/tokens"
)

// ownerPart is the form of an agent's and of a user's id; the contract has it too. What no file system takes is refused below.
var ownerPart = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// owner is the workspace that a path names, when the caller may use it.
func owner(userID, agentID string, caller tokens.Token) (library.Owner, error) {
	return ownerCalled("userId", "agentId", userID, agentID, caller)
}

// ownerCalled is owner where the two are called otherwise.
func ownerCalled(userField, agentField, userID, agentID string, caller tokens.Token) (library.Owner, error) {
	var bad []fault.Field
	for _, part := range []struct{ field, value string }{{agentField, agentID}, {userField, userID}} {
		if !ownerPart.MatchString(part.value) {
			bad = append(bad, fault.Field{Field: part.field, Reason: "must be a letter or digit, then up to 62 letters, digits, dots, underscores or dashes"})
		}
	}
	if err := invalid(bad); err != nil {
		return library.Owner{}, err
	}
	o := library.Owner{AgentID: agentID, UserID: userID}
	for _, part := range []struct {
		field, reason string
		scope         tokens.Token
	}{
		{agentField, "the agent is not in the token's scope", tokens.Token{Agents: caller.Agents}},
		{userField, "the user is not in the token's scope", tokens.Token{Users: caller.Users}},
		{agentField, "the project " + o.ProjectID() + " is not in the token's scope", tokens.Token{Projects: caller.Projects}},
	} {
		if !part.scope.MayUse(o.ProjectID(), agentID, userID) {
			bad = append(bad, fault.Field{Field: part.field, Reason: part.reason})
		}
	}
	if len(bad) > 0 || !caller.MayUse(o.ProjectID(), agentID, userID) {
		return library.Owner{}, outOfScope(bad)
	}
	return o, nil
}

// outOfScope refuses a token for what its scope does not hold.
func outOfScope(bad []fault.Field) error {
	e := fault.New(fault.Forbidden, "the token is limited to some projects, agents or users; ask for one whose scope holds this")
	if len(bad) > 0 {
		e.Message = bad[0].Field + ": " + bad[0].Reason + "; ask an administrator for one that covers it"
	}
	e.Fields = bad
	return e
}

// scopeOf reads the scope parameter. An agent's baseline is for its administrators; that the agent is one of the caller's, owner has seen to.
func scopeOf(param *string, caller tokens.Token) (library.Scope, error) {
	switch scope := library.Scope(value(param)); scope {
	case "", library.Overlay:
		return library.Overlay, nil
	case library.Baseline:
		if caller.Role != tokens.AgentAdmin && caller.Role != tokens.Admin {
			return "", fault.New(fault.Forbidden, "a token with the role %s may not change an agent's baseline; allowed are: %s, %s",
				caller.Role, tokens.AgentAdmin, tokens.Admin)
		}
		return scope, nil
	default:
		return "", fault.BadField("scope", "is %q; allowed are overlay and baseline", clip(string(scope)))
	}
}

// place is where a skill of a scope lies, as clients are told: a logical path, which names no directory of this machine.
func place(scope library.Scope, o library.Owner, skillID string) string {
	if scope == library.Baseline {
		return string(scope) + "/" + o.AgentID + "/" + skillID
	}
	return string(scope) + "/" + o.UserID + "/" + o.AgentID + "/" + skillID
}

// yes reads a parameter that is true or false.
func yes(name string, param *string) (bool, error) {
	switch value(param) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, fault.BadField(name, "must be true or false")
}
