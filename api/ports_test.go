package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/runner"
	"secbox/runner/session"
)

const previewDomain = "preview.test"

// inSession is an HTTP server in the place of one in a session.
type inSession struct {
	*fixture
	rec    audit.Record
	secret string // of the token that has the session
	id     string // of the token

	mu       sync.Mutex
	visitors []runner.Visitor
	asked    []http.Header
	open     int
}

// startPorts starts a server with a session, whose port 8000 answers by handler.
func startPorts(t *testing.T, handler http.HandlerFunc, change ...func(*api.Config)) *inSession {
	t.Helper()
	p := &inSession{}
	p.fixture = start(t, append(change, func(c *api.Config) {
		c.PreviewDomain, c.LinkKey = previewDomain, hmackey.New([]byte("key"))
	})...)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		header := r.Header.Clone()
		header.Set("Got-Host", r.Host)
		header.Set("Got-URI", r.RequestURI)
		p.asked = append(p.asked, header)
		p.mu.Unlock()
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	p.id, p.secret = p.token(tokens.Spec{Role: tokens.Worker})
	p.rec = p.record(func(r *audit.Record) {
		r.Status, r.EndedAt, r.ExitCode, r.SessionID, r.Cmd, r.RequestedBy = audit.Running, time.Time{}, nil, r.ExecID, "session", p.id
	})
	p.runner.dialPort = func(ctx context.Context, id string, v runner.Visitor, port uint16) (net.Conn, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.visitors = append(p.visitors, v)
		switch {
		case id != p.rec.ExecID:
			return nil, session.Ended(id)
		case port != 8000:
			return nil, fault.New(fault.UpstreamFailed, "nothing listens on port %d in the session", port)
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		if err != nil {
			return nil, err
		}
		p.open++
		return &countedConn{conn, sync.OnceFunc(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.open--
		})}, nil
	}
	return p
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// host is the host of a port of a session.
func (p *inSession) host(port int) string {
	return fmt.Sprintf("%d-%s.%s", port, p.rec.ExecID, previewDomain)
}

// visit sends a request to the server under another name.
func (p *inSession) visit(method, host, target string, header http.Header) *answer {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+target, http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Host = host
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := plain.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return &answer{resp, string(body)}
}

// plain follows no redirects.
var plain = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

type answer struct {
	*http.Response
	body string
}

func (a *answer) code() fault.Code {
	var doc struct{ Code fault.Code }
	_ = json.Unmarshal([]byte(a.body), &doc)
	return doc.Code
}

func (p *inSession) bearer() http.Header { return http.Header{"Authorization": {"Bearer " + p.secret}} }

// link makes a link, and returns its parameter.
func (p *inSession) link(port int, body string) (param string) {
	p.t.Helper()
	r := p.do(request{
		method: "POST", path: fmt.Sprintf("/sandbox/sessions/%s/ports/%d/link", p.rec.ExecID, port), body: body, token: p.secret,
	})
	made := decodeAs[wire.PortLink](p.t, r, 201)
	u, err := url.Parse(made.URL)
	if err != nil || u.Scheme != "http" || u.Hostname() != p.host(port) || ":"+u.Port() != p.url[strings.LastIndex(p.url, ":"):] {
		p.t.Fatalf("%q %v", made.URL, err)
	}
	return u.RawQuery
}

// cookie exchanges a link for a cookie.
func (p *inSession) cookie(param string) string {
	p.t.Helper()
	r := p.visit("GET", p.host(8000), "/?"+param, nil)
	if r.StatusCode != 303 || r.Header.Get("Location") != "/" || len(r.Cookies()) != 1 {
		p.t.Fatalf("%d %v", r.StatusCode, r.Header)
	}
	return r.Cookies()[0].Name + "=" + r.Cookies()[0].Value
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func TestPortByToken(t *testing.T) {
	t.Parallel()
	p := startPorts(t, hello)
	header := p.bearer()
	for _, name := range []string{"X-Real-IP", "Forwarded", "X-Forwarded-For", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP"} {
		header.Set(name, "10.0.0.1")
	}
	r := p.visit("GET", p.host(8000), "/a%2Fb?c;d&secbox_link=x&e", header)
	if r.StatusCode != 200 || r.body != "hello" || r.Header.Get("Content-Security-Policy") != "" || r.Header.Get("Cache-Control") != "" {
		t.Errorf("%d %q %v", r.StatusCode, r.body, r.Header)
	}
	if got := p.asked[0]; got.Get("Authorization") != "" || got.Get("Got-Host") != p.host(8000) || got.Get("Got-URI") != "/a%2Fb?c;d&e" ||
		got.Get("X-Forwarded-Host") != p.host(8000) || strings.Contains(fmt.Sprint(got), "10.0.0.1") {
		t.Errorf("%v", got)
	}
	if v := p.visitors[0]; v != (runner.Visitor{Token: p.id, Address: "127.0.0.1"}) {
		t.Errorf("%+v", v)
	}
	if r := p.visit("GET", p.host(8001), "/", p.bearer()); r.StatusCode != 502 || !strings.Contains(r.body, "nothing listens on port 8001") {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

func TestPortRefusesOthers(t *testing.T) {
	t.Parallel()
	p := startPorts(t, hello)
	_, worker := p.token(tokens.Spec{Role: tokens.Worker})
	_, auditor := p.token(tokens.Spec{Role: tokens.Auditor})
	gone, revoked := p.token(tokens.Spec{Role: tokens.Admin})
	if _, err := p.tokens.Revoke(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		secret string
		code   fault.Code
	}{
		"another worker": {worker, fault.UnknownExec}, "an auditor": {auditor, fault.Forbidden},
		"revoked": {revoked, fault.TokenRevoked}, "unknown": {"sbx_x", fault.Unauthenticated}, "the application's": {"app", fault.Unauthenticated},
	} {
		header := http.Header{"Authorization": {"Bearer " + c.secret}}
		if r := p.visit("GET", p.host(8000), "/", header); r.code() != c.code {
			t.Errorf("%s: %d %s", name, r.StatusCode, r.body)
		}
	}
	if r := p.visit("GET", p.host(8000), "/", nil); r.code() != fault.Unauthenticated {
		t.Errorf("%s", r.body)
	}
	two := http.Header{"Authorization": {"Bearer " + p.secret, "Basic eA=="}}
	if r := p.visit("GET", p.host(8000), "/", two); r.code() != fault.Unauthenticated {
		t.Errorf("two headers: %s", r.body)
	}
	other := strings.Replace(p.host(8000), p.rec.ExecID, "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d", 1)
	if r := p.visit("GET", other, "/", p.bearer()); r.code() != fault.UnknownExec {
		t.Errorf("another session: %s", r.body)
	}
	for _, host := range []string{
		previewDomain, "x." + previewDomain, p.host(80), p.host(0), p.host(99999), p.host(8000) + ".", "a." + p.host(8000), p.host(8000) + ":x",
	} {
		for _, path := range []string{"/", "/health", "/console", "/sandbox/execs"} {
			if r := p.visit("GET", host, path, p.bearer()); r.code() != fault.ForeignHost {
				t.Errorf("%s%s: %d %s", host, path, r.StatusCode, r.body)
			}
		}
	}
	if len(p.asked) > 0 {
		t.Errorf("%d requests have arrived", len(p.asked))
	}
}

func TestPortByLink(t *testing.T) {
	t.Parallel()
	p := startPorts(t, hello)
	param := p.link(8000, `{"ttl_seconds": 600}`)
	for target, location := range map[string]string{
		"/?" + param: "/", "/a%2Fb?x=1&" + param + "&y;z": "/a%2Fb?x=1&y;z", "//evil.example/?" + param: "/evil.example/",
		"/%5C%5Cevil.example?" + param: "/%5C%5Cevil.example", "/..//evil.example?" + param: "/..//evil.example",
		"/https://evil.example?" + param: "/https://evil.example", `/\evil.example?` + param: "/%5Cevil.example",
	} {
		r := p.visit("GET", p.host(8000), target, nil)
		if r.StatusCode != 303 || r.Header.Get("Location") != location || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", target, r.StatusCode, r.Header)
		}
	}
	r := p.visit("GET", p.host(8000), "/?"+param, nil)
	set := r.Header.Get("Set-Cookie")
	if !strings.HasPrefix(set, "secbox_port=") || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Lax") ||
		!strings.Contains(set, "Path=/;") || strings.Contains(set, "Domain") {
		t.Error(set)
	}
	with := func(headers ...string) http.Header {
		h := http.Header{"Cookie": {"a=b; " + p.cookie(param) + "; secbox_session_8003=s; __Host-secbox_session=s; c=d"}}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return h
	}
	if r := p.visit("GET", p.host(8000), "/x", with("Authorization", "Basic eDp5")); r.StatusCode != 200 || r.body != "hello" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
	if got := p.asked[0]; got.Get("Cookie") != "a=b; c=d" || got.Get("Authorization") != "Basic eDp5" {
		t.Errorf("%v", got)
	}
	if v := p.visitors[0]; v.Token != p.id || v.Link == "" {
		t.Errorf("%+v", v)
	}
	if r := p.visit("POST", p.host(8000), "/?q&"+param, nil); r.StatusCode != 200 || p.asked[1].Get("Got-URI") != "/?q" {
		t.Errorf("a program's request: %d %v", r.StatusCode, p.asked[1])
	}
	// A page of another session, or any other.
	for _, origin := range []string{"http://8000-019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d." + previewDomain, "http://localhost", "null"} {
		if r := p.visit("GET", p.host(8000), "/", with("Origin", origin)); r.code() != fault.ForeignOrigin {
			t.Errorf("%s: %s", origin, r.body)
		}
	}
	if r := p.visit("GET", p.host(8000), "/", with("Sec-Fetch-Site", "same-site")); r.code() != fault.ForeignOrigin {
		t.Errorf("%s", r.body)
	}
	// What is not the link of this port.
	for name, target := range map[string]string{"another port": p.host(8001), "an altered link": p.host(8000)} {
		altered := param
		if target == p.host(8000) {
			altered = param[:len(param)-1] + "x"
		}
		if r := p.visit("GET", target, "/?"+altered, nil); r.code() != fault.Unauthenticated {
			t.Errorf("%s: %s", name, r.body)
		}
		cookie := http.Header{"Cookie": {"secbox_port=" + strings.TrimPrefix(altered, "secbox_link=")}}
		if r := p.visit("GET", target, "/", cookie); r.code() != fault.Unauthenticated {
			t.Errorf("%s, as a cookie: %s", name, r.body)
		}
	}
	events, err := p.db.AdminEvents().List(t.Context(), admin.Filter{Kind: admin.PortLinked}, nil, 10)
	if err != nil || len(events) != 1 || events[0].Subject != p.rec.ExecID || !strings.Contains(events[0].Data, "8000") {
		t.Errorf("%+v", events)
	}
	if _, err := p.tokens.Revoke(t.Context(), p.id); err != nil {
		t.Fatal(err)
	}
	if r := p.visit("GET", p.host(8000), "/?"+param, nil); r.code() != fault.TokenRevoked {
		t.Errorf("after its token: %s", r.body)
	}
}

func TestPortLinkExpires(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Now()
	p := startPorts(t, hello, func(c *api.Config) {
		c.Now = func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		}
	})
	param := p.link(8000, `{}`)
	cookie := http.Header{"Cookie": {p.cookie(param)}}
	if r := p.visit("GET", p.host(8000), "/", cookie); r.StatusCode != 200 {
		t.Errorf("%s", r.body)
	}
	mu.Lock()
	now = now.Add(time.Hour)
	mu.Unlock()
	if r := p.visit("GET", p.host(8000), "/", cookie); r.code() != fault.Unauthenticated {
		t.Errorf("%s", r.body)
	}
	if r := p.visit("GET", p.host(8000), "/?"+param, nil); r.code() != fault.Unauthenticated || !strings.Contains(r.body, "expired") {
		t.Errorf("%s", r.body)
	}
}

func TestPortLinkIsChecked(t *testing.T) {
	t.Parallel()
	p := startPorts(t, hello)
	path := "/sandbox/sessions/" + p.rec.ExecID + "/ports/"
	for body, field := range map[string]string{`{"ttl_seconds": 0}`: "ttl_seconds", `{"ttl_seconds": 86401}`: "ttl_seconds"} {
		p.do(request{method: "POST", path: path + "8000/link", body: body, token: p.secret}).wants(t, fault.InvalidRequest, field)
	}
	for _, port := range []string{"80", "99999", "1023", "x", "08000"} {
		p.do(request{method: "POST", path: path + port + "/link", body: `{}`, token: p.secret}).wants(t, fault.InvalidRequest, "port")
	}
	_, other := p.token(tokens.Spec{Role: tokens.Worker})
	p.do(request{method: "POST", path: path + "8000/link", body: `{}`, token: other}).wants(t, fault.UnknownExec, "session_id")
	id, scoped := p.token(tokens.Spec{Role: tokens.Worker, Projects: []string{"another"}})
	outside := p.record(func(r *audit.Record) {
		r.Status, r.EndedAt, r.ExitCode, r.SessionID, r.Cmd, r.RequestedBy = audit.Running, time.Time{}, nil, r.ExecID, "session", id
	})
	p.do(request{
		method: "POST", path: "/sandbox/sessions/" + outside.ExecID + "/ports/8000/link", body: `{}`, token: scoped,
	}).wants(t, fault.Forbidden, "project_id")
	header := http.Header{"Authorization": {"Bearer " + scoped}}
	if r := p.visit("GET", strings.Replace(p.host(8000), p.rec.ExecID, outside.ExecID, 1), "/", header); r.code() != fault.Forbidden {
		t.Errorf("%s", r.body)
	}
	ended := p.record(func(r *audit.Record) { r.SessionID, r.Cmd, r.RequestedBy = r.ExecID, "session", p.id })
	p.do(request{method: "POST", path: "/sandbox/sessions/" + ended.ExecID + "/ports/8000/link", body: `{}`, token: p.secret}).wants(t,
		fault.SessionEnded)
	if r := p.visit("GET", strings.Replace(p.host(8000), p.rec.ExecID, ended.ExecID, 1), "/", p.bearer()); r.code() != fault.SessionEnded {
		t.Errorf("%s", r.body)
	}
	off := start(t)
	rec := off.session()
	_, secret := off.token(tokens.Spec{Role: tokens.Admin})
	off.do(request{method: "POST", path: "/sandbox/sessions/" + rec.ExecID + "/ports/8000/link", body: `{}`, token: secret}).wants(t, fault.Unsupported)
}

func TestPortAnswersStayInTheirHost(t *testing.T) {
	t.Parallel()
	p := startPorts(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Set-Cookie"] = []string{
			"a=1; Domain=" + previewDomain + "; Path=/", "b=2; path=/;DOMAIN = preview.test ;Secure", "secbox_port=x", "__Host-secbox_session=x; Secure",
			"__host-SECBOX_x=y", "c",
		}
		w.Header().Set("Clear-Site-Data", `"cookies"`)
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("Content-Security-Policy", "default-src *")
		w.WriteHeader(418)
	})
	r := p.visit("GET", p.host(8000), "/", p.bearer())
	if got := strings.Join(r.Header["Set-Cookie"], "|"); got != "a=1; Path=/|b=2; path=/;Secure|c" {
		t.Error(got)
	}
	if r.StatusCode != 418 || r.Header.Get("Clear-Site-Data")+r.Header.Get("Alt-Svc") != "" ||
		strings.Join(r.Header["Content-Security-Policy"], "|") != "default-src *" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
}

