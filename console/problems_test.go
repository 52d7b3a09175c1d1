package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestLostPages: pages of unknown addresses and methods have the navigation that they name, of the caller's role; without a sign-in they name none.
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
		}{{"GET", "/console/nothing", 404}, {"GET", "/console/execs/x/y/z", 404}, {"GET", "/console/tokens/t1/revoke", 405}, {"PUT", "/console/history", 405}, {"DELETE", "/console", 405}} {
			req, err := http.NewRequestWithContext(t.Context(), asked.method, v.url+asked.path, nil)
			must(t, err)
			resp, page := v.do(req)
			if resp.StatusCode != asked.status || strings.Contains(page, `<nav aria-label="Main">`) != c.navigation || strings.Contains(page, "in the navigation") != c.navigation || strings.Contains(page, ">Tokens</a>") != c.tokens {
				t.Errorf("%s, %s %s: %d: %s", who, asked.method, asked.path, resp.StatusCode, page)
			}
			if asked.status == http.StatusMethodNotAllowed && resp.Header.Get("Allow") == "" {
				t.Errorf("%s %s: no header Allow", asked.method, asked.path)
			}
		}
	}
}

// TestRemediesArePages: what pages of errors name can be done on pages; nothing speaks of the API, or of opening a page where a form was refused.
func TestRemediesArePages(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	for path, want := range map[string]string{
		"/console/history?cursor=x":      "Show its newest page",
		"/console/audit/events?cursor=x": "open the list again",
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
	for path, want := range map[string]string{"/console/audit/holds": "the role auditor may not do this; allowed are: admin", "/console/execs/" + execID(1) + "/cancel": "may not do this"} {
		if resp, page := auditor.post("/console/audit/holds", path, url.Values{}); resp.StatusCode != http.StatusForbidden || !strings.Contains(page, want) || strings.Contains(page, "open this") {
			t.Errorf("%s: %d: %s", path, resp.StatusCode, page)
		}
	}
	if _, page := auditor.get("/console/tokens"); !strings.Contains(page, "may not open this page") {
		t.Errorf("a page of others: %s", page)
	}
}

// TestSlashAtTheEnd: an address of a page with a slash at its end leads to the page, with its parameters, and never elsewhere.
func TestSlashAtTheEnd(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	for _, p := range append(pagesUnderTest, struct{ name, path string }{"start", "/console"}) {
		path, query, ok := strings.Cut(p.path, "?")
		if ok {
			query = "?" + query
		}
		want := http.StatusPermanentRedirect
		if strings.Contains(path, "/show/") { // the path of a file
			want = http.StatusNotFound
		}
		resp, _ := v.get(path + "/" + query)
		if to := resp.Header.Get("Location"); resp.StatusCode != want || want == http.StatusPermanentRedirect && to != p.path {
			t.Errorf("%s/%s: %d, to %s", path, query, resp.StatusCode, to)
		}
	}
	for path, want := range map[string]string{
		"/console/history/?columns=status&columns=exit": "/console/history?columns=status&columns=exit", "/console/execs/%3Fa/": "/console/execs/%3Fa", "/console/nothing/": "",
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
	if resp, _ := v.post("/console/tokens", "/console/tokens/", url.Values{}); resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a form: %d", resp.StatusCode)
	}
}
