package api_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/fault"
)

const (
	whereU   = "/v1/sandbox/u/backend"
	remotely = `{"backend": "remote", "runner": "laptop"}`
)

// TestAbsolutePathsWithoutAContainer: /workspace is not the user's workspace there.
func TestAbsolutePathsWithoutAContainer(t *testing.T) {
	t.Parallel()
	f := start(t)
	for args, field := range map[string]string{
		`["/workspace/file"]`: "args[0]", `["-n", "--x=/workspace/file"]`: "args[1]",
		`["/opt/skill-creator/SKILL.md"]`: "args[0]", `["/etc/passwd"]`: "args[0]", `["x", "../y"]`: "args[1]",
	} {
		message := f.post(inSandbox+"cat", args).refused(t, fault.PathRefused, field)
		if !strings.Contains(message, "not in a container") || !strings.Contains(message, "relative") || strings.Contains(message, "below") {
			t.Errorf("%q does not say what to write instead", message)
		}
	}
	if message := f.post(inSandbox+"nope", `[]`).refused(t, fault.InvalidRequest, "command"); !strings.Contains(message, "python3") {
		t.Errorf("%q does not say which commands there are", message)
	}
	if rows := decodeAs[wire.ExecList](t, f.get("/sandbox/execs"), 200); len(rows.Items) != 0 {
		t.Errorf("ran %+v", rows.Items)
	}
}

func TestBackendChoice(t *testing.T) {
	t.Parallel()
	machines := &dialledIn{}
	f := start(t, func(c *api.Config) { c.Runners = machines })
	put := func(body string) reply { return f.do(request{method: "PUT", path: whereU, body: body}) }
	got := data[wire.V1Backend](t, f.get(whereU))
	if got.Backend != "none" || got.Chosen || got.UpdatedAt != nil || !got.Connected || !slices.Equal(got.Backends, []string{"none", "remote"}) {
		t.Errorf("by default %+v", got)
	}
	// the desk is v's
	for body, connected := range map[string]bool{remotely: true, `{"backend": "remote"}`: true, `{"backend": "remote", "runner": "desk"}`: false} {
		set := data[wire.V1Backend](t, put(body))
		if set.Backend != "remote" || !set.Chosen || set.Connected != connected || set.UpdatedAt == nil {
			t.Errorf("%s: %+v", body, set)
		}
		if got := data[wire.V1Backend](t, f.get(whereU)); !reflect.DeepEqual(got, set) {
			t.Errorf("asked for it: %+v, was set: %+v", got, set)
		}
	}
	for body, field := range map[string]string{
		`{"backend": "docker"}`:                      "backend", // is not enabled
		`{"backend": "kubernetes"}`:                  "backend",
		`{"backend": ""}`:                            "backend",
		`{"backend": "none", "runner": "laptop"}`:    "runner",
		`{"backend": "remote", "runner": "a/b"}`:     "runner",
		`{"backend": "remote", "runner": "\u0000"}`:  "runner",
		`{"backend": "remote", "runner": " laptop"}`: "runner",
	} {
		put(body).refused(t, fault.InvalidRequest, field)
	}
	put(`{}`).refused(t, fault.InvalidRequest, "backend")
	put(`{"backend": "remote", "agent": "x"}`).refused(t, fault.InvalidRequest, "agent")
	if got := data[wire.V1Backend](t, f.get(whereU)); got.Backend != "remote" {
		t.Errorf("a refused choice changed it: %+v", got)
	}
	f.get("/v1/sandbox/.u/backend").refused(t, fault.InvalidRequest, "userId")

	// An agent may be called backend: its routes have one step more.
	if files := data[[]string](t, f.get("/v1/sandbox/v/backend/files")); len(files) != 0 {
		t.Errorf("%v", files)
	}
}

