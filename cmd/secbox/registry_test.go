package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"secbox/fault"
)

// fakeRegistry answers as core-api does.
type fakeRegistry struct {
	mu    sync.Mutex
	asked []string
}

func (f *fakeRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	reply := func(status int, text string) { w.WriteHeader(status); fmt.Fprint(w, text) }
	switch {
	case r.Header.Get("Authorization") != "Bearer right":
		reply(401, `{"status":"error","data":{"code":"unauthenticated","message":"this request needs a token"}}`)
	case r.URL.Path == "/v1/registry/skills" && r.URL.Query().Get("cursor") == "":
		reply(200,
			`{"status":"success","data":{"items":[{"name":"csv","version":2,"author_user_id":"ann","description":"Reads tables."}],"next_cursor":"Y3N2"}}`)
	case r.URL.Path == "/v1/registry/skills":
		reply(200, `{"status":"success","data":{"items":[{"name":"zip","version":1,"author_user_id":"bob","description":"Packs."}],"next_cursor":null}}`)
	case strings.HasPrefix(r.URL.Path, "/v1/catalog/"):
		reply(200,
			`{"status":"success","data":{"entries":[{"kind":"skill","name":"csv","description":"Reads tables.","global":true},{"kind":"agent","name":"reviewer","description":"Reviews.","global":false,"warning":"reviewer.md is not UTF-8"}],"problems":[{"path":"/workspace/skills","code":"runner_offline","reason":"start secbox runner"}],"read_at":"2026-11-22T07:00:00.000000Z"}}`)
	case strings.HasSuffix(r.URL.Path, "/taken/publish"):
		reply(409, `{"status":"error","data":{"code":"name_taken","message":"skill \"taken\" belongs to the user ann"}}`)
	case strings.HasSuffix(r.URL.Path, "/page/publish"):
		reply(200, `<html>`)
	case r.Method == http.MethodDelete:
		reply(200, `{"status":"success","data":"done"}`)
	default:
		reply(200, `{"status":"success","data":{"version":3,"digest":"98ea6e4f216f2fb4"}}`)
	}
}

func TestRegistryCommands(t *testing.T) {
	t.Parallel()
	f := &fakeRegistry{}
	web := httptest.NewServer(f)
	t.Cleanup(web.Close)
	for _, c := range []struct {
		args        string
		out, errOut string
		code        int
		asked       string
	}{
		{"search read csv", "csv  2  ann  Reads tables.\nzip  1  bob  Packs.\n", "", 0, "GET /v1/registry/skills?limit=500&query=read+csv"},
		{"publish csv", "published csv version 3 98ea6e4f216f\n", "", 0, "POST /v1/registry/u/a/skills/csv/publish"},
		{"install a/b --agents", "installed a/b version 3 98ea6e4f216f\n", "", 0, "POST /v1/registry/u/a/agents/a%2Fb/install"},
		{"uninstall csv", "uninstalled csv\n", "", 0, "DELETE /v1/registry/u/a/skills/csv/install"},
		{"withdraw csv", "withdrawn csv\n", "", 0, "DELETE /v1/registry/u/a/skills/csv/publish"},
		{
			"list", "skill  csv       global  Reads tables.\nagent  reviewer  own     Reviews.\n", `not listed: "/workspace/skills": start secbox runner`, 0,
			"GET /v1/catalog/u/a",
		},
		{"list --agents", "agent  reviewer  own  Reviews.\n", `agent "reviewer": reviewer.md is not UTF-8`, 0, "GET /v1/catalog/u/a"},
		{"publish taken", "", `skill "taken" belongs to the user ann`, fault.ExitCode(fault.NameTaken), "POST /v1/registry/u/a/skills/taken/publish"},
		{"publish page", "", "is not a core-api", 2, "POST /v1/registry/u/a/skills/page/publish"},
		{"publish", "", "accepts 1 arg", 2, ""},
		{"publish csv --user=", "", "--user and --agent", 2, ""},
		{"search --token-file=/nowhere", "", "cannot read the token file", 2, ""},
		{"search --server=http://core.example", "", "plain text", fault.ExitCode(fault.Forbidden), ""},
	} {
		f.mu.Lock()
		f.asked = nil
		f.mu.Unlock()
		args := slices.Concat([]string{"registry", "--server", web.URL, "--user", "u", "--agent", "a"}, strings.Fields(c.args))
		var out, errOut bytes.Buffer
		code := run(t.Context(), args, environment(envToken, "right"), strings.NewReader(""), &out, &errOut)
		if code != c.code || out.String() != c.out || !strings.Contains(errOut.String(), c.errOut) || c.errOut == "" && errOut.Len() > 0 {
			t.Errorf("%s: code %d\n%s%s", c.args, code, &out, &errOut)
		}
		if asked := slices.Concat(f.asked, []string{""}); asked[0] != c.asked {
			t.Errorf("%s: asked %q", c.args, f.asked)
		}
	}
	var errOut bytes.Buffer
	if code := run(t.Context(), []string{"registry", "search", "--server", web.URL}, environment(), strings.NewReader(""), &errOut,
		&errOut); code != fault.ExitCode(fault.Unauthenticated) {
		t.Errorf("without a token: %d %s", code, &errOut)
	}
	if code := run(t.Context(), []string{"registry", "search", "--server", unanswered}, environment(), strings.NewReader(""), &errOut, &errOut); code == 0 ||
		!strings.Contains(errOut.String(), "does not answer") {
		t.Errorf("without a server: %d %s", code, &errOut)
	}
}
