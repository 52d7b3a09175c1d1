package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"

	"secbox/settings"
)

// upgrading is a server of HTTP whose port 8000 also echoes the bytes of an upgraded connection.
const upgrading = `
import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade"):
            self.send_response(101)
            self.send_header("Upgrade", "echo")
            self.send_header("Connection", "Upgrade")
            self.end_headers()
            while b := self.rfile.read1(4096): self.wfile.write(b); self.wfile.flush()
            self.close_connection = True
            return
        body = (self.path + " " + str(self.headers.get("Cookie")) + " " + self.headers["Host"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "app=1; Domain=preview.test")
        self.end_headers()
        self.wfile.write(body)
class S(http.server.ThreadingHTTPServer):
    request_queue_size = 128
s = S(("127.0.0.1", 8000), H)
print("up", flush=True)
s.serve_forever()
`

// TestPorts: a browser with a link reaches the server in its session, and no other; each visit is
// on record, and ends with the session.
func TestPorts(t *testing.T) {
	t.Parallel()
	s := start(t, func(s *settings.Settings) { s.Sandbox.PreviewDomain = "preview.test" })
	box, other := s.startSession("ports"), s.startSession("ports")
	a := box.try(object{"code": upgrading, "kind": "python"}, "background", true)
	if a.Code != http.StatusAccepted {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	server := a.json(t).str("exec_id")
	eventually(t, "the server is up", func() bool {
		out := s.send(http.MethodGet, "/sandbox/execs/"+server+"/stdout", nil)
		return strings.Contains(string(out.Body), "up")
	})
	link := func(of session, port int) *url.URL {
		t.Helper()
		made := s.send(http.MethodPost, fmt.Sprintf("/sandbox/sessions/%s/ports/%d/link", of.id, port), object{"ttl_seconds": 600})
		if made.Code != http.StatusCreated {
			t.Fatalf("%d %s", made.Code, made.Body)
		}
		u, err := url.Parse(made.json(t).str("url"))
		if err != nil || !strings.HasSuffix(u.Hostname(), of.id+".preview.test") {
			t.Fatalf("%v %v", u, err)
		}
		return u
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(s.url, "http://"))
		},
	}}
	t.Cleanup(browser.CloseIdleConnections)
	visit := func(address string) (code int, body string) {
		t.Helper()
		resp, err := browser.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		content, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(content)
	}

	good := link(box, 8000)
	page := good.JoinPath("a")
	if code, body := visit(page.String()); code != 200 || body != "/a None "+good.Host {
		t.Fatalf("%d %q", code, body)
	}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if code, body := visit(fmt.Sprintf("http://%s/%d", good.Host, i)); code != 200 || body != fmt.Sprintf("/%d app=1 %s", i, good.Host) {
				t.Errorf("%d %q", code, body)
			}
		})
	}
	all.Wait()
	if code, body := visit(link(box, 9000).String()); code != 502 || !strings.Contains(body, "nothing listens on port 9000") {
		t.Errorf("%d %s", code, body)
	}
	elsewhere := *good
	elsewhere.Host = strings.Replace(good.Host, box.id, other.id, 1)
	if code, body := visit(elsewhere.String()); code != 401 {
		t.Errorf("another session, with the link: %d %s", code, body)
	}

	// An upgraded connection, and the end of the session in the middle of it.
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /up?%s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", good.RawQuery, good.Host)
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v %v", resp, err)
	}
	defer resp.Body.Close()
	fmt.Fprintln(conn, "hello")
	if line, err := from.ReadString('\n'); line != "hello\n" || err != nil {
		t.Errorf("%q %v", line, err)
	}
	box.end()
	if _, err := from.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
	record := s.get("/sandbox/execs/" + box.id)
	record.wants(t, object{"net_connections": 2.0, "net_denied": 0.0})
	rows := s.get("/sandbox/execs/" + box.id + "/connections").list("items")
	if len(rows) != 2 || record.str("net_digest") == "" || record.num("net_bytes_out") == 0 {
		t.Fatalf("%v %v", rows, record)
	}
	rows[0].wants(t, object{
		"protocol": "port", "port": 8000.0, "host": "loopback", "address": "127.0.0.1", "end": "exec_ended", "allowed": true,
		"bytes_out": record.num("net_bytes_out"), "bytes_in": record.num("net_bytes_in"),
	})
	if events := s.get("/audit/events?kind=port_linked&subject=" + box.id).list("items"); len(events) != 2 || rows[0].str("rule") == "" {
		t.Errorf("%v", events)
	}
	if code, body := visit(good.String()); code != 409 || !strings.Contains(body, "session_ended") {
		t.Errorf("%d %s", code, body)
	}
}
