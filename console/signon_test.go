package console_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"secbox/access/sessions"
	"secbox/fault"
)

const callback = "/console/sign-in/oidc/callback"

// ada is the code of the first person of fillPeople.
var ada = url.QueryEscape(sessions.PersonID("idp.example", "1"))

// signOnApp is an application that needs a sign-in, with its provider.
func signOnApp() (*fakeApp, *fakeSignOn) {
	f := closedApp()
	return f, f.signOn.(*fakeSignOn)
}

// cookie returns the attributes of a cookie that an answer sets.
func cookie(t *testing.T, resp *http.Response, name string) *http.Cookie {
	t.Helper()
	for _, c := range resp.Cookies() {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no cookie %s: %v", name, resp.Header.Values("Set-Cookie"))
	return nil
}

func TestSignOn(t *testing.T) {
	t.Parallel()
	f, _ := signOnApp()
	v := newVisitor(t, f.serve(t))
	if _, page := v.get("/console/sign-in?next=/console/history?status=failed"); !strings.Contains(page,
		`href="/console/sign-in/oidc?next=%2Fconsole%2Fhistory%3Fstatus%3Dfailed"`) || !strings.Contains(page, "Sign in at idp.example") {
		t.Errorf("no way to the provider: %s", page)
	}
	resp, _ := v.get("/console/sign-in/oidc?next=/console/history?status=failed")
	if to := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || to != "https://idp.example/auth?state=s" {
		t.Fatalf("%d, %s", resp.StatusCode, to)
	}
	begun := cookie(t, resp, "secbox_oidc")
	if !begun.HttpOnly || begun.SameSite != http.SameSiteLaxMode || begun.MaxAge != 600 || begun.Path != "/" || begun.Domain != "" || begun.Secure {
		t.Errorf("the cookie is %s", begun)
	}
	resp, page := v.get(callback + "?state=s&session_state=x&code=" + ada)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Refresh") != "0; url=/console/history?status=failed" ||
		!strings.Contains(page, "signed in as Ada Lovelace") || strings.Contains(page, "idp.example#1") {
		t.Errorf("%d, %v: %s", resp.StatusCode, resp.Header, page)
	}
	valid(t, []document{{"signed in", page}})
	if got := cookie(t, resp, sessionCookie(v.url)); !got.HttpOnly || got.SameSite != http.SameSiteStrictMode || got.MaxAge != 0 {
		t.Errorf("the session is %s", got)
	}
	if got := cookie(t, resp, "secbox_oidc"); got.MaxAge >= 0 || got.Value != "" {
		t.Errorf("the sign-in is kept: %s", got)
	}
	if resp, page := v.get("/console/history"); resp.StatusCode != http.StatusOK || !strings.Contains(page, "Ada Lovelace") {
		t.Errorf("signed in: %d", resp.StatusCode)
	}
	if resp, _ := v.get(callback + "?state=s&code=" + ada); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the answer a second time: %d", resp.StatusCode)
	}
	v.post("/console/history", "/console/sign-out", url.Values{})
	if len(f.sessions.open) != 0 || v.session() != "" {
		t.Error("the session is open after the sign-out")
	}
}

// TestSignOnBehindTLS: all cookies are Secure, and no other host can set them.
func TestSignOnBehindTLS(t *testing.T) {
	t.Parallel()
	f, _ := signOnApp()
	f.secure = true
	v := newVisitor(t, f.serve(t))
	resp, _ := v.get("/console/sign-in/oidc")
	begun := cookie(t, resp, "__Host-secbox_oidc")
	req, _ := http.NewRequestWithContext(t.Context(), "GET", v.url+callback+"?state=s&code="+ada, nil)
	req.AddCookie(&http.Cookie{Name: "__Host-secbox_oidc", Value: begun.Value})
	resp, _ = v.do(req)
	if session := cookie(t, resp, "__Host-"+sessionCookie(v.url)); !begun.Secure || !session.Secure || session.Value == "" {
		t.Errorf("cookies %s, %s", begun, session)
	}
}

