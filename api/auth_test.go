package api_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

func TestLoopbackNeedsNoTokenUntilOneExists(t *testing.T) {
	t.Parallel()
	f := start(t)
	if r := f.get("/sandbox/execs"); r.StatusCode != 200 {
		t.Fatalf("before the first token: %d", r.StatusCode)
	}
	f.token(tokens.Spec{Role: tokens.Runner, UserID: "u1"})
	if r := f.get("/sandbox/execs"); r.StatusCode != 200 {
		t.Fatalf("a runner's token is not the first one: %d", r.StatusCode)
	}
	id, secret := f.token(tokens.Spec{Role: tokens.Auditor})
	r := f.get("/sandbox/execs")
	r.wants(t, fault.Unauthenticated)
	if !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("WWW-Authenticate is %q", r.Header.Get("WWW-Authenticate"))
	}
	if r := f.do(request{path: "/sandbox/execs", token: secret}); r.StatusCode != 200 {
		t.Errorf("with the token: %d", r.StatusCode)
	}
	if _, err := f.tokens.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	f.do(request{path: "/sandbox/execs", token: secret}).wants(t, fault.TokenRevoked)
	f.get("/healthz")
}

func TestBadTokenOnLoopback(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, header := range []string{
		"Bearer nonsense", "Bearer ", "Bearer", "Basic YTpi", "nonsense", "Bearer a b", "bearer\tx", "Token x",
		"Bearer " + strings.Repeat("x", 9000),
	} {
		f.do(request{path: "/sandbox/execs", header: map[string]string{"Authorization": header}}).wants(t, fault.Unauthenticated)
	}
	_, secret := f.token(tokens.Spec{Role: tokens.Admin})
	if r := f.do(request{path: "/sandbox/execs", header: map[string]string{"Authorization": "bearer " + secret}}); r.StatusCode != 200 {
		t.Errorf("the scheme's case matters: %d", r.StatusCode)
	}
	if r := f.do(request{path: "/healthz", header: map[string]string{"Authorization": "Bearer nonsense"}}); r.StatusCode != 200 {
		t.Errorf("a public route checks tokens: %d", r.StatusCode)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", f.url+"/sandbox/execs", nil)
	req.Header["Authorization"] = []string{"Bearer " + secret, "Bearer " + secret}
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Errorf("two tokens: %d", resp.StatusCode)
	}
	if strings.Contains(f.log.String(), secret) {
		t.Error("the log holds the secret")
	}
}

// TestOnlyLocalRequestsNeedNoToken: remote clients, servers on other addresses and requests through
// a proxy need one.
func TestOnlyLocalRequestsNeedNoToken(t *testing.T) {
	t.Parallel()
	local := start(t)
	elsewhere := start(t, func(c *api.Config) { c.ListenAddr = "0.0.0.0:8003" })
	proxied := start(t, func(c *api.Config) { c.TrustedProxies = []string{"127.0.0.1", "10.0.0.0/8"} })
	for name, tc := range map[string]struct {
		server *api.Server
		remote string
		header [2]string
		want   int
	}{
		"loopback":              {local.server, "127.0.0.1:1", [2]string{}, 200},
		"loopback, IPv6":        {local.server, "[::1]:1", [2]string{}, 200},
		"loopback, mapped":      {local.server, "[::ffff:127.0.0.1]:1", [2]string{}, 200},
		"remote end":            {local.server, "192.0.2.7:1", [2]string{}, 401},
		"no address":            {local.server, "", [2]string{}, 401},
		"a socket":              {local.server, "@", [2]string{}, 401},
		"forged header":         {local.server, "192.0.2.7:1", [2]string{"X-Forwarded-For", "127.0.0.1"}, 401},
		"forged real ip":        {local.server, "192.0.2.7:1", [2]string{"X-Real-Ip", "127.0.0.1"}, 401},
		"a proxy":               {local.server, "127.0.0.1:1", [2]string{"X-Forwarded-For", "192.0.2.7"}, 401},
		"a proxy's host header": {local.server, "127.0.0.1:1", [2]string{"X-Forwarded-Proto", "https"}, 401},
		"trusted proxies":       {proxied.server, "127.0.0.1:1", [2]string{}, 401},
		"a standard proxy":      {local.server, "127.0.0.1:1", [2]string{"Forwarded", "for=192.0.2.7"}, 401},
		"bound elsewhere":       {elsewhere.server, "127.0.0.1:1", [2]string{}, 401},
		"bound elsewhere, both": {elsewhere.server, "192.0.2.7:1", [2]string{}, 401},
	} {
		r := httptest.NewRequest("GET", "http://localhost/sandbox/execs", nil)
		r.RemoteAddr = tc.remote
		if tc.header[0] != "" {
			r.Header.Set(tc.header[0], tc.header[1])
		}
		w := httptest.NewRecorder()
		tc.server.ServeHTTP(w, r)
		if w.Code != tc.want {
			t.Errorf("%s: %d, want %d", name, w.Code, tc.want)
		}
	}
}

