package tokens_test

import (
	"testing"

	"secbox/access/tokens"
)

func TestMayUse(t *testing.T) {
	t.Parallel()
	free := tokens.Token{}
	project := tokens.Token{Projects: []string{"demo", "a~u"}}
	agent := tokens.Token{Agents: []string{"a"}}
	user := tokens.Token{Users: []string{"u"}}
	tight := tokens.Token{Projects: []string{"demo", "a~u", "b~u"}, Agents: []string{"a"}, Users: []string{"u"}}
	for _, c := range []struct {
		name                 string
		token                tokens.Token
		project, agent, user string
		want                 bool
	}{
		{"no scope, plain project", free, "demo", "", "", true},
		{"no scope, a workspace", free, "a~u", "", "", true},
		{"no scope, everything named", free, "x", "y", "z", true},

		{"project in scope", project, "demo", "", "", true},
		{"project in scope, any agent and user", project, "demo", "x", "y", true},
		{"project out of scope", project, "other", "", "", false},
		{"a part of a project's name", project, "dem", "", "", false},
		{"a project in other case", project, "Demo", "", "", false},
		{"no project", project, "", "", "", false},
		{"a workspace by its name", project, "a~u", "", "", true},
		{"another workspace", project, "a~v", "", "", false},

		{"agent in scope", agent, "demo", "a", "", true},
		{"agent out of scope", agent, "demo", "b", "", false},
		{"no agent named", agent, "demo", "", "", false},
		{"its agent's workspace", agent, "a~u", "", "", true},
		{"its agent's workspace, agent named", agent, "a~u", "a", "u", true},
		{"another agent's workspace", agent, "b~u", "", "", false},
		{"another agent's workspace under its own agent's name", agent, "b~u", "a", "", false},
		{"its agent's workspace under another agent's name", agent, "a~u", "b", "", false},

		{"a plain project, user in scope", user, "demo", "", "u", false},
		{"a plain project that is named, user in scope", tokens.Token{Users: []string{"u"}, Projects: []string{"demo"}}, "demo", "", "u", true},
		{"user out of scope", user, "demo", "", "v", false},
		{"no user named", user, "demo", "", "", false},
		{"its user's workspace", user, "a~u", "", "", true},
		{"another user's workspace", user, "a~v", "", "", false},
		{"another user's workspace under its own user's name", user, "a~v", "", "u", false},
		{"a workspace whose user hides another", user, "a~v~u", "", "u", false},
		{"a workspace without a user", user, "a~", "", "", false},
		{"a workspace without an agent", agent, "~u", "", "", false},

		{"all lists, all in scope", tight, "demo", "a", "u", true},
		{"all lists, the workspace", tight, "a~u", "", "", true},
		{"all lists, a workspace that only the project list names", tight, "b~u", "", "", false},
		{"all lists, one missing", tight, "demo", "a", "", false},
		{"all lists, one wrong", tight, "demo", "a", "v", false},
	} {
		if got := c.token.MayUse(c.project, c.agent, c.user); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for _, r := range tokens.Roles() {
		if !r.Valid() {
			t.Errorf("%s is not valid", r)
		}
	}
	for _, r := range []tokens.Role{"", "Admin", "root", "worker "} {
		if r.Valid() {
			t.Errorf("%q is valid", r)
		}
	}
}