// TestSignOnOfOthers is against forged answers: a browser takes only the answer to the sign-in that
// it began itself, and only for a while.
func TestSignOnOfOthers(t *testing.T) {
	t.Parallel()
	f, provider := signOnApp()
	server := f.serve(t)
	victim, attacker := newVisitor(t, server), newVisitor(t, server)
	resp, _ := attacker.get("/console/sign-in/oidc")
	own := cookie(t, resp, "secbox_oidc").Value
	old := strings.Split(own, ".")
	old[1] = fmt.Sprint(time.Now().Add(-11 * time.Minute).Unix())
	for name, value := range map[string]string{
		"none":              "",
		"an old one":        strings.Join(old, "."),
		"one of the future": old[0] + ".99999999999.",
		"a short secret":    own[1:],
		"another alphabet":  "a" + own[1:],
		"no time":           old[0] + "..",
		"one part":          old[0],
		"four parts":        own + ".x",
		"no base64":         old[0] + "." + fmt.Sprint(time.Now().Unix()) + ".%%",
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", server+callback+"?state=s&code="+ada, nil)
		if value != "" {
			req.AddCookie(&http.Cookie{Name: "secbox_oidc", Value: value})
		}
		resp, page := victim.do(req)
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(page, "This browser has begun no sign-in") ||
			!strings.Contains(page, "https://core.example") || victim.session() != "" {
			t.Errorf("%s: %d, %s", name, resp.StatusCode, page)
		}
	}
	if provider.asked != 0 {
		t.Error("the provider was asked")
	}
	if resp, page := attacker.get(callback + "?state=other&code=" + ada); resp.StatusCode != http.StatusUnauthorized ||
		!strings.Contains(page, "not the last sign-in") || !strings.Contains(page, `id="token"`) {
		t.Errorf("another state: %d", resp.StatusCode)
	}
	if len(f.sessions.open) != 0 {
		t.Error("there is a session")
	}
}

// TestSignOnHasNewSession is against session fixation, and a sign-in ends the session that was
// there.
func TestSignOnHasNewSession(t *testing.T) {
	t.Parallel()
	f, _ := signOnApp()
	v := newVisitor(t, f.serve(t))
	v.signIn("secret-worker")
	first := v.session()
	v.get("/console/sign-in/oidc")
	if _, open := f.sessions.open[first]; open || v.session() != "" {
		t.Error("the former session is open")
	}
	u, _ := url.Parse(v.url)
	planted := strings.Repeat("A", 52)
	v.client.Jar.SetCookies(u, []*http.Cookie{{Name: sessionCookie(v.url), Value: planted, Path: "/"}})
	v.get(callback + "?state=s&code=" + ada)
	if got := v.session(); got == planted || got == first || got == "" || len(f.sessions.open) != 1 {
		t.Errorf("session %q of %d", got, len(f.sessions.open))
	}
}

// TestSignOnLeadsNowhereElse is against open redirects, also by a changed cookie.
func TestSignOnLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	f, _ := signOnApp()
	server := f.serve(t)
	for _, next := range []string{
		"https://evil.example/", "//evil.example", "/\\evil.example", "/console@evil.example", "javascript:alert(1)",
		"/console/../../evil", "/console//evil.example", "/console;url=//evil.example", "/console\"><script>", strings.Repeat("/console", 500),
	} {
		v := newVisitor(t, server)
		resp, _ := v.get("/console/sign-in/oidc?next=" + url.QueryEscape(next))
		parts := strings.Split(cookie(t, resp, "secbox_oidc").Value, ".")
		for _, value := range []string{strings.Join(parts, "."), parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString([]byte(next))} {
			req, _ := http.NewRequestWithContext(t.Context(), "GET", server+callback+"?state=s&code="+ada, nil)
			req.AddCookie(&http.Cookie{Name: "secbox_oidc", Value: value})
			resp, page := (&visitor{t, server, http.DefaultClient}).do(req)
			to := strings.TrimPrefix(resp.Header.Get("Refresh"), "0; url=")
			if resp.StatusCode != http.StatusOK || to != "/console" && !strings.HasPrefix(to, "/console/") || strings.Contains(to, "//") ||
				strings.Contains(to, "/../") || strings.ContainsAny(to, ";\"<") || strings.Contains(page, "evil.example/") {
				t.Errorf("%q leads to %q (%d)", next, to, resp.StatusCode)
			}
		}
	}
}

// TestSignOnIsPage: another page can neither frame nor load the beginning of a sign-in.
func TestSignOnIsPage(t *testing.T) {
	t.Parallel()
	f, provider := signOnApp()
	v := newVisitor(t, f.serve(t))
	for dest, status := range map[string]int{
		"iframe": http.StatusForbidden, "image": http.StatusForbidden, "empty": http.StatusForbidden,
		"document": http.StatusSeeOther,
	} {
		provider.secret = ""
		req, _ := http.NewRequestWithContext(t.Context(), "GET", v.url+"/console/sign-in/oidc", nil)
		req.Header.Set("Sec-Fetch-Dest", dest)
		if resp, _ := v.do(req); resp.StatusCode != status || (provider.secret != "") != (dest == "document") {
			t.Errorf("%s: %d", dest, resp.StatusCode)
		}
	}
}

