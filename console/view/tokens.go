package view

import (
	"strings"

	"secbox/access/tokens"
	"secbox/console/ui"
)

// TokensPage is a page of the tokens, newest first.
type TokensPage struct {
	Pager
	Rows    []tokens.Token
	Revoked bool // shows revoked ones, too
	None    bool // there was never one
	Form    TokenForm
}

// TokenForm is what the form for a new token asks for. Lists are as they were typed.
type TokenForm struct {
	ID, Name, Role, Projects, Agents, Users, UserID string // id: chosen by the page, so that a form that is sent twice makes one token
}

// tokenScope tells what a token is limited to.
func tokenScope(t tokens.Token) string {
	if t.Role == tokens.Runner {
		return "machine of " + t.UserID
	}
	var parts []string
	for _, l := range []struct {
		name   string
		values []string
	}{{"projects", t.Projects}, {"agents", t.Agents}, {"users", t.Users}} {
		if len(l.values) > 0 {
			parts = append(parts, l.name+" "+strings.Join(l.values, ", "))
		}
	}
	switch {
	case t.Role == tokens.Auditor:
		return "all records, to read"
	case len(parts) == 0:
		return "everything"
	}
	return strings.Join(parts, "; ")
}

// TokenCrumbs are the pages above the page of a token.
func TokenCrumbs() []ui.Crumb { return []ui.Crumb{{Label: "Tokens", To: ui.Link("tokens")}} }