// TestClientAddressBehindProxies: the log has the address that a trusted proxy reports; other
// proxies are not believed.
func TestClientAddressBehindProxies(t *testing.T) {
	t.Parallel()
	proxied := start(t, func(c *api.Config) { c.TrustedProxies = []string{"127.0.0.1", "10.0.0.0/8"} })
	for from, want := range map[[2]string]string{
		{"127.0.0.1:1", "192.0.2.7, 192.0.2.8, 10.1.2.3"}: "192.0.2.8",
		{"192.0.2.9:1", "192.0.2.10"}:                     "192.0.2.9",
	} {
		r := httptest.NewRequest("GET", "http://localhost/sandbox/execs", nil)
		r.RemoteAddr = from[0]
		r.Header.Set("X-Forwarded-For", from[1])
		proxied.server.ServeHTTP(httptest.NewRecorder(), r)
		if !strings.Contains(proxied.log.String(), "remote="+want+" ") {
			t.Errorf("%v: no %s in %s", from, want, proxied.log)
		}
	}
}

// TestRevokingTheLastToken: once a token has existed, every request needs one.
func TestRevokingTheLastToken(t *testing.T) {
	t.Parallel()
	f := start(t)
	if r := f.get("/sandbox/execs"); r.StatusCode != 200 {
		t.Fatalf("before the first: %d", r.StatusCode)
	}
	id, secret := f.token(tokens.Spec{Role: tokens.Admin})
	if _, err := f.tokens.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	f.get("/sandbox/execs").wants(t, fault.Unauthenticated)
	f.do(request{path: "/sandbox/execs", token: secret}).wants(t, fault.TokenRevoked)
	if usable, err := f.tokens.Usable(t.Context()); usable || err != nil {
		t.Errorf("usable: %v, %v", usable, err)
	}
}

