package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
)

var secretShown = regexp.MustCompile(`<code id="token-secret">([^<]+)</code>`)

// TestTokensOverRealCore: an admin makes a token, whose secret only the answer has, and revokes it,
// on record.
func TestTokensOverRealCore(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	v := newVisitor(t, c.url)
	v.signIn(c.token("ada", tokens.Admin))
	resp, page := v.post("/console/tokens", "/console/tokens", url.Values{"name": {"CI <b>"}, "role": {"worker"}, "projects": {"demo, other"}})
	shown := secretShown.FindStringSubmatch(page)
	if resp.StatusCode != http.StatusOK || shown == nil || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Location") != "" {
		t.Fatalf("%d, %v: %s", resp.StatusCode, resp.Header, page)
	}
	valid(t, []document{{"new token", page}})
	made, err := c.tokens.Verify(t.Context(), shown[1])
	if err != nil || made.Name != "CI <b>" || made.Role != tokens.Worker || !slices.Equal(made.Projects, []string{"demo", "other"}) {
		t.Fatalf("%+v, %v", made, err)
	}
	for _, path := range []string{"/console/tokens", "/console/tokens/" + made.ID} {
		if _, page := v.get(path); strings.Contains(page, shown[1]) || !strings.Contains(page, "CI &lt;b&gt;") {
			t.Errorf("%s has the secret, or lacks the token", path)
		}
	}
	worker := newVisitor(t, c.url)
	worker.signIn(shown[1])
	if resp, _ := v.post("/console/tokens/"+made.ID, "/console/tokens/"+made.ID+"/revoke", url.Values{}); resp.StatusCode != http.StatusSeeOther ||
		resp.Header.Get("Location") != "/console/tokens" {
		t.Errorf("revoke: %d", resp.StatusCode)
	}
	if resp, _ := worker.get("/console/history"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the session of a revoked token: %d", resp.StatusCode)
	}
	if resp, _ := v.post("/console/tokens", "/console/tokens/none/revoke", url.Values{}); resp.StatusCode != http.StatusNotFound {
		t.Errorf("revoke of no token: %d", resp.StatusCode)
	}
	events := c.events()
	if !slices.Contains(events, "token_created by ada") || !slices.Contains(events, "token_revoked by ada") {
		t.Errorf("events %q", events)
	}
}

var formID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// TestReloadMakesNoSecondToken: a form that is sent again makes nothing, and the answer has no
// secret; a new form makes another token.
func TestReloadMakesNoSecondToken(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	v := newVisitor(t, c.url)
	v.signIn(c.token("ada", tokens.Admin))
	send := func(id string) (*http.Response, string) {
		return v.post("/console/tokens", "/console/tokens", url.Values{"id": {id}, "name": {"CI"}, "role": {"worker"}})
	}
	_, page := v.get("/console/tokens")
	id := formID.FindStringSubmatch(page)[1]
	if resp, page := send(id); resp.StatusCode != http.StatusOK || secretShown.FindString(page) == "" || !strings.Contains(page, id) {
		t.Fatalf("%d: %s", resp.StatusCode, page)
	}
	resp, page := send(id)
	if resp.StatusCode != http.StatusConflict || strings.Contains(page, tokens.Prefix) || !strings.Contains(page, "/console/tokens/"+id) {
		t.Errorf("sent again: %d: %s", resp.StatusCode, page)
	}
	valid(t, []document{{"sent again", page}})
	if resp, page := send("../1"); resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "must be a UUID") {
		t.Errorf("another id: %d", resp.StatusCode)
	}
	_, page = v.get("/console/tokens")
	if next := formID.FindStringSubmatch(page)[1]; next == id {
		t.Error("the next form has the same id")
	}
	if all, err := c.tokens.List(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("%d tokens, %v", len(all), err)
	}
}

// TestTokensAreOfAdmins: other roles get 403, for pages and forms, and forms of other sites change
// nothing.
func TestTokensAreOfAdmins(t *testing.T) {
	t.Parallel()
	f := closedApp()
	server := f.serve(t)
	for _, role := range []tokens.Role{tokens.Worker, tokens.Auditor, tokens.AgentAdmin} {
		v := newVisitor(t, server)
		v.signIn("secret-" + string(role))
		for _, path := range []string{"/console/tokens", "/console/tokens/t1"} {
			if resp, _ := v.get(path); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s, %s: %d", role, path, resp.StatusCode)
			}
		}
		for _, path := range []string{"/console/tokens", "/console/tokens/t1/revoke"} {
			if resp, _ := v.post("/console/sign-in", path, url.Values{"name": {"x"}, "role": {"admin"}}); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s, form %s: %d", role, path, resp.StatusCode)
			}
		}
	}
	v := newVisitor(t, server)
	v.signIn("secret-admin")
	for _, path := range []string{"/console/tokens", "/console/tokens/t1/revoke"} {
		for _, change := range []func(*http.Request, url.Values){
			func(_ *http.Request, f url.Values) { f.Del("csrf_token") },
			func(r *http.Request, _ url.Values) { r.Header.Set("Origin", "https://evil.example") },
		} {
			if resp, _ := v.post("/console/tokens", path, url.Values{"name": {"x"}, "role": {"admin"}}, change); resp.StatusCode != http.StatusForbidden {
				t.Errorf("foreign form to %s: %d", path, resp.StatusCode)
			}
		}
	}
	if len(f.tokens) != 3 || f.tokens[0].Revoked() {
		t.Errorf("tokens %+v", f.tokens)
	}
}

// TestRefusedToken: the form comes back with what was typed and every wrong field.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	f := fullApp()
	v := newVisitor(t, f.serve(t))
	resp, page := v.post("/console/tokens", "/console/tokens", url.Values{"name": {`"><script>`}, "role": {"root"}, "projects": {"../x"}, "user_id": {"ada"}})
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, "Correct what is marked below.") || strings.Contains(page, "<code>role</code>") ||
		!strings.Contains(page, `value="&#34;&gt;&lt;script&gt;"`) || !strings.Contains(page, `aria-describedby="p-role"`) ||
		!strings.Contains(page, `id="p-role">must be one of`) || !strings.Contains(page, `id="p-projects">projects[0] is not a valid id`) ||
		len(f.tokens) != 3 {
		t.Errorf("%d: %s", resp.StatusCode, page)
	}
}

// TestTokenPages: pages of many tokens, without revoked ones.
func TestTokenPages(t *testing.T) {
	t.Parallel()
	f := newFake()
	for i := range 250 {
		token := tokens.Token{ID: execID(i), Name: execID(i), Role: tokens.Worker, CreatedAt: clock}
		if i%2 == 0 {
			token.RevokedAt = clock
		}
		f.tokens = append(f.tokens, token)
	}
	url := f.serve(t)
	first := get(t, url+"/console/tokens")
	older := regexp.MustCompile(`href="([^"]*before=[^"]*)"`).FindStringSubmatch(first)
	if strings.Count(first, `scope="row"`) != 100 || older == nil {
		t.Fatalf("%d rows, %v", strings.Count(first, `scope="row"`), older)
	}
	if last := get(t, url+older[1]); strings.Count(last, `scope="row"`) != 25 || strings.Contains(last, "before=") {
		t.Errorf("the last page has %d rows", strings.Count(last, `scope="row"`))
	}
}
