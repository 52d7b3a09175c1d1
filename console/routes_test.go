package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/contract"
	"secbox/console"
)

// The tests of this file go over all routes. A new one needs a line in operations and, unless
// pagesUnderTest has an address of it, in otherAddresses.

// operations has, for each route, the operations of openapi.yaml that have what it shows or does:
// their common roles are its roles. A route with none of them is at the end.
var operations = map[string][]string{
	"GET /console/overview":                      {"listExecs", "execStats"},
	"GET /console/history":                       {"listExecs"},
	"GET /console/history/newer":                 {"listExecs"},
	"POST /console/history/views":                {"listExecs"},
	"POST /console/history/views/remove":         {"listExecs"},
	"GET /console/execs":                         {"listExecs"},
	"GET /console/history/export":                {"exportAudit"},
	"GET /console/refused":                       {"listExecs"},
	"GET /console/sessions":                      {"listSessions"},
	"GET /console/operations":                    {"getPool", "getHealth"},
	"GET /console/execs/:id":                     {"getExec"},
	"GET /console/execs/:id/output/:stream":      {"getStdout", "getStderr"},
	"GET /console/execs/:id/output/:stream/file": {"getStdout", "getStderr"},
	"GET /console/execs/:id/artifacts":           {"listArtifacts"},
	"GET /console/execs/:id/artifacts/*":         {"downloadArtifact"},
	"GET /console/execs/:id/artifacts.zip":       {"listArtifacts"},
	"GET /console/execs/:id/differences":         {"getComparison", "downloadArtifact"},
	"GET /console/execs/:id/show/*":              {"downloadArtifact"},
	"GET /console/execs/:id/view/*":              {"downloadArtifact"},
	"GET /console/execs/:id/inputs":              {"listInputs"},
	"GET /console/execs/:id/inputs/*":            {"downloadInput"},
	"GET /console/execs/:id/show-input/*":        {"downloadInput"},
	"GET /console/execs/:id/view-input/*":        {"downloadInput"},
	"GET /console/execs/:id/cast":                {"getCast"},
	"GET /console/execs/:id/proof":               {"getExecProof"},
	"GET /console/execs/:id/live":                {"getStdout", "getStderr"},
	"POST /console/execs/:id/cancel":             {"cancelExec"},
	"GET /console/skills":                        {"listSkills"},
	"GET /console/skills/:id":                    {"getSkill", "resolvePolicy"},
	"POST /console/execs/:id/replay":             {"replayExec"},

	"GET /console/audit":                    {"getLogCheckpoint", "getHealth"},
	"GET /console/audit/report":             {"getAuditReport"},
	"GET /console/audit/report/file":        {"exportAuditReport"},
	"GET /console/audit/checkpoint":         {"getLogCheckpoint"},
	"GET /console/audit/key":                {"getLogCheckpoint"},
	"GET /console/audit/events":             {"listAdminEvents"},
	"GET /console/audit/events/:id/proof":   {"getAdminEventProof"},
	"GET /console/audit/holds":              {"listHolds"},
	"POST /console/audit/holds":             {"addHold"},
	"POST /console/audit/holds/:id/release": {"removeHold"},
	"GET /console/audit/retention":          {"listAdminEvents", "getHealth"},
	"GET /console/audit/export":             {"exportAudit"},
	"GET /console/audit/export/file":        {"exportAudit"},

	// Packages and the registry.
	"GET /console/registry":                              {"searchRegistry"},
	"GET /console/registry/:kind/:name":                  {"getRegistryEntry"},
	"GET /console/packages":                              {"listPackages", "listStatus"},
	"GET /console/packages/:agent/:user/:skill":          {"listStatus", "listSkillFiles"},
	"GET /console/baselines/:agent/:skill":               {"listStatus", "listSkillFiles"},
	"GET /console/baselines/:agent/:skill/file":          {"readSkillFile"},
	"GET /console/packages/:agent/:user/:skill/file":     {"readSkillFile"},
	"GET /console/packages/:agent/:user/:skill/diff":     {"diffSkill"},
	"GET /console/packages/:agent/:user/:skill/download": {"downloadSkill"},
}