// TestRolesAndRoutes tries every role on every route: openapi.yaml decides which may use it.
func TestRolesAndRoutes(t *testing.T) {
	t.Parallel()
	f := start(t)
	secrets := map[tokens.Role]string{}
	for _, role := range tokens.Roles() {
		spec := tokens.Spec{Role: role}
		switch role {
		case tokens.AgentAdmin:
			spec.Agents = []string{"ag"}
		case tokens.Runner:
			spec.UserID = "u1"
		}
		_, secrets[role] = f.token(spec)
	}
	const id = "/sandbox/execs/019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"
	const all = "worker auditor agent-admin admin runner none"
	for route, may := range map[string]string{
		"POST /sandbox/execs":                       "worker admin",
		"GET /sandbox/execs":                        "worker auditor admin",
		"GET " + id:                                 "worker auditor admin",
		"GET " + id + "/artifacts":                  "worker auditor admin",
		"GET " + id + "/artifacts/a/b":              "worker auditor admin",
		"GET " + id + "/stdout":                     "worker auditor admin",
		"GET " + id + "/stderr":                     "worker auditor admin",
		"HEAD " + id + "/stderr":                    "worker auditor admin",
		"POST " + id + "/cancel":                    "worker admin",
		"POST /sandbox/policy/resolve":              "worker auditor agent-admin admin",
		"GET /skills":                               "worker auditor agent-admin admin",
		"GET /skills/shell.run":                     "worker auditor agent-admin admin",
		"POST /skills/unknown/invoke":               "worker admin",
		"POST /mcp":                                 "worker admin",
		"GET /mcp":                                  "worker admin",
		"DELETE /mcp":                               "worker admin",
		"GET /v1/skills/u/ag/list":                  "worker auditor agent-admin admin",
		"GET /v1/skills/u/ag/status":                "worker auditor agent-admin admin",
		"POST /v1/skills/u/ag/upload":               "worker agent-admin admin",
		"DELETE /v1/skills/u/ag/s":                  "worker agent-admin admin",
		"GET /v1/skills/u/ag/s/files":               "worker auditor agent-admin admin",
		"GET /v1/skills/u/ag/s/content?path=a":      "worker auditor agent-admin admin",
		"PUT /v1/skills/u/ag/s/edit?path=a":         "worker agent-admin admin",
		"POST /v1/skills/u/ag/s/execute?command=ls": "worker agent-admin admin",
		"POST /v1/skills/u/ag/s/baseline":           "agent-admin admin",
		"POST /v1/skills/u/ag/s/sync":               "worker agent-admin admin",
		"GET /v1/skills/u/ag/s/diff":                "worker auditor agent-admin admin",
		"GET /v1/skills/u/ag/s/download":            "worker auditor agent-admin admin",
		"GET /v1/sandbox/u/ag/files":                "worker agent-admin admin",
		"GET /v1/sandbox/u/ag/content?path=a":       "worker agent-admin admin",
		"PUT /v1/sandbox/u/ag/edit?path=a":          "worker agent-admin admin",
		"POST /v1/sandbox/u/ag/execute?command=ls":  "worker agent-admin admin",
		"GET /v1/sandbox/u/backend":                 "worker agent-admin admin",
		"PUT /v1/sandbox/u/backend":                 "worker agent-admin admin",
		"GET /runners":                              "worker auditor agent-admin admin",
		"GET /ws":                                   "runner",
		"HEAD /ws/transfers/x":                      "runner",
		"PUT /ws/transfers/x":                       "runner",
		"GET /ws/transfers/x":                       "runner",
		"GET /sandbox/health":                       "worker auditor agent-admin admin",
		"GET /sandbox/pool":                         "auditor admin",
		"GET /metrics":                              "auditor admin",
		"GET /audit/export":                         "auditor admin",
		"GET /audit/events":                         "auditor admin",
		"GET /audit/events/1/proof":                 "auditor admin",
		"GET /healthz":                              all,
		"GET /readyz":                               all,
		"GET /docs":                                 all,
		"GET /openapi.yaml":                         all,
		"HEAD /docs":                                all,
	} {
		method, path, _ := strings.Cut(route, " ")
		for _, role := range append(tokens.Roles(), "none") {
			r := f.do(request{method: method, path: path, token: secrets[role], body: map[bool]any{true: "{}"}[method == "POST"]})
			let := r.StatusCode != 403 && r.StatusCode != 401
			if want := slices.Contains(strings.Fields(may), string(role)); let != want {
				// agent-admin is limited to its agent, so a policy of no project is not its own
				if role == tokens.AgentAdmin && path == "/sandbox/policy/resolve" && r.StatusCode == 403 && strings.Contains(string(r.body), "scope") {
					continue
				}
				t.Errorf("%s by %s: %d %s", route, role, r.StatusCode, r.body)
			}
			if role == "none" && !let {
				r.Request.Method = method
				if r.StatusCode != 401 {
					t.Errorf("%s without a token: %d", route, r.StatusCode)
				}
			}
		}
	}
	p := f.do(request{method: "POST", path: "/sandbox/execs", body: "{}", token: secrets[tokens.Auditor]}).wants(t, fault.Forbidden)
	if !strings.Contains(p.Detail, "auditor") || !strings.Contains(p.Detail, "worker, admin") {
		t.Errorf("%q does not say who may", p.Detail)
	}
}

func TestWorkerSeesOnlyItsExecs(t *testing.T) {
	t.Parallel()
	f := start(t)
	mineID, mine := f.token(tokens.Spec{Role: tokens.Worker})
	_, others := f.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor})
	_, admin := f.token(tokens.Spec{Role: tokens.Admin})
	r := f.do(request{method: "POST", path: "/sandbox/execs", body: `{"project_id": "demo", ` + aCommand + `}`, token: mine})
	rec := decodeAs[wire.ExecResult](t, r, 200)
	if by := f.runner.seen()[0].RequestedBy; by != mineID {
		t.Errorf("requested by %q, want %q", by, mineID)
	}
	for _, rest := range []string{"", "/artifacts", "/artifacts?format=zip", "/inputs", "/stdout", "/stderr"} {
		path := "/sandbox/execs/" + rec.ExecID + rest
		for _, secret := range []string{mine, auditor, admin} {
			if r := f.do(request{path: path, token: secret}); r.StatusCode != 200 {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		}
		f.do(request{path: path, token: others}).wants(t, fault.UnknownExec)
	}
	f.do(request{method: "POST", path: "/sandbox/execs/" + rec.ExecID + "/cancel", token: others}).wants(t, fault.UnknownExec)
	f.do(request{method: "POST", path: "/sandbox/execs/" + rec.ExecID + "/cancel", token: auditor}).wants(t, fault.Forbidden)
	for secret, want := range map[string]int{mine: 1, others: 0, auditor: 1, admin: 1} {
		if got := decodeAs[wire.ExecList](t, f.do(request{path: "/sandbox/execs?project_id=demo", token: secret}), 200); len(got.Items) != want {
			t.Errorf("listed %d, want %d", len(got.Items), want)
		}
	}
	missing := f.do(request{path: "/sandbox/execs/019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d", token: others}).problem(t)
	foreign := f.do(request{path: "/sandbox/execs/" + rec.ExecID, token: others}).problem(t)
	if missing.Title != foreign.Title || strings.Replace(missing.Detail, "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d", rec.ExecID, 1) != foreign.Detail {
		t.Errorf("a foreign exec can be told from a missing one: %q, %q", foreign.Detail, missing.Detail)
	}
}

