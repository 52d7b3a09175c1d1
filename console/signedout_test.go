package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/fault"
)

// TestSignOutAtProvider: the page after the sign-out of a person leads to the provider's sign-out,
// if there is one. The page after the sign-out of a token leads to none.
func TestSignOutAtProvider(t *testing.T) {
	t.Parallel()
	f, provider := signOnApp()
	server := f.serve(t)
	v := newVisitor(t, server)
	signOut := func() string {
		t.Helper()
		resp, _ := v.post("/console/history", "/console/sign-out", url.Values{})
		if resp.StatusCode != http.StatusSeeOther || v.session() != "" {
			t.Fatalf("%d", resp.StatusCode)
		}
		return resp.Header.Get("Location")
	}
	const here = "/console/sign-in?ended=here"
	for _, c := range []struct {
		end  string
		err  error
		link string // in the page
	}{
		{"https://idp.example/logout?a=b&client_id=secbox", nil, `href="https://idp.example/logout?a=b&amp;client_id=secbox"`},
		{"", nil, ""},
		{"", fault.New(fault.UpstreamFailed, "idp.example does not answer"), ""},
		{`javascript:window.hacked=1`, nil, ""},
		{`https://idp.example/"><script>0</script>`, nil, `href="https://idp.example/&#34;&gt;&lt;script&gt;0&lt;/script&gt;"`},
	} {
		provider.end, provider.begin = "", nil
		v.get("/console/sign-in/oidc")
		v.get(callback + "?state=s&code=" + ada)
		if v.session() == "" {
			t.Fatal("not signed in")
		}
		provider.end, provider.begin = c.end, c.err
		if to := signOut(); to != here {
			t.Errorf("%q: the sign-out leads to %s", c.end, to)
		}
		resp, page := v.get(here)
		if resp.StatusCode != http.StatusOK || !strings.Contains(page, "You are signed out here. Your session at idp.example goes on") ||
			strings.Contains(page, "javascript:") || strings.Contains(page, "<script>0") {
			t.Errorf("%q: %d, %s", c.end, resp.StatusCode, page)
		}
		if c.link != "" && !strings.Contains(page, c.link) {
			t.Errorf("%q: no link to the provider: %s", c.end, page)
		}
		if c.end == "" && (strings.Contains(page, "Sign out at") || !strings.Contains(page, "has no address for signing out")) {
			t.Errorf("without an address the page leads somewhere: %s", page)
		}
	}
	v.signIn("secret-auditor")
	if to := signOut(); to != "/console/sign-in" {
		t.Errorf("the sign-out of a token leads to %s", to)
	}
	f.signOn = nil
	alone := newVisitor(t, f.serve(t))
	if resp, page := alone.get(here); resp.StatusCode != http.StatusOK || !strings.Contains(page, `id="token"`) || strings.Contains(page, "idp.example") {
		t.Errorf("without single sign-on: %d, %s", resp.StatusCode, page)
	}
}

// TestProviderLeadsBack: the provider's page may lead a browser to the page for signing in, as the
// top of a tab, and to nothing else.
func TestProviderLeadsBack(t *testing.T) {
	t.Parallel()
	c := startCore(t)
	c.token("root", tokens.Admin)
	for name, test := range map[string]struct {
		method, dest string
		status       int
	}{"a tab": {"GET", "document", http.StatusOK}, "a frame": {"GET", "iframe", http.StatusForbidden}, "a form": {"POST", "document", http.StatusForbidden}} {
		req, err := http.NewRequestWithContext(t.Context(), test.method, c.url+"/console/sign-in", nil)
		must(t, err)
		for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": test.dest} {
			req.Header.Set(header, value)
		}
		if resp, _ := newVisitor(t, c.url).do(req); resp.StatusCode != test.status {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}
