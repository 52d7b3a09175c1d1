package console_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/audit/admin"
)

// visitor is a browser without scripts: it keeps cookies and does not follow redirects.
type visitor struct {
	t      *testing.T
	url    string
	client *http.Client
}

func newVisitor(t *testing.T, serverURL string) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &visitor{t, serverURL, client}
}

func (v *visitor) do(req *http.Request) (*http.Response, string) {
	v.t.Helper()
	resp, err := v.client.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return resp, string(body)
}

func (v *visitor) get(path string) (*http.Response, string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), "GET", v.url+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	return v.do(req)
}

// post sends a form as a browser does, with the token of the page at path from; change may change
// the request.
func (v *visitor) post(from, to string, fields url.Values, change ...func(*http.Request, url.Values)) (*http.Response, string) {
	v.t.Helper()
	_, page := v.get(from)
	fields.Set("csrf_token", csrfToken(page))
	req, err := http.NewRequestWithContext(v.t.Context(), "POST", v.url+to, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", v.url)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, c := range change {
		c(req, fields)
	}
	body := fields.Encode()
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return v.do(req)
}

var csrfField = regexp.MustCompile(`name="csrf_token" value="([^"]*)"`)

func csrfToken(page string) string {
	if m := csrfField.FindStringSubmatch(page); m != nil {
		return m[1]
	}
	return ""
}

// signIn signs in with a token.
func (v *visitor) signIn(secret string) {
	v.t.Helper()
	if resp, page := v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {secret}}); resp.StatusCode != http.StatusSeeOther {
		v.t.Fatalf("%d: %s", resp.StatusCode, page)
	}
}

// sessionCookie is the name of the session's cookie of a server.
func sessionCookie(server string) string {
	return "secbox_session_" + server[strings.LastIndexByte(server, ':')+1:]
}

func (v *visitor) session() string {
	u, _ := url.Parse(v.url)
	for _, c := range v.client.Jar.Cookies(u) {
		if c.Name == sessionCookie(v.url) {
			return c.Value
		}
	}
	return ""
}

// closedApp returns an application that needs a token: "secret-<role>".
func closedApp() *fakeApp {
	f := fullApp()
	f.caller = tokens.Token{}
	for _, role := range tokens.Roles() {
		f.sessions.byToken["secret-"+string(role)] = tokens.Token{ID: string(role), Name: string(role), Role: role}
	}
	return f
}

// TestStalledForm: a form whose body stops is told so.
func TestStalledForm(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.stalled = true
	v := newVisitor(t, f.serve(t))
	for _, form := range []string{"sign-in", "sign-out", "tokens"} {
		if resp, page := v.post("/console/sign-in", "/console/"+form, url.Values{}); resp.StatusCode != http.StatusRequestTimeout ||
			!strings.Contains(page, "the body stopped") {
			t.Errorf("%s: %d, %.300s", form, resp.StatusCode, page)
		}
	}
}

// TestSignInLeadsToNoForm: after a sign-in, an address that takes only forms is not opened.
func TestSignInLeadsToNoForm(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, closedApp().serve(t))
	for next, want := range map[string]string{
		"/console/sign-out": "/console", "/console/people/block": "/console", "/console/execs/1/cancel?x=1": "/console", "/console/tokens/1/revoke": "/console",
		"/console/tokens": "/console/tokens", "/console/audit/holds": "/console/audit/holds",
		"/console/execs/1/artifacts/a/b": "/console/execs/1/artifacts/a/b",
	} {
		resp, _ := v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {"secret-admin"}, "next": {next}})
		if to := resp.Header.Get("Location"); to != want {
			t.Errorf("%s leads to %s", next, to)
		}
	}
}

