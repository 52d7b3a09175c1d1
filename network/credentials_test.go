package network_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"secbox/audit"
	"secbox/network"
	"secbox/policy"
)

// secrets are values by name.
type secrets struct {
	mu     sync.Mutex
	values map[string]string
}

func (s *secrets) set(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[name] = value
}

func (s *secrets) Value(_ context.Context, name, _ string, _ uint16) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value := s.values[name]; value != "" {
		return value, nil
	}
	return "", errors.New("the secret " + name + " cannot be read now")
}

func (*secrets) Hosts() []string { return []string{"*.example.org", "good.example.org:443"} }

// withSecrets starts a way out with credentials; the client trusts only core-api for the hosts of
// its authority.
func withSecrets(t *testing.T, credentials []policy.Credential, change ...func(*network.Config, *policy.NetLimits)) (*fixture, *secrets) {
	t.Helper()
	values := &secrets{values: map[string]string{"key": "canary-1", "git": "canary-2"}}
	roots := x509.NewCertPool()
	roots.AddCert(testCA(t).leaf)
	change = append([]func(*network.Config, *policy.NetLimits){func(cfg *network.Config, _ *policy.NetLimits) {
		cfg.Secrets, cfg.RootCAs = values, roots
	}}, change...)
	allow := []string{"good.example.org", "*.good.example.org", "evil.example.net"}
	f := startExec(t, network.Exec{Allow: allow, Credentials: credentials}, change...)
	ca, err := f.network.CA()
	if err != nil || !f.roots.AppendCertsFromPEM([]byte(ca)) {
		t.Fatalf("%v %q", err, ca)
	}
	return f, values
}

func (f *fixture) got() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// send sends a request through the proxy.
func (f *fixture) send(scheme string, r *http.Request) (int, string, error) {
	f.t.Helper()
	resp, err := f.client(scheme).Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func request(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "mine")
	r.Header.Set("X-Key", "mine")
	return r
}

// TestCredentials: the secret arrives at its host and nowhere else, in place of what the job sent,
// and the row of the connection names it.
func TestCredentials(t *testing.T) {
	t.Parallel()
	key := policy.Credential{Secret: "key", Host: "good.example.org", Header: "Authorization: Bearer"}
	query := policy.Credential{Secret: "git", Host: "*.good.example.org", Query: "key"}
	for name, c := range map[string]struct {
		credentials []policy.Credential
		url         string
		want        []string // of the server
		names       []string // on record
	}{
		"header":  {[]policy.Credential{key}, "https://good.example.org/a?b=1", []string{"GET /a?b=1 Bearer canary-1 mine"}, []string{"key"}},
		"another": {[]policy.Credential{{Secret: "key", Host: "good.example.org", Header: "x-key"}}, "https://good.example.org/", []string{"GET / mine canary-1"}, []string{"key"}},
		"basic":   {[]policy.Credential{{Secret: "key", Host: "good.example.org", Basic: "me"}}, "https://good.example.org/", []string{"GET / Basic bWU6Y2FuYXJ5LTE= mine"}, []string{"key"}},
		"query":   {[]policy.Credential{query}, "https://api.good.example.org/?key=mine&k%65y=x&a=1", []string{"GET /?a=1&key=canary-2 mine mine"}, []string{"git"}},
		"two": {
			[]policy.Credential{key, {Secret: "git", Host: "good.example.org", Header: "X-Key"}},
			"https://good.example.org/",
			[]string{"GET / Bearer canary-1 canary-2"},
			[]string{"git", "key"},
		},
		"the first of a form": {
			[]policy.Credential{key, {Secret: "git", Host: "good.example.org", Basic: "me"}},
			"https://good.example.org/",
			[]string{"GET / Bearer canary-1 mine"},
			[]string{"key"},
		},
		"another host": {[]policy.Credential{query}, "https://evil.example.net/", []string{"GET / mine mine"}, nil},
		"a host above": {[]policy.Credential{query}, "https://good.example.org/", []string{"GET / mine mine"}, nil},
		"a redirect": {
			[]policy.Credential{key},
			"https://good.example.org/elsewhere",
			[]string{"GET /elsewhere Bearer canary-1 mine", "GET /  mine"},
			[]string{"key"},
		},
	} {
		for _, scheme := range []string{"http", "socks5"} {
			t.Run(name+" by "+scheme, func(t *testing.T) {
				t.Parallel()
				f, _ := withSecrets(t, c.credentials)
				code, body, err := f.send(scheme, request(t, http.MethodGet, c.url))
				if err != nil || code != 200 || !strings.HasPrefix(body, "hello from ") {
					t.Errorf("%d %q %v", code, body, err)
				}
				if got := f.got(); !slices.Equal(got, c.want) {
					t.Errorf("the server got %q", got)
				}
				f.close()
				rows := f.store.all()
				if len(rows) == 0 || !slices.Equal(rows[0].Secrets, c.names) || len(rows) > 1 && len(rows[1].Secrets) > 0 {
					t.Errorf("on record: %+v", rows)
				}
			})
		}
	}
}