// TestProviderDown: the page says so, and a token signs in.
func TestProviderDown(t *testing.T) {
	t.Parallel()
	f, provider := signOnApp()
	provider.begin = fault.New(fault.UpstreamFailed, "idp.example does not answer <script>")
	v := newVisitor(t, f.serve(t))
	resp, page := v.get("/console/sign-in/oidc?next=/console/history")
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(page, "idp.example does not answer &lt;script&gt;") ||
		!strings.Contains(page, `name="next" value="/console/history"`) {
		t.Errorf("%d: %s", resp.StatusCode, page)
	}
	valid(t, []document{{"provider down", page}})
	if resp, _ := v.post("/console/sign-in/oidc", "/console/sign-in",
		url.Values{"token": {"secret-auditor"}, "next": {"/console/history"}}); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("sign-in with a token: %d", resp.StatusCode)
	}
}

// TestWithoutProvider: nothing leads to one.
func TestWithoutProvider(t *testing.T) {
	t.Parallel()
	f, _ := signOnApp()
	f.signOn = nil
	v := newVisitor(t, f.serve(t))
	for _, path := range []string{"/console/sign-in/oidc", callback + "?state=s&code=" + ada} {
		if resp, page := v.get(path); resp.StatusCode != http.StatusNotFound || !strings.Contains(page, "single sign-on is not set up") {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	v.signIn("secret-admin")
	if _, page := v.get("/console/sign-in"); strings.Contains(page, "oidc") || strings.Contains(page, "/console/people") {
		t.Error("a page leads to single sign-on")
	}
}

// TestPeople: admins block people; other roles and other sites cannot.
func TestPeople(t *testing.T) {
	t.Parallel()
	f, _ := signOnApp()
	server := f.serve(t)
	v := newVisitor(t, server)
	v.signIn("secret-admin")
	id := f.people[0].ID
	for _, fields := range []url.Values{{"id": {id}}, {"id": {id}, "unblock": {"1"}}} {
		if resp, _ := v.post("/console/people", "/console/people/block", fields); resp.StatusCode != http.StatusSeeOther ||
			resp.Header.Get("Location") != "/console/people" {
			t.Errorf("%v: %d", fields, resp.StatusCode)
		}
	}
	if got := strings.Join(f.blocked, " "); got != id+" not "+id {
		t.Errorf("blocked %s", got)
	}
	if resp, _ := v.post("/console/people", "/console/people/block", url.Values{"id": {id}},
		func(_ *http.Request, f url.Values) { f.Del("csrf_token") }); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign form: %d", resp.StatusCode)
	}
	auditor := newVisitor(t, server)
	auditor.signIn("secret-auditor")
	if resp, _ := auditor.get("/console/people"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the page for an auditor: %d", resp.StatusCode)
	}
	if resp, _ := auditor.post("/console/history", "/console/people/block", url.Values{"id": {id}}); resp.StatusCode != http.StatusForbidden ||
		len(f.blocked) != 2 {
		t.Errorf("the form of an auditor: %d", resp.StatusCode)
	}
}

// TestPagesOfPeople: lists of many people.
func TestPagesOfPeople(t *testing.T) {
	t.Parallel()
	f := fullApp()
	f.people = nil
	for i := range 150 {
		f.people = append(f.people, sessions.Person{
			ID: sessions.PersonID("https://idp.example", fmt.Sprint(i)), Name: fmt.Sprint(i), FirstAt: clock,
			SeenAt: clock,
		})
	}
	server := f.serve(t)
	first := get(t, server+"/console/people")
	at := strings.Index(first, `href="/console/people?after=`)
	if strings.Count(first, `scope="row"`) != 100 || at < 0 {
		t.Fatalf("%d rows", strings.Count(first, `scope="row"`))
	}
	older, _, _ := strings.Cut(first[at+len(`href="`):], `"`)
	if last := get(t, server+older); strings.Count(last, `scope="row"`) != 50 || strings.Contains(last, ">Older<") || !strings.Contains(last, ">Newest<") {
		t.Errorf("the second page has %d rows", strings.Count(last, `scope="row"`))
	}
}

// TestAnswersWithoutSignInCount: what comes without a sign-in that the browser has begun, or with
// an old one, is a failure of its address, too.
func TestAnswersWithoutSignInCount(t *testing.T) {
	t.Parallel()
	f, _ := signOnApp()
	v := newVisitor(t, f.serve(t))
	for n := range 3 {
		if resp, _ := v.get(callback + "?state=s&code=" + ada); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%d", resp.StatusCode)
		}
		if failed := f.sessions.failed; failed != n+1 {
			t.Errorf("%d failures are counted", failed)
		}
	}
}
