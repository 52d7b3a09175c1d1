package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/settings"
)

// token makes a token as `core-api token create` does while a server runs; it returns its id and
// its secret.
func (s *testServer) newToken(spec tokens.Spec) (id, secret string) {
	s.t.Helper()
	spec.Name = max(spec.Name, "test")
	token, secret, err := tokens.NewService(s.database().Tokens(), time.Now).Create(context.Background(), spec)
	if err != nil {
		s.t.Fatal(err)
	}
	return token.ID, secret
}

func (s *testServer) revoke(id string) {
	s.t.Helper()
	if _, err := tokens.NewService(s.database().Tokens(), time.Now).Revoke(context.Background(), id); err != nil {
		s.t.Fatal(err)
	}
}

// as is the same server asked with a token.
func (s *testServer) as(secret string) *testServer {
	mine := *s
	mine.token = secret
	return &mine
}

// TestTokens checks every kind of token on allowed and forbidden requests.
func TestTokens(t *testing.T) {
	t.Parallel()
	dir := hostileDir(t)
	s := tidyIn(t, dir, noPool)
	s.exec(shell("open", "true")) // no token is needed yet
	_, admin := s.newToken(tokens.Spec{Role: tokens.Admin})
	workerID, worker := s.newToken(tokens.Spec{Role: tokens.Worker})
	_, other := s.newToken(tokens.Spec{Role: tokens.Worker})
	_, ofProject := s.newToken(tokens.Spec{Role: tokens.Worker, Projects: []string{"mine"}})
	_, ofUser := s.newToken(tokens.Spec{Role: tokens.Worker, Agents: []string{"agent"}, Users: []string{"user"}})
	_, auditor := s.newToken(tokens.Spec{Role: tokens.Auditor})
	_, agentAdmin := s.newToken(tokens.Spec{Role: tokens.AgentAdmin, Agents: []string{"agent"}})
	_, runner := s.newToken(tokens.Spec{Role: tokens.Runner, UserID: "user"})
	revokedID, revoked := s.newToken(tokens.Spec{Role: tokens.Admin})
	if a := s.as(revoked).send(http.MethodGet, "/sandbox/execs", nil); a.Code != http.StatusOK {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	s.revoke(revokedID)

	mine := s.as(worker).exec(shell("mine", "echo hi > /workspace/artifacts/hi.txt"))
	mineID := mine.str("exec_id")
	created := s.as(admin).watchCreations()
	before := describe(t, dir)
	post := func(project string, more ...any) object { return shell(project, "true", more...) }
	exec := "/sandbox/execs/" + mineID
	for _, c := range []struct {
		name, secret string
		method, path string
		body         any
		status       int
		code         string
		field        string
		header       []string
	}{
		{name: "none", method: "POST", path: "/sandbox/execs", body: post("mine"), status: 401, code: "unauthenticated"},
		{name: "none", method: "GET", path: "/sandbox/execs", status: 401, code: "unauthenticated"},
		{name: "none", method: "GET", path: exec + "/stdout", status: 401, code: "unauthenticated"},
		{name: "none", method: "GET", path: "/metrics", status: 401, code: "unauthenticated"},
		{name: "none", method: "GET", path: "/healthz", status: 200},
		{
			name: "unknown", secret: "sbx_" + strings.Repeat("A", 43), method: "POST", path: "/sandbox/execs", body: post("mine"), status: 401,
			code: "unauthenticated",
		},
		{name: "cut short", secret: admin[:len(admin)-1], method: "POST", path: "/sandbox/execs", body: post("mine"), status: 401, code: "unauthenticated"},
		{name: "too long", secret: strings.Repeat("x", 5000), method: "GET", path: "/sandbox/execs", status: 401, code: "unauthenticated"},
		{
			name: "another scheme", header: []string{"Authorization", "Basic " + admin}, method: "GET", path: "/sandbox/execs", status: 401,
			code: "unauthenticated",
		},
		{name: "no secret", header: []string{"Authorization", "Bearer "}, method: "GET", path: "/sandbox/execs", status: 401, code: "unauthenticated"},
		{name: "the id instead of the secret", secret: workerID, method: "GET", path: "/sandbox/execs", status: 401, code: "unauthenticated"},
		{name: "revoked", secret: revoked, method: "POST", path: "/sandbox/execs", body: post("mine"), status: 401, code: "token_revoked"},
		{name: "revoked", secret: revoked, method: "GET", path: exec, status: 401, code: "token_revoked"},

		{name: "auditor", secret: auditor, method: "POST", path: "/sandbox/execs", body: post("mine"), status: 403, code: "forbidden"},
		{name: "auditor", secret: auditor, method: "POST", path: exec + "/cancel", status: 403, code: "forbidden"},
		{name: "auditor", secret: auditor, method: "GET", path: exec, status: 200},
		{name: "auditor", secret: auditor, method: "GET", path: exec + "/artifacts/hi.txt", status: 200},
		{name: "agent-admin", secret: agentAdmin, method: "POST", path: "/sandbox/execs", body: post("agent~user"), status: 403, code: "forbidden"},
		{name: "agent-admin", secret: agentAdmin, method: "GET", path: "/sandbox/execs", status: 403, code: "forbidden"},
		{name: "agent-admin", secret: agentAdmin, method: "GET", path: exec + "/artifacts", status: 403, code: "forbidden"},
		{name: "runner", secret: runner, method: "POST", path: "/sandbox/execs", body: post("agent~user"), status: 403, code: "forbidden"},
		{name: "runner", secret: runner, method: "GET", path: "/sandbox/health", status: 403, code: "forbidden"},

		{
			name: "worker of a project", secret: ofProject, method: "POST", path: "/sandbox/execs", body: post("never"), status: 403, code: "forbidden",
			field: "project_id",
		},
		{
			name: "worker of a project, by conversation", secret: ofProject, method: "POST", path: "/sandbox/execs", body: post("", "conversation_id", "never"),
			status: 403, code: "forbidden", field: "conversation_id",
		},
		{
			name: "worker of a project", secret: ofProject, method: "POST", path: "/sandbox/execs", body: post("mine~user"), status: 403, code: "forbidden",
			field: "project_id",
		},
		{
			name: "worker of a project, in other case", secret: ofProject, method: "POST", path: "/sandbox/execs", body: post("MINE"), status: 403,
			code: "forbidden", field: "project_id",
		},
		{
			name: "worker of a project", secret: ofProject, method: "POST", path: "/sandbox/policy/resolve", body: object{"project_id": "never"}, status: 403,
			code: "forbidden", field: "project_id",
		},
		{
			name: "worker of a user", secret: ofUser, method: "POST", path: "/sandbox/execs", body: post("agent~other"), status: 403, code: "forbidden",
			field: "user_id",
		},
		{
			name: "worker of a user", secret: ofUser, method: "POST", path: "/sandbox/execs", body: post("other~user"), status: 403, code: "forbidden",
			field: "project_id",
		},
		{
			name: "worker of a user, in a plain project", secret: ofUser, method: "POST", path: "/sandbox/execs", body: post("mine", "user_id", "user"),
			status: 403, code: "forbidden", field: "project_id",
		},

		{name: "another worker", secret: other, method: "GET", path: exec, status: 404, code: "unknown_exec"},
		{name: "another worker", secret: other, method: "GET", path: exec + "/artifacts", status: 404, code: "unknown_exec"},
		{name: "another worker", secret: other, method: "GET", path: exec + "/artifacts?format=zip", status: 404, code: "unknown_exec"},
		{name: "another worker", secret: other, method: "GET", path: exec + "/artifacts/hi.txt", status: 404, code: "unknown_exec"},
		{name: "another worker", secret: other, method: "GET", path: exec + "/stdout", status: 404, code: "unknown_exec"},
		{name: "another worker", secret: other, method: "POST", path: exec + "/cancel", status: 404, code: "unknown_exec"},
		{name: "worker", secret: worker, method: "GET", path: exec + "/artifacts/hi.txt", status: 200},
		{name: "admin", secret: admin, method: "GET", path: exec, status: 200},
	} {
		t.Run(c.name+" "+c.method+" "+strings.ReplaceAll(c.path, mineID, "id"), func(t *testing.T) {
			a := s.under(t).as(c.secret).send(c.method, c.path, c.body, c.header...)
			if a.Code != c.status {
				t.Fatalf("got %d %s, want %d", a.Code, a.Body, c.status)
			}
			if c.code == "" {
				return
			}
			problem := a.json(t)
			ofScope := c.field != "" && c.path == "/sandbox/execs" // on record
			if problem.str("code") != c.code || (problem.str("exec_id") != "") != ofScope {
				t.Errorf("%s, want %s", a.Body, c.code)
			}
			if fields := problem.list("errors"); c.field != "" && (len(fields) == 0 || fields[0].str("field") != c.field) {
				t.Errorf("fields %v, want %s", fields, c.field)
			}
			if c.status == 401 && !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("WWW-Authenticate: %q", a.Header.Get("WWW-Authenticate"))
			}
			for _, secret := range []string{admin, worker, revoked} {
				if strings.Contains(string(a.Body), secret) {
					t.Error("the answer has a secret")
				}
			}
		})
	}
	for _, line := range differences(before, describe(t, dir)) {
		t.Error(line)
	}
	if ran, refused := s.as(admin).records("status=succeeded"), s.as(admin).records("status=rejected"); len(ran) != 2 || len(refused) != 7 {
		t.Errorf("%d rows of execs that ran, %d of refused ones", len(ran), len(refused))
	}
	workspace := s.as(ofUser).exec(shell("agent~user", "pwd"))
	if before := created.upTo(workspace.str("exec_id")); len(before) > 0 {
		t.Errorf("containers were created for %q", before)
	}
	record := s.as(auditor).get("/sandbox/execs/" + workspace.str("exec_id"))
	if record.str("agent_id") != "agent" || record.str("user_id") != "user" || record.str("project_id") != "agent~user" ||
		workspace.str("artifacts_dir") != "projects/agent~user/artifacts/"+workspace.str("exec_id") {
		t.Errorf("%v %v", workspace, record)
	}
	for name, c := range map[string]struct {
		secret, query string
		want          int
	}{
		"worker": {worker, "", 1}, "worker, of others": {worker, "project_id=agent~user", 0}, "another worker": {other, "", 0},
		"worker of a user":    {ofUser, "user_id=user", 1},
		"worker of a project": {ofProject, "project_id=mine", 0}, "auditor": {auditor, "", 3}, "auditor, of a user": {auditor, "user_id=user", 1},
		"admin": {admin, "", 3},
	} {
		if items := s.as(c.secret).records("status=succeeded&" + c.query); len(items) != c.want {
			t.Errorf("%s sees %d execs with %q, want %d", name, len(items), c.query, c.want)
		}
	}
	if mine.str("exec_id") == "" || s.as(admin).get(exec).str("requested_by") != workerID {
		t.Errorf("requested_by is not the token")
	}
	// Revoked at once.
	s.revoke(workerID)
	s.as(worker).refused(401, "token_revoked", post("mine"))
	if text := string(s.as(admin).send(http.MethodGet, "/metrics", nil).Body); strings.Contains(text, worker) || !strings.Contains(text, "secbox_execs_total") {
		t.Error("metrics")
	}
}