// TestCredentialsWithheld: none of these requests gets the secret, and the job learns why.
func TestCredentialsWithheld(t *testing.T) {
	t.Parallel()
	key := []policy.Credential{{Secret: "key", Host: "good.example.org", Header: "Authorization: Bearer"}}
	wrong := func(cfg *network.Config, _ *policy.NetLimits) { cfg.RootCAs = x509.NewCertPool() }
	for name, c := range map[string]struct {
		method, url string
		change      func(*network.Config, *policy.NetLimits)
		unreadable  bool
		want        string
		end         audit.ConnEnd
	}{
		"TRACK":               {"track", "https://good.example.org/", nil, false, "send the secret back", audit.ConnProtocol},
		"over http":           {"GET", "http://good.example.org/", nil, false, "use https://", audit.ConnProtocol},
		"TRACE":               {"TRACE", "https://good.example.org/", nil, false, "send the secret back", audit.ConnProtocol},
		"another certificate": {"GET", "https://good.example.org/", wrong, false, "the request was not sent", audit.ConnFailed},
		"an unreadable one":   {"GET", "https://good.example.org/", nil, true, "the secret key cannot be read now", audit.ConnFailed},
	} {
		for _, scheme := range []string{"http", "socks5"} {
			t.Run(name+" by "+scheme, func(t *testing.T) {
				t.Parallel()
				change := c.change
				if change == nil {
					change = func(*network.Config, *policy.NetLimits) {}
				}
				f, values := withSecrets(t, key, change)
				if c.unreadable {
					values.set("key", "")
				}
				_, body, err := f.send(scheme, request(t, c.method, c.url))
				if err == nil && !strings.Contains(body, c.want) || err != nil && !c.unreadable {
					t.Errorf("%q %v", body, err)
				}
				if err != nil && scheme == "http" && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v", err)
				}
				if got := f.got(); len(got) > 0 {
					t.Errorf("the server got %q", got)
				}
				f.close()
				rows := f.store.all()
				if !slices.ContainsFunc(rows, func(r audit.Connection) bool { return r.End == c.end && strings.Contains(r.Detail, c.want) }) {
					t.Errorf("on record: %+v", rows)
				}
				for _, row := range rows {
					if len(row.Secrets) > 0 || strings.Contains(row.Detail, "canary") {
						t.Errorf("on record: %+v", row)
					}
				}
			})
		}
	}
}

// TestSecretsInAnswers: no header of an answer has the secret in a form in which it was sent, and a
// redirect has no body; a host whose body has the secret shows it.
func TestSecretsInAnswers(t *testing.T) {
	t.Parallel()
	const value = "canary+1 /&"
	f, values := withSecrets(t, []policy.Credential{
		{Secret: "key", Host: "good.example.org", Query: "key"},
		{Secret: "key", Host: "good.example.org", Header: "X-Key"},
		{Secret: "git", Host: "good.example.org", Basic: "me"},
	})
	values.set("key", value)
	for code, body := range map[int]bool{301: false, 302: false, 303: false, 307: false, 308: false, 300: false, 304: false, 200: true, 404: true} {
		r := request(t, http.MethodGet, "https://good.example.org/echo?code="+strconv.Itoa(code))
		resp, err := f.client("http").Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != code || (len(got) > 0) != body {
			t.Errorf("%d: %d %q %v", code, resp.StatusCode, got, err)
		}
		if to := "/to?code=" + strconv.Itoa(code) + "&key=secret-key"; resp.Header.Get("Location") != to || resp.Header.Get("Refresh") != to {
			t.Errorf("%d: %v", code, resp.Header)
		}
		if echo := resp.Header.Get("X-Echo"); echo != "Basic secret-git secret-key" {
			t.Errorf("%d: %q", code, echo)
		}
	}
	resp, err := f.client("http").Transport.RoundTrip(request(t, http.MethodHead, "https://good.example.org/echo?code=302"))
	if err != nil || resp.StatusCode != 302 || strings.Contains(resp.Header.Get("Location"), "canary") {
		t.Errorf("%+v %v", resp, err)
	}
}

// TestFrontingWithCredentials: a request in the tunnel that names another host is refused.
func TestFrontingWithCredentials(t *testing.T) {
	t.Parallel()
	f, _ := withSecrets(t, []policy.Credential{{Secret: "key", Host: "good.example.org", Header: "X-Key"}})
	r := request(t, http.MethodGet, "https://good.example.org/")
	r.Host = "evil.example.net"
	if code, body, err := f.send("http", r); err != nil || code != 403 || !strings.Contains(body, "came in a tunnel to good.example.org:443") {
		t.Errorf("%d %q %v", code, body, err)
	}
	conn := f.tunnel("good.example.org:443")
	defer conn.Close()
	if err := tls.Client(conn, &tls.Config{ServerName: "evil.example.net", RootCAs: f.roots}).Handshake(); err == nil {
		t.Error("another name in the ClientHello was accepted")
	}
	if got := f.got(); len(got) > 0 {
		t.Errorf("the server got %q", got)
	}
}