func TestSignInAndOut(t *testing.T) {
	t.Parallel()
	f := closedApp()
	v := newVisitor(t, f.serve(t))
	resp, _ := v.get("/console/history?status=failed")
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "/console/sign-in?next=%2Fconsole%2Fhistory%3Fstatus%3Dfailed" {
		t.Fatalf("%d, %s", resp.StatusCode, to)
	}
	resp, page := v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {"wrong"}, "next": {"/console/history"}})
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(page, "The token is not known") ||
		!strings.Contains(page, `name="next" value="/console/history"`) {
		t.Errorf("a wrong token: %d, %.900s", resp.StatusCode, page)
	}
	if v.session() != "" {
		t.Error("a wrong token made a session")
	}
	resp, _ = v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {" secret-auditor\n"}, "next": {"/console/history?status=failed"}})
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "/console/history?status=failed" {
		t.Fatalf("%d, %s", resp.StatusCode, to)
	}
	for _, set := range resp.Header.Values("Set-Cookie") {
		if !strings.Contains(set, "Path=/;") || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict") ||
			strings.Contains(set, "Domain") {
			t.Errorf("cookie %s", set)
		}
	}
	if resp, page := v.get("/console/history"); resp.StatusCode != http.StatusOK || !strings.Contains(page, "Sign out") {
		t.Errorf("signed in: %d, %.500s", resp.StatusCode, page)
	}
	session := v.session()
	if resp, _ := v.post("/console/history", "/console/sign-out", url.Values{}); resp.Header.Get("Location") != "/console/sign-in" || v.session() != "" {
		t.Errorf("sign-out: %d, cookie %q", resp.StatusCode, v.session())
	}
	if _, open := f.sessions.open[session]; open {
		t.Error("the session is open after the sign-out")
	}
}

// TestSignInHasNewSession is against session fixation: a session from before the sign-in, perhaps
// of an attacker, is not used on.
func TestSignInHasNewSession(t *testing.T) {
	t.Parallel()
	f := closedApp()
	v := newVisitor(t, f.serve(t))
	u, _ := url.Parse(v.url)
	planted := strings.Repeat("A", 52)
	v.client.Jar.SetCookies(u, []*http.Cookie{{Name: sessionCookie(v.url), Value: planted, Path: "/"}})
	v.signIn("secret-worker")
	first := v.session()
	v.signIn("secret-admin")
	if second := v.session(); first == planted || second == first || second == "" {
		t.Errorf("sessions %q, %q", first, second)
	}
	if _, open := f.sessions.open[first]; open || len(f.sessions.open) != 1 {
		t.Errorf("%d sessions are open", len(f.sessions.open))
	}
}

func TestEndedSession(t *testing.T) {
	t.Parallel()
	f := closedApp()
	v := newVisitor(t, f.serve(t))
	v.signIn("secret-admin")
	clear(f.sessions.open)
	resp, _ := v.get("/console/history")
	if to := resp.Header.Get("Location"); to != "/console/sign-in?ended=1&next=%2Fconsole%2Fhistory" {
		t.Errorf("leads to %s", to)
	}
	if _, page := v.get("/console/sign-in?ended=1"); !strings.Contains(page, "Your session has ended") {
		t.Error("the page does not say why")
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", v.url+"/console/history", nil)
	req.Header.Set("HX-Request", "true")
	if resp, _ := v.do(req); resp.StatusCode != http.StatusNoContent || resp.Header.Get("HX-Redirect") == "" {
		t.Errorf("for htmx: %d", resp.StatusCode)
	}
}

// TestSignInWhileTheDatabaseIsDown: a browser with a session gets the page for signing in, and what
// it sends is answered with what is wrong.
func TestSignInWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	f := closedApp()
	v := newVisitor(t, f.serve(t))
	v.signIn("secret-admin")
	f.sessions.down = true
	resp, page := v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {"secret-admin"}})
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "the database does not answer") {
		t.Errorf("%d: %s", resp.StatusCode, page)
	}
	f.sessions.down = false
	if resp, page := v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {"secret-admin"}},
		func(_ *http.Request, form url.Values) { form.Set("csrf_token", "old") }); resp.StatusCode != http.StatusForbidden ||
		!strings.Contains(page, "<h1>The form is too old</h1>") {
		t.Errorf("an old form: %d: %s", resp.StatusCode, page)
	}
}

// TestSignInWithoutTokens: while no token is needed, the page for signing in says that one is
// signed in.
func TestSignInWithoutTokens(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	if _, page := newVisitor(t, c.url).get("/console/sign-in?next=/console/history"); !strings.Contains(page, "You are signed in as") ||
		!strings.Contains(page, `href="/console/history">Continue`) || strings.Contains(page, `name="token"`) {
		t.Error(page)
	}
}

