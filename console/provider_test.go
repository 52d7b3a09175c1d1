package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"secbox/access/sso"
	"secbox/access/tokens"
)

// directory is the storage of a real OIDC provider with people of this test. It tells groups at the
// userinfo endpoint, as many providers do.
type directory struct {
	*storage.Storage
	people    map[string]person // by subject
	signedOut string            // the registered address of the console for those who have signed out
}

type person struct {
	name   string
	groups []string
}

const password = "correct horse"

func (d directory) GetUserByID(id string) *storage.User {
	p, ok := d.people[id]
	if !ok {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: password, FirstName: p.name, LastName: "<b>", Email: id + "@idp.example", EmailVerified: true}
}

// signsOut is a client that the provider sends back to an address after a sign-out.
type signsOut struct {
	op.Client
	to string
}

func (c signsOut) PostLogoutRedirectURIs() []string { return []string{c.to} }

func (d directory) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	client, err := d.Storage.GetClientByClientID(ctx, id)
	return signsOut{client, d.signedOut}, err
}

func (d directory) GetUserByUsername(name string) *storage.User { return d.GetUserByID(name) }
func (d directory) ExampleClientID() string                     { return "none" }

func (d directory) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, tokenID, subject, origin string) error {
	if err := d.Storage.SetUserinfoFromToken(ctx, info, tokenID, subject, origin); err != nil {
		return err
	}
	info.AppendClaims("groups", d.people[subject].groups)
	return nil
}

// startProvider starts the provider as another site than the console, whose client it knows.
func startProvider(t *testing.T, consoleURL string) *sso.Provider {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	issuer := "http://localhost:" + port
	d := directory{signedOut: consoleURL + "/console/sign-in", people: map[string]person{
		"ada": {"Ada", []string{"staff", "secbox-admins"}}, "grace": {"Grace", []string{"secbox-auditors"}}, "eve": {"Eve", []string{"staff"}},
	}}
	redirect := consoleURL + callback
	d.Storage = storage.NewStorageWithClients(d, map[string]*storage.Client{"secbox": storage.WebClient("secbox", "secret-of-the-client", redirect)})
	server.Config.Handler = exampleop.SetupServer(issuer, d, nil, false)
	server.Start()
	t.Cleanup(server.Close)
	p, err := sso.New(sso.Config{
		Issuer: issuer, ClientID: "secbox", ClientSecret: "secret-of-the-client", RedirectURL: redirect, Scopes: []string{"profile", "email"},
		GroupsClaim: "groups",
		AdminGroups: []string{"secbox-admins"}, AuditorGroups: []string{"secbox-auditors"},
	})
	must(t, err)
	return p
}

// signInAs fills in the provider's page.
func (b *tab) signInAs(name string) {
	b.t.Helper()
	b.do(chromedp.Click("#oidc a"), chromedp.WaitVisible("#username"), chromedp.SendKeys("#username", name), chromedp.SendKeys("#password", password),
		chromedp.Click("form button"))
}

// TestSignInAtRealProvider: from a page of the console to the provider, and back to that page, with
// the role of the groups.
func TestSignInAtRealProvider(t *testing.T) {
	c := startCoreWith(t, func(url string) *sso.Provider { return startProvider(t, url) })
	root := c.token("root", tokens.Admin)
	id := c.run(root, "echo hi")
	for _, p := range []struct {
		name, shown string
		role        tokens.Role
	}{{"grace", "Grace <b> (grace@idp.example)", tokens.Auditor}, {"ada", "Ada <b> (ada@idp.example)", tokens.Admin}} {
		b := open(t, c.url)
		b.visit("/console/execs/" + id)
		b.signInAs(p.name)
		b.do(chromedp.WaitVisible("#command"))
		if at := run(b, chromedp.Location()); at != c.url+"/console/execs/"+id {
			t.Errorf("%s comes to %s", p.name, at)
		}
		if who := eval[string](b, `document.querySelector(".who span").innerText`); who != p.shown+" "+string(p.role) {
			t.Errorf("%s is %q", p.name, who)
		}
		if people := eval[bool](b, `!!document.querySelector('nav a[href="/console/people"]')`); people != (p.role == tokens.Admin) {
			t.Errorf("%s sees the people: %v", p.name, people)
		}
		if cookies := eval[string](b, "document.cookie"); cookies != "" {
			t.Errorf("scripts see the cookies %s", cookies)
		}
		if p.role == tokens.Admin {
			b.visit("/console/people")
			b.do(chromedp.Click(`button[aria-label^="Block Grace"]`), chromedp.WaitVisible(`button[aria-label^="Unblock Grace"]`))
		}
		b.do(chromedp.Click(".who button"), chromedp.WaitVisible("#signed-out"))
		if text := b.text(); !strings.Contains(text, "Your session at localhost") {
			t.Errorf("%s has signed out: %s", p.name, text)
		}
		b.do(chromedp.Click("#signed-out a.main"), chromedp.WaitVisible("#token")) // at the provider, and back
		if at := run(b, chromedp.Location()); at != c.url+"/console/sign-in" {
			t.Errorf("the provider leads %s to %s", p.name, at)
		}
	}
	for name, want := range map[string]string{"eve": "no group of yours has a role", "grace": "has blocked you"} {
		b := open(t, c.url)
		b.visit("/console/history")
		b.signInAs(name)
		b.do(chromedp.WaitVisible(".problem"))
		if text := b.text(); !strings.Contains(text, want) || !strings.Contains(text, "Sign in at localhost") {
			t.Errorf("%s: %s", name, text)
		}
		if name == "eve" {
			b.accessible("a refused sign-in")
		}
		b.visit("/console/history")
		if at := run(b, chromedp.Location()); !strings.HasPrefix(at, c.url+"/console/sign-in?") {
			t.Errorf("%s comes to %s", name, at)
		}
	}
	want := []string{
		"signed_in by Grace <b> (grace@idp.example)", "signed_out by Grace <b> (grace@idp.example)", "signed_in by Ada <b> (ada@idp.example)",
		"person_blocked by Ada <b> (ada@idp.example)", "signed_out by Ada <b> (ada@idp.example)",
	}
	if got := slices.DeleteFunc(c.events(), func(e string) bool { return strings.Contains(e, "token_created") }); !slices.Equal(got, want) &&
		!slices.Equal(slices.DeleteFunc(got, func(e string) bool { return strings.HasPrefix(e, "download") }), want) {
		t.Errorf("events %q", got)
	}
}