func TestWorkerScope(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, projects := f.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"demo"}})
	_, agents := f.token(tokens.Spec{Role: tokens.Worker, Agents: []string{"ag"}})
	_, users := f.token(tokens.Spec{Role: tokens.Worker, Users: []string{"u1"}})
	for _, tc := range []struct {
		who, secret, body string
		fields            []string
	}{
		{"projects", projects, `"project_id": "demo"`, nil},
		{"projects", projects, `"conversation_id": "demo"`, nil},
		{"projects", projects, `"project_id": "other"`, []string{"project_id"}},
		{"projects", projects, `"project_id": "Demo"`, []string{"project_id"}},
		{"projects", projects, `"project_id": "other", "conversation_id": "demo"`, []string{"project_id"}},
		{"projects", projects, `"conversation_id": "other"`, []string{"conversation_id"}},
		{"projects", projects, `"task_ref": {}`, []string{"project_id"}},
		{"agents", agents, `"project_id": "ag~u1"`, nil},
		{"agents", agents, `"project_id": "ag2~u1"`, []string{"project_id"}},
		{"agents", agents, `"project_id": "demo"`, []string{"project_id"}},
		{"users", users, `"project_id": "ag~u1"`, nil},
		{"users", users, `"project_id": "ag~u2"`, []string{"user_id"}},
		{"users", users, `"project_id": "ag~u2", "user_id": "u1"`, []string{"user_id"}},
		{"users", users, `"project_id": "demo", "user_id": "u1"`, []string{"project_id"}},
		{"users", users, `"conversation_id": "demo", "user_id": "u1"`, []string{"conversation_id"}},
		{"users", users, `"project_id": "demo", "user_id": "u2"`, []string{"project_id"}},
		{"users", users, `"project_id": "demo"`, []string{"project_id"}},
		{"users", users, `"task_ref": {}`, []string{"project_id"}},
	} {
		r := f.do(request{method: "POST", path: "/sandbox/execs", body: `{` + tc.body + `, ` + aCommand + `}`, token: tc.secret})
		if tc.fields == nil {
			if r.StatusCode != 200 {
				t.Errorf("%s %s: %d %s", tc.who, tc.body, r.StatusCode, r.body)
			}
		} else {
			t.Log(tc.who, tc.body)
			r.wants(t, fault.Forbidden, tc.fields...)
		}
		body, _, _ := strings.Cut(tc.body, `, "task_ref"`)
		if strings.HasPrefix(body, `"task_ref"`) {
			body = `"skill_id": ""`
		}
		if r := f.do(request{
			method: "POST", path: "/sandbox/policy/resolve", body: `{` + body + `}`,
			token: tc.secret,
		}); (r.StatusCode == 200) != (tc.fields == nil) {
			t.Errorf("resolve %s %s: %d", tc.who, tc.body, r.StatusCode)
		}
	}
}

func TestAuthenticationWithoutDatabase(t *testing.T) {
	t.Parallel()
	f := start(t)
	_, secret := f.token(tokens.Spec{Role: tokens.Admin})
	rec := f.record(func(r *audit.Record) {})
	f.db.Close()
	f.do(request{path: "/sandbox/execs/" + rec.ExecID, token: secret}).wants(t, fault.DatabaseUnavailable)
	f.get("/sandbox/execs").wants(t, fault.DatabaseUnavailable)
	f.get("/sandbox/health").wants(t, fault.DatabaseUnavailable)
	if r := f.get("/healthz"); r.StatusCode != 200 {
		t.Errorf("liveness asks the database: %d", r.StatusCode)
	}
}

func TestMCPStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	f := start(t, func(c *api.Config) {
		c.TokenInterval = time.Millisecond
		c.MCP = func(w http.ResponseWriter, r *http.Request, _ tokens.Token, _ func(int64) (func(), error)) {
			w.Header().Set("Content-Type", "text/event-stream")
			close(open)
			<-r.Context().Done()
		}
	})
	id, secret := f.token(tokens.Spec{Role: tokens.Worker})
	ended := make(chan reply)
	go func() {
		ended <- f.do(request{path: "/mcp", token: secret, header: map[string]string{"Accept": "text/event-stream"}})
	}()
	<-open
	if _, err := f.tokens.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.StatusCode != http.StatusOK {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}