// socket opens a WebSocket to a port.
func (p *inSession) socket(t *testing.T, header http.Header) (*websocket.Conn, error) {
	t.Helper()
	conn, resp, err := websocket.Dial(t.Context(), "ws://"+strings.TrimPrefix(p.url, "http://")+"/ws", &websocket.DialOptions{
		HTTPHeader: header, Host: p.host(8000),
	})
	if resp != nil && resp.Body != nil && err != nil {
		resp.Body.Close()
	}
	return conn, err
}

// echo sends back what a WebSocket gets.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

func TestPortWebSockets(t *testing.T) {
	t.Parallel()
	p := startPorts(t, echo)
	cookie := p.cookie(p.link(8000, `{}`))
	if _, err := p.socket(t, http.Header{"Cookie": {cookie}, "Origin": {"http://evil.example"}}); err == nil {
		t.Error("a foreign page has a connection")
	}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			header := p.bearer()
			if i%2 == 0 {
				header = http.Header{"Cookie": {cookie}, "Origin": {"http://" + p.host(8000)}}
			}
			conn, err := p.socket(t, header)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.CloseNow()
			sent := fmt.Sprintf("message %d", i)
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(sent)); err != nil {
				t.Error(err)
			}
			if _, got, err := conn.Read(t.Context()); err != nil || string(got) != sent {
				t.Errorf("%q %v", got, err)
			}
			_ = conn.Close(websocket.StatusNormalClosure, "")
		})
	}
	all.Wait()
}