// ownRoles are the roles of routes that have no operation in openapi.yaml.
var ownRoles = map[string][]tokens.Role{
	"GET /console":                       {tokens.Worker, tokens.Auditor, tokens.AgentAdmin, tokens.Admin},
	"GET /console/sign-in":               nil, // everyone
	"POST /console/sign-in":              nil,
	"POST /console/sign-out":             tokens.Roles(),
	"GET /console/sign-in/oidc":          nil,
	"GET /console/sign-in/oidc/callback": nil,
	"GET /console/images":                {tokens.Worker, tokens.Auditor, tokens.Admin},
	"GET /console/images/:name":          {tokens.Worker, tokens.Auditor, tokens.Admin},
	"GET /console/runners":               {tokens.Auditor, tokens.Admin}, // the machines of all users; listRunners has the machines of a scope
	"GET /console/people":                {tokens.Admin},
	"POST /console/people/block":         {tokens.Admin},
	"GET /console/tokens":                {tokens.Admin},
	"POST /console/tokens":               {tokens.Admin},
	"GET /console/tokens/:id":            {tokens.Admin},
	"POST /console/tokens/:id/revoke":    {tokens.Admin},
}

// otherAddresses has an address of each route that has no page in pagesUnderTest.
var otherAddresses = map[string]string{
	"GET /console/packages/:agent/:user/:skill/download": "/console/packages/ag/ann/own/download",
	"GET /console":                               "/console",
	"GET /console/execs/:id/cast":                "/console/execs/" + execID(5) + "/cast",
	"GET /console/execs/:id/proof":               "/console/execs/" + execID(2) + "/proof",
	"GET /console/history/newer":                 "/console/history/newer",
	"GET /console/execs":                         "/console/execs",
	"GET /console/execs/:id/live":                "/console/execs/" + execID(2) + "/live",
	"GET /console/execs/:id/output/:stream":      "/console/execs/" + execID(2) + "/output/stdout",
	"GET /console/execs/:id/output/:stream/file": "/console/execs/" + execID(2) + "/output/stdout/file",
	"GET /console/execs/:id/artifacts.zip":       "/console/execs/" + execID(2) + "/artifacts.zip",
	"GET /console/execs/:id/artifacts/*":         "/console/execs/" + execID(2) + "/artifacts/report.html",
	"GET /console/execs/:id/view/*":              "/console/execs/" + execID(2) + "/view/report.html",
	"GET /console/execs/:id/inputs/*":            "/console/execs/" + execID(2) + "/inputs/src/main.py",
	"GET /console/execs/:id/view-input/*":        "/console/execs/" + execID(2) + "/view-input/src/main.py",
	"POST /console/execs/:id/cancel":             "/console/execs/" + execID(1) + "/cancel",
	"POST /console/execs/:id/replay":             "/console/execs/" + execID(2) + "/replay",
	"GET /console/history/export":                "/console/history/export",
	"POST /console/history/views":                "/console/history/views",
	"POST /console/history/views/remove":         "/console/history/views/remove",
	"POST /console/sign-in":                      "/console/sign-in",
	"POST /console/sign-out":                     "/console/sign-out",
	"GET /console/sign-in/oidc":                  "/console/sign-in/oidc",
	"GET /console/sign-in/oidc/callback":         callback,
	"POST /console/people/block":                 "/console/people/block",
	"POST /console/tokens":                       "/console/tokens",
	"POST /console/tokens/:id/revoke":            "/console/tokens/t1/revoke",

	"GET /console/audit/report/file":        "/console/audit/report/file",
	"GET /console/audit/checkpoint":         "/console/audit/checkpoint",
	"GET /console/audit/key":                "/console/audit/key",
	"GET /console/audit/events/:id/proof":   "/console/audit/events/99/proof",
	"POST /console/audit/holds":             "/console/audit/holds",
	"POST /console/audit/holds/:id/release": "/console/audit/holds/" + execID(1) + "/release",
	"GET /console/audit/export/file":        "/console/audit/export/file",
}