// TestForeignPages checks that requests with a foreign Origin or Host header are refused on every
// route.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	dir := hostileDir(t)
	s := tidyIn(t, dir, noPool, func(c *settings.Settings) { c.HTTP.AllowedHosts = []string{"sandbox.example"} })
	id := s.exec(shell("demo", "true")).str("exec_id")
	port := s.app.Addr()[strings.LastIndexByte(s.app.Addr(), ':'):]
	before := describe(t, dir)
	for _, c := range []struct {
		name   string
		header []string
		code   string
	}{
		{"a foreign name", []string{"Host", "evil.example"}, "foreign_host"},
		{"a foreign name with our port", []string{"Host", "evil.example" + port}, "foreign_host"},
		{"a name that begins like ours", []string{"Host", "127.0.0.1.evil.example"}, "foreign_host"},
		{"a name that ends like ours", []string{"Host", "evil-localhost"}, "foreign_host"},
		{"another address", []string{"Host", "192.0.2.1"}, "foreign_host"},
		{"a forwarded name", []string{"Host", "evil.example", "X-Forwarded-Host", "localhost"}, "foreign_host"},
		{"a page", []string{"Origin", "http://evil.example"}, "foreign_origin"},
		{"a page on another port", []string{"Origin", "http://127.0.0.1:1"}, "foreign_origin"},
		{"a page without an origin", []string{"Origin", "null"}, "foreign_origin"},
		{"a page with our name inside", []string{"Origin", "http://127.0.0.1" + port + ".evil.example"}, "foreign_origin"},
		{"a page with our name as user", []string{"Origin", "http://127.0.0.1" + port + "@evil.example"}, "foreign_origin"},
		{"an extension", []string{"Origin", "chrome-extension://x"}, "foreign_origin"},
		{"a browser's word", []string{"Sec-Fetch-Site", "cross-site"}, "foreign_origin"},
		{"a browser's word, same site", []string{"Sec-Fetch-Site", "same-site"}, "foreign_origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.under(t)
			s.refused(403, c.code, shell("never", "true"), c.header...)
			for _, path := range []string{
				"/sandbox/execs", "/sandbox/execs/" + id, "/sandbox/health", "/healthz", "/metrics", "/docs", "/openapi.yaml",
				"/nothing",
			} {
				if a := s.send(http.MethodGet, path, nil, c.header...); a.Code != 403 || a.json(t).str("code") != c.code ||
					a.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s: %d %s", path, a.Code, a.Body)
				}
			}
			if a := s.send(http.MethodPost, "/sandbox/execs/"+id+"/cancel", nil, c.header...); a.Code != 403 {
				t.Errorf("cancel: %d %s", a.Code, a.Body)
			}
		})
	}
	for _, header := range [][]string{
		{"Host", "localhost"},
		{"Host", "LOCALHOST" + port},
		{"Host", "[::1]" + port},
		{"Host", "sandbox.example"},
		{"Origin", "http://" + s.app.Addr()},
		{"Host", "localhost:1234", "Origin", "http://localhost:1234"},
		{"Sec-Fetch-Site", "same-origin"},
		{"Sec-Fetch-Site", "none"},
	} {
		if a := s.send(http.MethodGet, "/sandbox/execs/"+id, nil, header...); a.Code != http.StatusOK {
			t.Errorf("%q: %d %s", header, a.Code, a.Body)
		}
	}
	// Forwarding headers do not make a client local.
	for _, header := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"} {
		s.refused(401, "unauthenticated", shell("never", "true"), header, "127.0.0.1")
	}
	for _, line := range differences(before, describe(t, dir)) {
		t.Error(line)
	}
	if all := s.records(""); len(all) != 1 {
		t.Errorf("%d rows", len(all))
	}
}

