package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestLostPages: pages of unknown addresses and methods have the navigation that they name, of the
// caller's role; without a sign-in they name none.
func TestLostPages(t *testing.T) {
	t.Parallel()
	server := closedApp().serve(t)
	for who, c := range map[string]struct {
		secret     string
		navigation bool
		tokens     bool
	}{"an admin": {"secret-admin", true, true}, "an auditor": {"secret-auditor", true, false}, "nobody": {"", false, false}} {
		v := newVisitor(t, server)
		if c.secret != "" {
			v.signIn(c.secret)
		}
		for _, asked := range []struct {
			method, path string
			status       int
		}{
			{"GET", "/console/nothing", 404},
			{"GET", "/console/execs/x/y/z", 404},
			{"GET", "/console/tokens/t1/revoke", 405},
			{"PUT", "/console/history", 405},
			{"DELETE", "/console", 405},
		} {
			req, err := http.NewRequestWithContext(t.Context(), asked.method, v.url+asked.path, nil)
			must(t, err)
			resp, page := v.do(req)
			if resp.StatusCode != asked.status || strings.Contains(page, `<nav aria-label="Main">`) != c.navigation ||
				strings.Contains(page, "in the navigation") != c.navigation || strings.Contains(page, ">Tokens</a>") != c.tokens {
				t.Errorf("%s, %s %s: %d: %s", who, asked.method, asked.path, resp.StatusCode, page)
			}
			if asked.status == http.StatusMethodNotAllowed && resp.Header.Get("Allow") == "" {
				t.Errorf("%s %s: no header Allow", asked.method, asked.path)
			}
		}
	}
}

// TestRemediesArePages: what pages of errors name can be done on pages; nothing speaks of the API,
// or of opening a page where a form was refused.
func TestRemediesArePages(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	for path, want := range map[string]string{
		"/console/history?cursor=x":      "Show its newest page",
		"/console/audit/events?cursor=x": "Show its newest page",
		"/console/audit/holds?cursor=x":  "open the list again",
		"/console/skills/no.skill":       "the list of skills has those that there are",
		"/console/skills/text.broken":    "the list of skills shows its problems",
		"/console/execs/none":            "the history has those that you may see",
		"/console/tokens/none":           "the list has those that there are",
	} {
		_, page := v.get(path)
		if !strings.Contains(page, want) {
			t.Errorf("%s lacks %q: %s", path, want, page)
		}
		for _, ofAPI := range []string{"next_cursor", "GET /", "POST /", "Authorization", "no such route"} {
			if strings.Contains(page, ofAPI) {
				t.Errorf("%s speaks of %s", path, ofAPI)
			}
		}
	}
	auditor := newVisitor(t, closedApp().serve(t))
	auditor.signIn("secret-auditor")
	for path, want := range map[string]string{
		"/console/audit/holds":                    "the role auditor may not do this; allowed are: admin",
		"/console/execs/" + execID(1) + "/cancel": "may not do this",
	} {
		if resp, page := auditor.post("/console/audit/holds", path, url.Values{}); resp.StatusCode != http.StatusForbidden || !strings.Contains(page, want) ||
			strings.Contains(page, "open this") {
			t.Errorf("%s: %d: %s", path, resp.StatusCode, page)
		}
	}
	if _, page := auditor.get("/console/tokens"); !strings.Contains(page, "may not open this page") {
		t.Errorf("a page of others: %s", page)
	}
}