var parameter = regexp.MustCompile(`:[a-z]+`)

// address returns an address of a route.
func address(t *testing.T, r console.Route) string {
	t.Helper()
	if path, ok := otherAddresses[name(r)]; ok {
		return path
	}
	pattern := regexp.MustCompile("^" + parameter.ReplaceAllString(strings.ReplaceAll(regexp.QuoteMeta(r.Path), `\*`, `.+`), `[^/?]+`) + `(\?|$)`)
	if r.Method == http.MethodGet {
		for _, p := range pagesUnderTest {
			if pattern.MatchString(p.path) {
				return p.path
			}
		}
	}
	t.Fatalf("%s has no address: add a page to pagesUnderTest, or another address to otherAddresses", name(r))
	return ""
}

func name(r console.Route) string { return r.Method + " " + r.Path }

// TestRolesOfRoutes: each role may open each route that openapi.yaml lets it, and no other.
func TestRolesOfRoutes(t *testing.T) {
	t.Parallel()
	document, err := contract.Load(api.Contract())
	if err != nil {
		t.Fatal(err)
	}
	server := closedApp().serve(t)
	for _, r := range console.Routes() {
		roles, known := ownRoles[name(r)]
		if ids := operations[name(r)]; len(ids) > 0 {
			roles, known = slices.Clone(tokens.Roles()), true
			for _, id := range ids {
				i := slices.IndexFunc(document.Operations, func(op contract.Operation) bool { return op.ID == id })
				if i < 0 {
					t.Fatalf("openapi.yaml has no operation %s", id)
				}
				roles = slices.DeleteFunc(roles, func(role tokens.Role) bool { return !document.Operations[i].Allows(role) })
			}
		}
		if !known {
			t.Errorf("%s: whose roles should it have? Add it to operations", name(r))
			continue
		}
		path := address(t, r)
		for _, role := range tokens.Roles() {
			v := newVisitor(t, server)
			v.signIn("secret-" + string(role))
			resp, body := v.open(r, path)
			if allowed := roles == nil || slices.Contains(roles, role); allowed == strings.Contains(body, "does not allow this") ||
				allowed == (resp.StatusCode == http.StatusForbidden) {
				t.Errorf("%s: %s got %d", name(r), role, resp.StatusCode)
			}
		}
		resp, _ := newVisitor(t, server).open(r, path)
		if closed := strings.HasPrefix(resp.Header.Get("Location"), "/console/sign-in"); closed == (roles == nil) {
			t.Errorf("%s: without a session %d, to %q", name(r), resp.StatusCode, resp.Header.Get("Location"))
		}
	}
}

// open requests an address as a browser does on a page of the console.
func (v *visitor) open(r console.Route, path string, change ...func(*http.Request, url.Values)) (*http.Response, string) {
	v.t.Helper()
	if r.Method == http.MethodGet {
		return v.get(path)
	}
	return v.post("/console/sign-in", path, url.Values{}, change...)
}