// TestPortEndsWithItsToken: a WebSocket and an answer without end, when the token is revoked.
func TestPortEndsWithItsToken(t *testing.T) {
	t.Parallel()
	p := startPorts(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			echo(w, r)
			return
		}
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, func(c *api.Config) { c.TokenInterval = 10 * time.Millisecond })
	conn, err := p.socket(t, p.bearer())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	req, _ := http.NewRequestWithContext(t.Context(), "GET", p.url+"/", http.NoBody)
	req.Host, req.Header = p.host(8000), http.Header{"Cookie": {p.cookie(p.link(8000, `{}`))}}
	resp, err := plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" || err != nil { // at once, not at the end
		t.Fatalf("%q %v", line, err)
	}
	if _, err := p.tokens.Revoke(t.Context(), p.id); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Read(t.Context()); err == nil {
		t.Error("the WebSocket goes on")
	}
	if _, err := lines.ReadString('\n'); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the answer goes on: %v", err)
	}
}

// TestPortServerThatFails: no answer, nonsense, an end in the middle, a header without end.
func TestPortServerThatFails(t *testing.T) {
	t.Parallel()
	p := startPorts(t, hello)
	for text, status := range map[string]int{
		"": 502, "SSH-2.0-x\r\n": 502, "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100<<10): 502,
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf": 0,
	} {
		p.runner.dialPort = func(context.Context, string, runner.Visitor, uint16) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				_, _ = http.ReadRequest(bufio.NewReader(there))
				_, _ = io.WriteString(there, text)
				_ = there.Close()
			}()
			return here, nil
		}
		req, _ := http.NewRequestWithContext(t.Context(), "GET", p.url+"/", http.NoBody)
		req.Host, req.Header = p.host(8000), p.bearer()
		resp, err := plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if status != 0 && resp.StatusCode != status || (status == 0) != errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%.20q: %d %v", text, resp.StatusCode, err)
		}
	}
}