// TestSignInLeadsNowhereElse is against open redirects.
func TestSignInLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	f := closedApp()
	server := f.serve(t)
	for _, next := range []string{
		"https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example", "/console@evil.example", "/consoles", "javascript:alert(1)",
		"/console/../../evil", "/docs", " /console",
		"/console/\r\nLocation: //evil.example", "///evil.example", "/\t/evil.example", "https:evil.example", "https:/\\evil.example",
		"//evil.example\\@127.0.0.1/console", "http://127.0.0.1@evil.example/console",
		"/console/%2e%2e/evil", "/console/.%2e/%2e./evil", "/console/..;/evil", "/console\\..\\evil", "/%63onsole", "/console%2f..%2f..%2fevil",
		"/console?next=//evil.example/../", "data:text/html,x", "%2f%2fevil.example", "\x00/console",
		"\uff0f\uff0fevil.example", "/console/sign-out/..//evil.example",
		"/console/%2E%2E/%2e%2E/evil", "/console/x/../../evil", "/console/.", "/console/%2e/evil", "/console/..%2f..%2fevil", "/console/%2f%2fevil.example",
		"/console/..%5c..%5cevil", "/console/\\..\\..\\evil",
		"/console//evil.example", "http:/console", "/console#x", strings.Repeat("/console", 1000),
	} {
		v := newVisitor(t, server)
		resp, _ := v.post("/console/sign-in", "/console/sign-in", url.Values{"token": {"secret-admin"}, "next": {next}})
		to := resp.Header.Get("Location")
		if resp.StatusCode != http.StatusSeeOther || !staysBelow(to) {
			t.Errorf("%q leads to %q (%d)", next, to, resp.StatusCode)
		}
	}
}

// staysBelow reports whether an address is one of the console as browsers read it, to which %2e is
// a dot, and for proxies that unescape more.
func staysBelow(address string) bool {
	path, _, _ := strings.Cut(address, "?")
	plain := strings.NewReplacer("%2e", ".", "%2f", "/", "%5c", "/", "\\", "/").Replace(strings.ToLower(path))
	return (path == "/console" || strings.HasPrefix(path, "/console/")) && !strings.Contains(plain, "//") && !strings.Contains(plain+"/", "/../") &&
		!strings.Contains(plain+"/", "/./")
}

// TestNothingInline: pages have no scripts and styles of their own, and load nothing from
// elsewhere.
func TestNothingInline(t *testing.T) {
	t.Parallel()
	url := fullApp().serve(t)
	for _, page := range pagesUnderTest {
		body := strings.ReplaceAll(get(t, url+page.path), url, "") // commands to copy have the address of this server
		if page.name == "signed out" {
			body = strings.Replace(body, `<a class="button main" href="https://idp.example/logout">`, "", 1) // loads nothing
		}
		body = strings.Replace(body, "https://hooks.example.com/secbox", "", 1) // the text of a webhook's address
		for _, bad := range []string{"<style", " style=", "<script>", " onclick", " onload", "javascript:", "hx-on", "http://", "https://"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %q", page.name, bad)
			}
		}
	}
}

// TestSecureCookies checks that cookies of connections with TLS belong to this host and to TLS.
func TestSecureCookies(t *testing.T) {
	t.Parallel()
	f := closedApp()
	f.secure = true
	resp, _ := newVisitor(t, f.serve(t)).get("/console/sign-in")
	if set := resp.Header.Get("Set-Cookie"); !strings.HasPrefix(set, "__Host-secbox_form_") || !strings.Contains(set, "; Secure") ||
		!strings.Contains(set, "Path=/;") {
		t.Errorf("cookie %s", set)
	}
}

// TestNavigation checks that the entry of a page's part is the current one.
func TestNavigation(t *testing.T) {
	t.Parallel()
	v := newVisitor(t, fullApp().serve(t))
	for path, want := range map[string]int{"/console/history": 1, "/console/execs/" + execID(2): 1, "/console/sign-in": 0} {
		if _, page := v.get(path); strings.Count(page, `aria-current="page"`) != want {
			t.Errorf("%s: %d current entries", path, strings.Count(page, `aria-current="page"`))
		}
	}
}