// TestHeadersOfRoutes is against clickjacking, sniffed types, shared caches and fixed sessions: all
// answers have the headers, also refusals and errors.
func TestHeadersOfRoutes(t *testing.T) {
	t.Parallel()
	server := closedApp().serve(t)
	planted := strings.Repeat("A", 52)
	check := func(what string, resp *http.Response) {
		t.Helper()
		h := resp.Header
		csp := h.Get("Content-Security-Policy")
		directives := []string{"default-src 'self'", "base-uri 'none'", "form-action 'self'", "object-src 'none'", "frame-ancestors 'none'"}
		download := strings.HasPrefix(h.Get("Content-Disposition"), "attachment")
		switch {
		case download:
			directives = []string{"default-src 'none'", "frame-ancestors 'none'"}
		case strings.HasPrefix(csp, "sandbox"): // a file of an exec, which our own pages frame
			directives = []string{"sandbox;", "default-src 'none'", "frame-ancestors 'self'"}
		}
		for _, want := range directives {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: no %s in %q", what, want, csp)
			}
		}
		if strings.Contains(csp, "unsafe-eval") || strings.Contains(csp, "script-src") || strings.Contains(csp, "*") || strings.Contains(csp, "http") ||
			strings.Contains(csp, "allow-") {
			t.Errorf("%s: %s", what, csp)
		}
		if !strings.HasPrefix(csp, "sandbox") && strings.Contains(csp, "unsafe") {
			t.Errorf("%s: %s", what, csp)
		}
		asset := strings.Contains(h.Get("Cache-Control"), "immutable")
		for key, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := h.Get(key); got != want && (key != "Cache-Control" ||
				!asset && (!download && !strings.HasPrefix(csp, "sandbox") || !strings.HasSuffix(got, "no-cache"))) {
				t.Errorf("%s: %s: %q", what, key, got)
			}
		}
		for _, c := range resp.Cookies() {
			sameSite := http.SameSiteStrictMode
			if c.Name == "secbox_oidc" {
				sameSite = http.SameSiteLaxMode // the provider's page leads back to us
			}
			if c.Name == sessionCookie(server) && c.Value != "" && !strings.HasPrefix(what, "POST /console/sign-in") || c.Value == planted || c.Domain != "" ||
				!c.HttpOnly || c.SameSite != sameSite {
				t.Errorf("%s sets the cookie %s", what, c)
			}
		}
	}
	roles := map[string]string{"an admin": "secret-admin", "an agent-admin": "secret-agent-admin", "nobody": ""}
	for _, r := range console.Routes() {
		path := address(t, r)
		for who, secret := range roles {
			v := newVisitor(t, server)
			u, _ := url.Parse(server)
			v.client.Jar.SetCookies(u, []*http.Cookie{{Name: sessionCookie(v.url), Value: planted, Path: "/"}})
			if secret != "" {
				v.signIn(secret)
			}
			resp, _ := v.open(r, path)
			check(name(r)+" of "+who, resp)
			for _, method := range []string{"HEAD", "PUT", "OPTIONS"} {
				req, err := http.NewRequestWithContext(t.Context(), method, v.url+path, nil)
				must(t, err)
				resp, body := v.do(req)
				check(method+" "+path+" of "+who, resp)
				if method == "HEAD" && body != "" {
					t.Errorf("HEAD %s has a body", path)
				}
			}
			resp, _ = v.get(path + "/none/none")
			check("unknown below "+path, resp)
		}
	}
	v := newVisitor(t, server)
	for _, path := range append(assetsOf(t, v), "/console/assets/none.css", "/console/assets/", "/console/%00", "/console/execs/%2e%2e%2fetc",
		"/console/history?stauts=failed") {
		resp, _ := v.get(path)
		check(path, resp)
	}
}

// assetsOf returns the paths of the assets that a page loads.
func assetsOf(t *testing.T, v *visitor) []string {
	t.Helper()
	_, page := v.get("/console/sign-in")
	paths := regexp.MustCompile(`/console/assets/[^"]+`).FindAllString(page, -1)
	if len(paths) < 3 {
		t.Fatalf("assets %q", paths)
	}
	return paths
}