// TestPortOnAnotherNode: the node of the session learns the client's address, and believes only
// nodes about it.
func TestPortOnAnotherNode(t *testing.T) {
	t.Parallel()
	peers := &fakePeers{}
	p := startPorts(t, hello, func(c *api.Config) { c.Peers = peers })
	header := p.bearer()
	header.Set("Secbox-Client-Address", "10.0.0.9")
	if r := p.visit("GET", p.host(8000), "/", header); r.StatusCode != 200 || p.visitors[0].Address != "127.0.0.1" {
		t.Errorf("a client's word: %d %v", r.StatusCode, p.visitors)
	}
	header.Set("Secbox-Peer", "good")
	if r := p.visit("GET", p.host(8000), "/", header); r.StatusCode != 200 || p.visitors[1].Address != "10.0.0.9" {
		t.Errorf("a node's word: %d %v", r.StatusCode, p.visitors)
	}
	for _, got := range p.asked {
		if got.Get("Secbox-Client-Address") != "" {
			t.Errorf("%v", got)
		}
	}
	header.Del("Secbox-Peer")
	elsewhere := p.record(func(r *audit.Record) {
		r.Status, r.EndedAt, r.ExitCode, r.SessionID, r.Cmd, r.RequestedBy = audit.Running, time.Time{}, nil, r.ExecID, "session", p.id
		r.NodeID = "other"
	})
	p.visit("GET", strings.Replace(p.host(8000), p.rec.ExecID, elsewhere.ExecID, 1), "/", header)
	if len(peers.got) != 1 || peers.got[0] != "GET / 0 127.0.0.1" {
		t.Errorf("the other node got %q", peers.got)
	}
}

// TestPortInformalAnswers: answers before the answer are not passed on, so that they set no cookies
// and a client that does not read them holds nothing.
func TestPortInformalAnswers(t *testing.T) {
	t.Parallel()
	p := startPorts(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Set-Cookie"] = []string{"a=1; Domain=" + previewDomain, "secbox_port=x"}
		w.Header().Set("Clear-Site-Data", `"*"`)
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Set-Cookie")
		w.Header().Del("Clear-Site-Data")
		_, _ = io.WriteString(w, "hello")
	})
	req, _ := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			t.Errorf("%d %v", code, header)
			return nil
		},
	}), "GET", p.url+"/", http.NoBody)
	req.Host, req.Header = p.host(8000), p.bearer()
	resp, err := plain.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hello" || len(resp.Header.Values("X-Request-Id")) != 1 {
		t.Errorf("%q %v %v", body, err, resp.Header)
	}
}