// TestRoles checks which role may use which page.
func TestRoles(t *testing.T) {
	t.Parallel()
	f := closedApp()
	server := f.serve(t)
	for role, allowed := range map[tokens.Role]bool{tokens.Worker: true, tokens.Auditor: true, tokens.Admin: true, tokens.AgentAdmin: false} {
		v := newVisitor(t, server)
		v.signIn("secret-" + string(role))
		if resp, page := v.get("/console/history"); (resp.StatusCode == http.StatusOK) != allowed || strings.Contains(page, ">History</a>") != allowed {
			t.Errorf("%s: history %d", role, resp.StatusCode)
		}
		_, page := v.get("/console/execs/" + execID(1))
		mayCancel := role == tokens.Admin || role == tokens.Worker
		if strings.Contains(page, "/cancel") != mayCancel {
			t.Errorf("%s: a button to cancel: %v", role, !mayCancel)
		}
		if resp, _ := v.post("/console/sign-in", "/console/execs/"+execID(1)+"/cancel", url.Values{}); (resp.StatusCode == http.StatusSeeOther) != mayCancel {
			t.Errorf("%s: cancel %d", role, resp.StatusCode)
		}
	}
}

// TestSeveralSessionCookies: servers on two ports of a host do not sign each other out, and neither
// does a cookie that another host of the domain has set.
func TestSeveralSessionCookies(t *testing.T) {
	t.Parallel()
	one, other := newVisitor(t, closedApp().serve(t)), newVisitor(t, closedApp().serve(t))
	other.client.Jar = one.client.Jar // one browser
	one.signIn("secret-admin")
	other.signIn("secret-admin")
	for _, v := range []*visitor{one, other, one} {
		if resp, page := v.get("/console/history"); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d: %s", v.url, resp.StatusCode, page)
		}
	}
	name, valid := sessionCookie(one.url), one.session()
	for planted, want := range map[int]int{1: http.StatusOK, 3: http.StatusOK, 4: http.StatusSeeOther} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, one.url+"/console/history", nil)
		if err != nil {
			t.Fatal(err)
		}
		for range planted {
			req.AddCookie(&http.Cookie{Name: name, Value: strings.Repeat("A", 52)})
		}
		req.AddCookie(&http.Cookie{Name: name, Value: valid})
		resp, _ := newVisitor(t, one.url).do(req)
		if resp.StatusCode != want || want == http.StatusOK && len(resp.Cookies()) > 0 {
			t.Errorf("%d planted before it: %d, %v", planted, resp.StatusCode, resp.Cookies())
		}
	}
}

// TestFormFields: a form refuses a field that it does not have, such as a misspelt limit of a
// token. It also refuses a field with two values, because the first value would win.
func TestFormFields(t *testing.T) {
	t.Parallel()
	app := closedApp()
	v := newVisitor(t, app.serve(t))
	v.signIn("secret-admin")
	before := len(app.tokens)
	for field, f := range map[string]url.Values{
		"projekts": {"name": {"one"}, "role": {"worker"}, "projekts": {"demo"}},
		"name":     {"name": {"one", "two"}, "role": {"worker"}},
	} {
		if resp, page := v.post("/console/tokens", "/console/tokens", f); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, field) ||
			len(app.tokens) != before {
			t.Errorf("%s: %d, %d tokens: %s", field, resp.StatusCode, len(app.tokens), page)
		}
	}
	large := url.Values{"name": {strings.Repeat("x", 64<<10)}, "role": {"worker"}}
	if resp, page := v.post("/console/tokens", "/console/tokens", large); resp.StatusCode != http.StatusRequestEntityTooLarge ||
		!strings.Contains(page, "65536 bytes") || len(app.tokens) != before {
		t.Errorf("too large: %d, %d tokens: %s", resp.StatusCode, len(app.tokens), page)
	}
}

// TestManySignIns: a token that signs in again and again is refused, and told when to try again.
// Signing out is not refused.
func TestManySignIns(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	now := time.Now()
	c.db.Limits().Now = func() time.Time { return now }
	secret := c.token("ann", tokens.Worker)
	browser := newVisitor(t, c.url)
	browser.signIn(secret)
	all, err := c.db.Tokens().List(t.Context())
	must(t, err)
	for _, tok := range all {
		for c.db.Limits().Take(admin.Caller(tok.ID, tok.Name), admin.SignedIn) {
		}
	}
	resp, page := newVisitor(t, c.url).post("/console/sign-in", "/console/sign-in", url.Values{"token": {secret}})
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "6" ||
		!strings.Contains(page, "too many changes of the kind signed_in") {
		t.Errorf("%d, Retry-After %q: %s", resp.StatusCode, resp.Header.Get("Retry-After"), page)
	}
	if resp, page := browser.post("/console/overview", "/console/sign-out", url.Values{}); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the sign-out: %d %s", resp.StatusCode, page)
	}
	now = now.Add(6 * time.Second)
	newVisitor(t, c.url).signIn(secret)
}