// TestFormsOfOthers is against CSRF: a form does nothing if it comes from another site, has no
// token, or has the token of another session.
func TestFormsOfOthers(t *testing.T) {
	t.Parallel()
	app := closedApp()
	server := app.serve(t)
	other := newVisitor(t, server)
	other.signIn("secret-admin")
	_, foreign := other.get("/console/sign-in")
	forms := 0
	for _, r := range console.Routes() {
		if r.Method != http.MethodPost {
			continue
		}
		forms++
		path := address(t, r)
		for what, change := range map[string]func(*http.Request, url.Values){
			"no token":             func(_ *http.Request, f url.Values) { f.Del("csrf_token") },
			"an empty token":       func(_ *http.Request, f url.Values) { f.Set("csrf_token", "") },
			"another token":        func(_ *http.Request, f url.Values) { f.Set("csrf_token", strings.Repeat("A", 43)) },
			"another session's":    func(_ *http.Request, f url.Values) { f.Set("csrf_token", csrfToken(foreign)) },
			"another site":         func(r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			"a sibling":            func(r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "same-site") },
			"another origin":       func(r *http.Request, _ url.Values) { r.Header.Set("Origin", "https://evil.example") },
			"another port":         func(r *http.Request, _ url.Values) { r.Header.Set("Origin", "http://127.0.0.1:1") },
			"an opaque origin":     func(r *http.Request, _ url.Values) { r.Header.Set("Origin", "null") },
			"plain text":           func(r *http.Request, _ url.Values) { r.Header.Set("Content-Type", "text/plain") },
			"multipart":            func(r *http.Request, _ url.Values) { r.Header.Set("Content-Type", "multipart/form-data; boundary=x") },
			"a token in the query": func(r *http.Request, f url.Values) { r.URL.RawQuery = f.Encode(); f.Del("csrf_token") },
			"a token in the header": func(r *http.Request, f url.Values) {
				r.Header.Set("X-Csrf-Token", f.Get("csrf_token"))
				f.Del("csrf_token")
			},
		} {
			v := newVisitor(t, server)
			v.signIn("secret-admin")
			session := v.session()
			before := app.changes()
			resp, body := v.open(r, path, change)
			if resp.StatusCode < 400 || resp.Header.Get("Location") != "" || !strings.Contains(body, "<h1>") {
				t.Errorf("%s with %s: %d", name(r), what, resp.StatusCode)
			}
			if after := app.changes(); before != after || v.session() != session {
				t.Errorf("%s with %s changed something: %s, then %s", name(r), what, before, after)
			}
		}
		stranger, err := http.NewRequestWithContext(t.Context(), "POST", server+path, strings.NewReader("csrf_token=&token=secret-admin"))
		must(t, err)
		stranger.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if resp, _ := newVisitor(t, server).do(stranger); resp.Header.Get("Location") != "/console/sign-in?ended=form" &&
			resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s without cookies: %d", name(r), resp.StatusCode)
		}
		v := newVisitor(t, server)
		v.signIn("secret-admin")
		if resp, body := v.open(r, path); resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnsupportedMediaType {
			t.Errorf("%s with the page's own token: %d: %.300s", name(r), resp.StatusCode, body)
		}
		if resp, _ := v.get(path); resp.StatusCode != http.StatusMethodNotAllowed && !slices.ContainsFunc(console.Routes(),
			func(o console.Route) bool { return o.Path == r.Path && o.Method == http.MethodGet }) {
			t.Errorf("GET %s: %d", path, resp.StatusCode)
		}
	}
	if forms < 5 {
		t.Errorf("only %d forms", forms)
	}
}

// TestEveryFormHasItsToken: all forms that change something are ui.Forms.
func TestEveryFormHasItsToken(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, closedApp().serve(t))
	v.signIn("secret-admin")
	form := regexp.MustCompile(`(?s)<form[^>]*>.{0,400}`)
	found := 0
	for _, p := range pagesUnderTest {
		_, page := v.get(p.path)
		for _, start := range form.FindAllString(page, -1) {
			head, rest, _ := strings.Cut(start, ">")
			if strings.Contains(head, `method="get"`) {
				continue
			}
			found++
			if !strings.HasPrefix(strings.TrimSpace(rest), `<input type="hidden" name="csrf_token" value="`) || !strings.Contains(head, `action="/console`) {
				t.Errorf("%s has the form %s", p.name, start)
			}
		}
		if strings.Contains(page, "hx-post") || strings.Contains(page, "hx-put") || strings.Contains(page, "hx-delete") || strings.Contains(page, "hx-patch") ||
			strings.Contains(page, "formaction") {
			t.Errorf("%s changes something without a form", p.name)
		}
	}
	if found == 0 {
		t.Error("there is no form")
	}
}