// TestWrongParameters: a page says which parameter is wrong, and what it may be, beside the field
// if there is a form.
func TestWrongParameters(t *testing.T) {
	t.Parallel()
	f := fullApp()
	v := newVisitor(t, f.serve(t))
	beside := func(name, reason string) string { return `id="p-` + name + `">` + reason }
	listed := func(name, reason string) string { return "<code>" + name + "</code>: " + reason }
	exec := "/console/execs/" + execID(2)
	for path, want := range map[string]string{
		exec + "?shown=zz":                           listed("shown", "must be two numbers"),
		exec + "/live?from=zz":                       listed("from", "must be two numbers"),
		exec + "/output/stdout?from=900000":          listed("from", "must be below 200046, the number of bytes that this stream has"),
		exec + "/output/stderr?from=8":               listed("from", "must be below 8,"),
		exec + "/output/stdout?from=x":               listed("from", "must be a number of bytes below 1048576"),
		exec + "/artifacts?from=-1":                  listed("from", "must be the number of a file"),
		"/console/tokens?revoked=zz":                 listed("revoked", "must be 1"),
		"/console/overview?span=year":                listed("span", "must be day, week or month"),
		"/console/history?columns=xx":                beside("columns", "&#34;xx&#34; is no column; choose among status, command"),
		"/console/history?columns=status&columns=xx": beside("columns", "&#34;xx&#34; is no column"),
		"/console/history?since=100000d": beside("since", "must be a date like 2026-11-21 or today, its beginning in UTC; an RFC 3339 time like "+
			"2026-11-21T06:50:31Z; or a duration before now like 90m, 24h or 7d, of 1 to 9999 s, m, h or d"),
		"/console/history?until=2026-11-21T06:50:31 ": beside("until",
			"must be a date like 2026-11-21 or today, its beginning in UTC; an RFC 3339 time like 2026-11-21T06:50:31Z; or a duration"),
		"/console/audit/export?since=100000d":        beside("since", "must be a date like 2026-11-21"),
		"/console/audit/events?kind=x&since=100000d": beside("since", "must be a date like 2026-11-21"),
		"/console/refused?since=x":                   beside("since", "must be a date like 2026-11-21"),
		"/console/skills?source=x":                   beside("source", "must be one of built-in, "),
		"/console/skills?agent_id=ag":                beside("user_id", "is missing"),
		"/console/packages?user_id=ann":              beside("agent_id", "is missing"),
		"/console/packages?agent_id=.&user_id=ann":   beside("agent_id", "must be a letter or digit"),
		"/console/history/export?format=xml":         listed("format", "must be jsonl, csv or ocsf"),
	} {
		resp, page := v.get(strings.ReplaceAll(path, " ", "%20"))
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, want) {
			t.Errorf("%s: %d, without %q: %s", path, resp.StatusCode, want, page)
		}
		if strings.Contains(page, "matches") {
			t.Errorf("%s says that nothing matches", path)
		}
	}
	if len(f.downloads) != 0 {
		t.Errorf("refused requests are on record: %q", f.downloads)
	}
	if resp, _ := v.get("/console/history/export?format=csv&project_id=demo&since=100000d"); resp.StatusCode != http.StatusSeeOther ||
		resp.Header.Get("Location") != "/console/history?project_id=demo&since=100000d" {
		t.Errorf("an export leads to %d, %q", resp.StatusCode, resp.Header.Get("Location"))
	}
}

// TestSlashAtTheEnd: an address of a page with a slash at its end leads to the page, with its
// parameters, and never elsewhere.
func TestSlashAtTheEnd(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	for _, p := range append(pagesUnderTest, struct{ name, path string }{"start", "/console"}) {
		path, query, ok := strings.Cut(p.path, "?")
		if ok {
			query = "?" + query
		}
		want := http.StatusPermanentRedirect
		if strings.Contains(path, "/show") { // the path of a file
			want = http.StatusNotFound
		}
		resp, _ := v.get(path + "/" + query)
		if to := resp.Header.Get("Location"); resp.StatusCode != want || want == http.StatusPermanentRedirect && to != p.path {
			t.Errorf("%s/%s: %d, to %s", path, query, resp.StatusCode, to)
		}
	}
	for path, want := range map[string]string{
		"/console/history/?columns=status&columns=exit": "/console/history?columns=status&columns=exit", "/console/execs/%3Fa/": "/console/execs/%3Fa",
		"/console/nothing/":                     "",
		"/console/packages/%2e%2e/%2e%2e/evil/": "", "/console/execs/..%2f../": "", "/console//evil.example/": "", "/console/execs/%5cevil.example/": "",
	} {
		u, err := url.Parse(v.url)
		must(t, err)
		u.Opaque = path
		resp, _ := v.do((&http.Request{Method: "GET", URL: u, Host: u.Host, Header: http.Header{}}).WithContext(t.Context()))
		if to := resp.Header.Get("Location"); to != want || to == "" && resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d, to %q", path, resp.StatusCode, to)
		}
	}
	if resp, _ := v.post("/console/tokens", "/console/tokens/", url.Values{}); resp.StatusCode != http.StatusNotFound &&
		resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a form: %d", resp.StatusCode)
	}
}