// TestBodyOverTheLimit, announced and not.
func TestBodyOverTheLimit(t *testing.T) {
	t.Parallel()
	dir := hostileDir(t)
	const limit = 64 << 10
	s := tidyIn(t, dir, noPool, func(c *settings.Settings) { c.HTTP.MaxBodyBytes = limit })
	s.exec(shell("demo", "true"))
	before := describe(t, dir)
	body := func(size int) string {
		text := raw(`"conversation_id": "`)
		text = text[:len(text)-1]
		return text + strings.Repeat(" ", size-len(text)-2) + `"}`
	}
	post := func(body io.Reader) answer {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/sandbox/execs", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		content, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer{resp.StatusCode, resp.Header, content}
	}
	for name, over := range map[string]io.Reader{
		"announced": strings.NewReader(body(limit + 1)), "chunked": struct{ io.Reader }{strings.NewReader(body(limit + 1))},
		"far over, announced": strings.NewReader(body(40 << 20)), "far over, chunked": struct{ io.Reader }{strings.NewReader(body(4 << 20))},
	} {
		if a := post(over); a.Code != http.StatusRequestEntityTooLarge || a.json(t).str("code") != "body_too_large" {
			t.Errorf("%s: %d %.300s", name, a.Code, a.Body)
		}
	}
	for name, at := range map[string]io.Reader{
		"announced": strings.NewReader(body(limit)), "chunked": struct{ io.Reader }{strings.NewReader(body(limit))},
	} { // within the limit, and refused for another reason
		if a := post(at); a.Code != http.StatusBadRequest || a.json(t).str("code") != "invalid_request" {
			t.Errorf("at the limit, %s: %d %.300s", name, a.Code, a.Body)
		}
	}
	for _, line := range differences(before, describe(t, dir)) {
		t.Error(line)
	}
	if all := s.records(""); len(all) != 1 {
		t.Errorf("%d rows", len(all))
	}
}