// TestFixedCookies is against session fixation: what was in the browser before the sign-in, perhaps
// planted, is worth nothing afterwards.
func TestFixedCookies(t *testing.T) {
	t.Parallel()
	app := closedApp()
	v := newVisitor(t, app.serve(t))
	u, _ := url.Parse(v.url)
	planted := strings.Repeat("A", 52)
	v.client.Jar.SetCookies(u, []*http.Cookie{{Name: "secbox_form", Value: planted, Path: "/"}, {Name: sessionCookie(v.url), Value: planted, Path: "/"}})
	_, page := v.get("/console/sign-in")
	before := csrfToken(page)
	v.signIn("secret-admin")
	if v.session() == planted || v.session() == "" {
		t.Errorf("the session is %q", v.session())
	}
	_, page = v.get("/console/history")
	if after := csrfToken(page); after == before || after == "" {
		t.Errorf("the token of forms is %q before the sign-in and %q after it", before, after)
	}
	if resp, _ := v.post("/console/history", "/console/sign-out", url.Values{},
		func(_ *http.Request, f url.Values) { f.Set("csrf_token", before) }); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the token from before the sign-in: %d", resp.StatusCode)
	}
	thief := newVisitor(t, v.url)
	thief.client.Jar.SetCookies(u, []*http.Cookie{{Name: sessionCookie(v.url), Value: planted, Path: "/"}})
	if resp, _ := thief.get("/console/history"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the planted session: %d", resp.StatusCode)
	}
}

// TestSignInLeadsBack: the sign-in that a page asks for leads back to that page, which is of this
// server whatever the address contains.
func TestSignInLeadsBack(t *testing.T) {
	t.Parallel()
	server := closedApp().serve(t)
	base, err := url.Parse(server + "/console/sign-in")
	must(t, err)
	for _, r := range console.Routes() {
		if r.Method != http.MethodGet || r.Roles == nil {
			continue
		}
		for _, query := range []string{"", "?next=//evil.example", "?x=%0d%0aLocation:%20//evil.example", "?%2f%2fevil.example"} {
			path, _, _ := strings.Cut(address(t, r), "?")
			resp, _ := newVisitor(t, server).get(path + query)
			to, err := base.Parse(resp.Header.Get("Location"))
			if err != nil || resp.StatusCode != http.StatusSeeOther || to.Host != base.Host || to.Path != "/console/sign-in" {
				t.Fatalf("%s%s: %d, %v, %v", path, query, resp.StatusCode, to, err)
			}
			next, err := base.Parse(to.Query().Get("next"))
			if err != nil || next.Host != base.Host || path != "/console" && next.Path != path {
				t.Errorf("%s%s: then to %v, %v", path, query, next, err)
			}
		}
	}
}

// TestFramed: a page of another origin that frames ours shows nothing of them.
func TestFramed(t *testing.T) {
	server := fullApp().serve(t)
	var paths []string
	for _, r := range console.Routes() {
		if r.Method == http.MethodGet {
			paths = append(paths, address(t, r))
		}
	}
	paths = append(paths, "/console/none", "/console/history?nothing=1")
	outer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path != "/" {
			w.Write([]byte("<p>framed</p>"))
			return
		}
		w.Write([]byte(`<!DOCTYPE html><title>t</title><main></main><iframe src="/own"></iframe>`))
		for _, path := range paths {
			w.Write([]byte(`<iframe src="` + server + path + `"></iframe>`))
		}
	}))
	t.Cleanup(outer.Close)
	b := open(t, outer.URL)
	b.visit("/")
	b.complaints() // of the Content-Security-Policy
	tree := call(b, page.GetFrameTree, cdp.Empty{}).FrameTree
	if len(tree.ChildFrames) != 1+len(paths) || tree.ChildFrames[0].Frame.URL != outer.URL+"/own" {
		t.Fatalf("%d frames", len(tree.ChildFrames))
	}
	for i, child := range tree.ChildFrames[1:] {
		if child.Frame.URL != "chrome-error://chromewebdata/" && child.Frame.URL != ":" && child.Frame.URL != "about:blank" {
			t.Errorf("%s is framed: %s", paths[i], child.Frame.URL)
		}
	}
}

// changes returns what the forms have done to the application.
func (f *fakeApp) changes() string {
	f.sessions.mu.Lock()
	defer f.sessions.mu.Unlock()
	return fmt.Sprint(f.canceled, f.tokens, f.downloads, len(f.replayer.asked), f.audit.holds, f.blocked, f.views.of)
}