// TestAnswersOfRealProvider: each is good for one sign-in of one browser, and comes from another
// site.
func TestAnswersOfRealProvider(t *testing.T) {
	t.Parallel()
	c := startCoreWith(t, func(url string) *sso.Provider { return startProvider(t, url) })
	c.token("root", tokens.Admin)
	v, other := newVisitor(t, c.url), newVisitor(t, c.url)
	begin := func(v *visitor) string {
		resp, _ := v.get("/console/sign-in/oidc?next=/console/history")
		return resp.Header.Get("Location")
	}
	first := c.throughProvider(begin(v), "ada")
	begin(other)
	arrive := func(v *visitor, address string, header ...string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), "GET", address, nil)
		must(t, err)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		return v.do(req)
	}
	if resp, page := arrive(other, first); resp.StatusCode != http.StatusUnauthorized || other.session() != "" {
		t.Errorf("in another browser: %d, %s", resp.StatusCode, page)
	}
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"},
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"},
		{"Origin", "https://evil.example"},
	} {
		if resp, _ := arrive(v, first, header...); resp.StatusCode != http.StatusForbidden || v.session() != "" {
			t.Errorf("%v: %d", header, resp.StatusCode)
		}
	}
	pending := v.client.Jar.Cookies(must1(url.Parse(c.url)))
	if resp, page := arrive(v, first, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
		"document"); resp.StatusCode != http.StatusOK || v.session() == "" {
		t.Fatalf("%d, %s", resp.StatusCode, page)
	}
	if resp, _ := arrive(v, c.url+"/console/sign-in/oidc", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
		"document"); resp.StatusCode != http.StatusForbidden || v.session() == "" {
		t.Errorf("a sign-in that another site begins: %d", resp.StatusCode)
	}
	v.client.Jar.SetCookies(must1(url.Parse(c.url)), pending)
	if resp, page := arrive(v, first); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(page, "valid once") {
		t.Errorf("the code a second time: %d, %s", resp.StatusCode, page)
	}
	refused, err := url.Parse(begin(other))
	must(t, err)
	q := url.Values{
		"state": {refused.Query().Get("state")}, "error": {"access_denied"},
		"error_description": {`<script>hacked=1</script>` + "\u202e" + strings.Repeat("x", 5000)},
	}
	if resp, page := arrive(other, c.url+callback+"?"+q.Encode()); resp.StatusCode != http.StatusUnauthorized ||
		!strings.Contains(page, "refused the sign-in: access_denied: &lt;script&gt;") || strings.ContainsRune(page, '\u202e') || len(page) > 8000 {
		t.Errorf("a refusal: %d, %s", resp.StatusCode, page)
	} else {
		valid(t, []document{{"refused by the provider", page}})
	}
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// throughProvider signs in at the provider, and returns the address to which it leads back.
func (c *core) throughProvider(address, name string) string {
	c.t.Helper()
	u, err := url.Parse(address)
	must(c.t, err)
	v := newVisitor(c.t, u.Scheme+"://"+u.Host)
	resp, page := v.get(u.RequestURI())
	login, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || login.Query().Get("authRequestID") == "" {
		c.t.Fatalf("%d: %s", resp.StatusCode, page)
	}
	form := url.Values{"username": {name}, "password": {password}, "id": {login.Query().Get("authRequestID")}}
	resp, err = v.client.PostForm(v.url+"/login/username", form) //nolint:noctx // a test
	must(c.t, err)
	defer resp.Body.Close()
	on, err := url.Parse(resp.Header.Get("Location"))
	must(c.t, err)
	resp, page = v.get(on.RequestURI())
	back := resp.Header.Get("Location")
	if !strings.HasPrefix(back, c.url+callback+"?") {
		c.t.Fatalf("%d, %s: %s", resp.StatusCode, back, fmt.Sprintf("%.300s", page))
	}
	return back
}