// TestRotatedSecret: each request has the value of its time; one that can no longer be read ends
// the requests.
func TestRotatedSecret(t *testing.T) {
	t.Parallel()
	f, values := withSecrets(t, []policy.Credential{{Secret: "key", Host: "good.example.org", Header: "X-Key"}})
	client := f.client("http")
	for _, value := range []string{"canary-1", "canary-3", ""} {
		values.set("key", value)
		resp, err := client.Do(request(t, http.MethodGet, "https://good.example.org/"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if (resp.StatusCode == http.StatusBadGateway) != (value == "") || value == "" && !strings.Contains(string(body), "cannot be read now") {
			t.Errorf("%q: %d %q", value, resp.StatusCode, body)
		}
	}
	if got := f.got(); !slices.Equal(got, []string{"GET / mine canary-1", "GET / mine canary-3"}) {
		t.Errorf("the server got %q", got)
	}
}

// TestUnrecordedSecret: a secret whose use cannot be put on record is not sent.
func TestUnrecordedSecret(t *testing.T) {
	t.Parallel()
	f, _ := withSecrets(t, []policy.Credential{{Secret: "key", Host: "good.example.org", Header: "X-Key"}})
	conn := f.tunnel("good.example.org:443")
	defer conn.Close()
	f.store.fail(errors.New("no disk"))
	secured := tls.Client(conn, &tls.Config{ServerName: "good.example.org", RootCAs: f.roots})
	if _, err := io.WriteString(secured, "GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(secured), nil)
	if err != nil || resp.StatusCode != http.StatusBadGateway {
		t.Errorf("%+v %v", resp, err)
	}
	if got := f.got(); len(got) > 0 {
		t.Errorf("the server got %q", got)
	}
	f.store.fail(nil)
}

// TestUpgradeWithCredentials: a WebSocket's request has the secret, and its bytes go both ways.
func TestUpgradeWithCredentials(t *testing.T) {
	t.Parallel()
	f, _ := withSecrets(t, []policy.Credential{{Secret: "key", Host: "good.example.org", Header: "X-Key"}})
	conn := f.tunnel("good.example.org:443")
	defer conn.Close()
	secured := tls.Client(conn, &tls.Config{ServerName: "good.example.org", RootCAs: f.roots, NextProtos: []string{"h2", "http/1.1"}})
	if _, err := io.WriteString(secured, "GET /upgrade HTTP/1.1\r\nHost: good.example.org\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(secured)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v %v", resp, err)
	}
	if _, err := io.WriteString(secured, "to and fro\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := r.ReadString('\n'); err != nil || line != "to and fro\n" {
		t.Errorf("%q %v", line, err)
	}
	if got := f.got(); !slices.Equal(got, []string{"GET /upgrade  canary-1"}) {
		t.Errorf("the server got %q", got)
	}
}

// TestAuthority: its certificates are good for the hosts of secrets, and for no other.
func TestAuthority(t *testing.T) {
	t.Parallel()
	f, _ := withSecrets(t, []policy.Credential{{Secret: "key", Host: "good.example.org", Header: "X-Key"}})
	only := x509.NewCertPool()
	ca, err := f.network.CA()
	if err != nil {
		t.Fatal(err)
	}
	only.AppendCertsFromPEM([]byte(ca))
	if again, _ := f.network.CA(); again != ca {
		t.Error("there are two authorities")
	}
	conn := f.tunnel("good.example.org:443")
	defer conn.Close()
	if err := tls.Client(conn, &tls.Config{ServerName: "good.example.org", RootCAs: only, NextProtos: []string{"h2"}}).Handshake(); err == nil {
		t.Error("a connection with HTTP/2 alone was accepted")
	}
	through := f.tunnel("api.good.example.org:443")
	defer through.Close()
	if err := tls.Client(through, &tls.Config{ServerName: "api.good.example.org", RootCAs: only}).Handshake(); err == nil {
		t.Error("TLS to a host without credentials was ended")
	}
	for _, name := range []string{"example.net", "good.example.org.evil.example.net"} {
		if err := network.SignedFor(f.network, name, only); err == nil {
			t.Errorf("a certificate for %s is valid", name)
		}
	}
	if err := network.SignedFor(f.network, "a.example.org", only); err != nil {
		t.Error(err)
	}
}

// tunnel opens a tunnel to a host.
func (f *fixture) tunnel(authority string) net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.proxy)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "CONNECT "+authority+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		f.t.Fatal(err)
	}
	answer := make([]byte, len("HTTP/1.1 200 OK\r\n\r\n"))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 200 OK\r\n\r\n" {
		f.t.Fatalf("%q %v", answer, err)
	}
	return conn
}
