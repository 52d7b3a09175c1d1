package sso_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"secbox/fault"
)

// TestEndAddress: the address names the client and the page that the browser comes back to, and no
// person. An address that cannot be trusted is not used.
func TestEndAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ said, want string }{
		{"", ""},
		{"https://idp.example/logout", "https://idp.example/logout?"},
		{"https://idp.example/logout?tenant=a%26b&client_id=other", "https://idp.example/logout?"},
		{"http://idp.example/logout", ""},
		{"javascript:alert(1)//idp.example", ""},
		{"https://a:b@idp.example/logout", ""},
		{"//idp.example/logout", ""},
		{"/logout", ""},
		{"https://", ""},
		{"http://127.0.0.1:1/logout", "http://127.0.0.1:1/logout?"},
		{"%zz", ""},
	} {
		b := startBad(t)
		if c.said != "" {
			b.discovery["end_session_endpoint"] = c.said
		}
		got, err := b.p.EndAddress(t.Context())
		if err != nil || c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%q became %q, %v", c.said, got, err)
			continue
		}
		if c.want == "" {
			if warned := strings.Contains(b.log.String(), "signing out"); warned != (c.said != "") {
				t.Errorf("%q: the log has %s", c.said, b.log)
			}
			if _, err := b.p.Begin(t.Context(), secret); err != nil {
				t.Errorf("%q: nobody can sign in: %v", c.said, err)
			}
			continue
		}
		u, err := url.Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if q.Get("client_id") != "secbox" || len(q["client_id"]) != 1 || q.Get("post_logout_redirect_uri") != "https://core.example/console/sign-in" ||
			strings.Contains(c.said, "tenant") != (q.Get("tenant") == "a&b") {
			t.Errorf("%q became %q", c.said, got)
		}
	}
}

// TestEndAddressOfSilentProvider: nothing is told while the provider is away.
func TestEndAddressOfSilentProvider(t *testing.T) {
	t.Parallel()
	b := startBad(t)
	b.status = http.StatusBadGateway
	if got, err := b.p.EndAddress(t.Context()); got != "" || !fault.Is(err, fault.UpstreamFailed) {
		t.Errorf("%q, %v", got, err)
	}
}