// TestBackendChoiceScope: the token must not be limited to agents or projects, since the choice
// applies to all.
func TestBackendChoiceScope(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *api.Config) { c.Runners = &dialledIn{} })
	for name, c := range map[string]struct {
		spec tokens.Spec
		may  bool // move; and the user's place may be seen by those who see the user's machines
		sees []string
	}{
		"an admin":                         {tokens.Spec{Role: tokens.Admin}, true, []string{"laptop", "desk"}},
		"a worker of all":                  {tokens.Spec{Role: tokens.Worker}, true, []string{"laptop", "desk"}},
		"a worker of the user":             {tokens.Spec{Role: tokens.Worker, Users: []string{"u"}}, true, []string{"laptop"}},
		"a worker of the workspace":        {tokens.Spec{Role: tokens.Worker, Projects: []string{"ag~u"}}, false, []string{"laptop"}},
		"a worker of the agent":            {tokens.Spec{Role: tokens.Worker, Agents: []string{"ag"}}, false, []string{"laptop", "desk"}},
		"an agent's admin":                 {tokens.Spec{Role: tokens.AgentAdmin, Agents: []string{"ag"}, Users: []string{"u"}}, false, []string{"laptop"}},
		"a worker of another":              {tokens.Spec{Role: tokens.Worker, Users: []string{"v"}}, false, []string{"desk"}},
		"a worker of a project":            {tokens.Spec{Role: tokens.Worker, Projects: []string{"demo"}}, false, nil},
		"a worker of another's workspace":  {tokens.Spec{Role: tokens.Worker, Projects: []string{"u~v"}}, false, []string{"desk"}},
		"an agent's admin of another user": {tokens.Spec{Role: tokens.AgentAdmin, Agents: []string{"ag"}, Users: []string{"v"}}, false, []string{"desk"}},
	} {
		_, secret := f.token(c.spec)
		for may, r := range map[*bool]reply{
			new(slices.Contains(c.sees, "laptop")): f.do(request{path: whereU, token: secret}),
			&c.may:                                 f.do(request{method: "PUT", path: whereU, body: `{"backend": "none"}`, token: secret}),
		} {
			if *may {
				data[wire.V1Backend](t, r)
			} else {
				r.refused(t, fault.Forbidden, "userId")
			}
		}
		var sees []string
		for _, r := range decodeAs[wire.RunnerList](t, f.do(request{path: "/runners", token: secret}), 200).Items {
			sees = append(sees, r.Name)
		}
		if !slices.Equal(sees, c.sees) {
			t.Errorf("%s sees %v", name, sees)
		}
	}
}

func TestOnlyRunnersConnect(t *testing.T) {
	t.Parallel()
	machines := &dialledIn{}
	f := start(t, func(c *api.Config) { c.Runners = machines })
	_, runner := f.token(tokens.Spec{Role: tokens.Runner, UserID: "u"})
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	for _, r := range []request{
		{path: "/ws"},
		{path: "/ws/transfers/abc"},
		{method: "PUT", path: "/ws/transfers/abc", body: "x"},
		{method: "HEAD", path: "/ws/transfers/abc"},
	} {
		r.token = runner
		if got := f.do(r); got.StatusCode != 503 {
			t.Errorf("%s %s: %d %s", r.method, r.path, got.StatusCode, got.body)
		}
		for _, bad := range []string{"", "sbx_wrong", admin} {
			r.token = bad
			if got := f.do(r); got.StatusCode != 401 && got.StatusCode != 403 {
				t.Errorf("%s %s with %.9q: %d", r.method, r.path, bad, got.StatusCode)
			}
		}
	}
	f.do(request{path: "/ws?token=" + runner}).wants(t, fault.Unauthenticated)
	f.do(request{path: "/ws?token=x", token: runner}).wants(t, fault.InvalidRequest, "token")
	f.do(request{path: "/ws", token: runner, header: map[string]string{"Origin": "http://evil.example"}}).wants(t, fault.ForeignOrigin)
	for _, path := range []string{"/runners", "/sandbox/execs", whereU} { // and it may use nothing else
		if r := f.do(request{path: path, token: runner}); r.StatusCode != 403 {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	if want := []string{"link of u", "GET abc of u", "PUT abc of u", "HEAD abc of u"}; !slices.Equal(machines.served, want) {
		t.Errorf("served %v", machines.served)
	}
	none := start(t)
	_, runner = none.token(tokens.Spec{Role: tokens.Runner, UserID: "u"})
	none.do(request{path: "/ws", token: runner}).wants(t, fault.NotFound)
}
