package network_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"secbox/audit"
	"secbox/network"
	"secbox/policy"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait")) // it sleeps half a second
}

// The public addresses of the fixture's names: what is dialed there is a server of the test.
var (
	goodAddr  = netip.MustParseAddr("93.184.215.14")
	otherAddr = netip.MustParseAddr("93.184.215.15")
)

// store keeps rows in memory.
type store struct {
	mu    sync.Mutex
	rows  map[int64]audit.Connection
	calls int
	err   error
}

func (s *store) SaveConnections(_ context.Context, rows []audit.Connection) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.err != nil {
		return s.err
	}
	for _, c := range rows {
		s.rows[c.Seq] = c
	}
	return nil
}

func (s *store) Connections(context.Context, string, int64, int) ([]audit.Connection, error) {
	return nil, nil
}

func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// all returns the rows in their order.
func (s *store) all() (rows []audit.Connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range int64(len(s.rows)) {
		rows = append(rows, s.rows[i+1])
	}
	return rows
}

// fixture is a way out with its servers: good.example.org and api.good.example.org have goodAddr,
// evil.example.net otherAddr. Every port leads to the servers: 443 to one with TLS.
type fixture struct {
	t       *testing.T
	store   *store
	way     *network.Way
	network *network.Network
	proxy   string // host:port

	mu       sync.Mutex
	names    map[string][]netip.Addr
	lookups  []string
	dialed   []netip.AddrPort
	seen     []string // hosts of the requests that the servers have got
	requests []string // method, URL and headers of credentials of the requests
	raw      []string // what came in other connections

	plain, secure *httptest.Server
	echo          net.Listener
	roots         *x509.CertPool
	limits        policy.NetLimits
	closed        bool
	traffic       audit.Traffic
}

var limits = policy.NetLimits{NetMaxBytes: 100 << 20, NetConnections: 64, NetMaxConnections: 1000, NetIdleMS: 60_000}

// start starts a way out to the hosts.
func start(t *testing.T, allow []string, change ...func(*network.Config, *policy.NetLimits)) *fixture {
	t.Helper()
	return startExec(t, network.Exec{Allow: allow}, change...)
}

// startExec is start for an exec without id, token and limits.
func startExec(t *testing.T, exec network.Exec, change ...func(*network.Config, *policy.NetLimits)) *fixture {
	t.Helper()
	f := &fixture{t: t, store: &store{rows: map[int64]audit.Connection{}}, limits: limits, names: map[string][]netip.Addr{
		"good.example.org": {goodAddr}, "api.good.example.org": {goodAddr}, "evil.example.net": {otherAddr},
		"inside.example.org": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("169.254.169.254")},
		"mixed.example.org":  {netip.MustParseAddr("10.0.0.1"), goodAddr},
	}}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.seen = append(f.seen, r.Host)
		f.requests = append(f.requests, r.Method+" "+r.URL.String()+" "+strings.Join(r.Header["Authorization"], "|")+" "+r.Header.Get("X-Key"))
		f.mu.Unlock()
		switch r.URL.Path {
		case "/inside":
			http.Redirect(rw, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		case "/elsewhere":
			http.Redirect(rw, r, "https://evil.example.net/", http.StatusFound)
		case "/echo": // what a redirect and other headers may send back
			for _, name := range []string{"Location", "Refresh", "Link"} {
				rw.Header().Set(name, "/to?"+r.URL.RawQuery)
			}
			rw.Header().Set("X-Echo", r.Header.Get("Authorization")+" "+r.Header.Get("X-Key"))
			code, _ := strconv.Atoi(r.URL.Query().Get("code"))
			rw.WriteHeader(code)
			if code != http.StatusNotModified {
				_, _ = io.WriteString(rw, "body of "+r.URL.RawQuery)
			}
		case "/upgrade":
			conn, _, _ := http.NewResponseController(rw).Hijack()
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(conn, conn)
		case "/broken":
			rw.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(rw, "half")
			_ = http.NewResponseController(rw).Flush()
			panic(http.ErrAbortHandler)
		case "/upload":
			n, _ := io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(rw, strings.Repeat("x", int(min(n, 1<<20))))
		case "/big":
			_, _ = io.CopyN(rw, zeros{}, 8<<20)
		default:
			_, _ = io.WriteString(rw, "hello from "+r.Host)
		}
	})
	f.plain, f.secure = httptest.NewServer(handler), httptest.NewUnstartedServer(handler)
	f.secure.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	f.secure.StartTLS()
	f.roots = x509.NewCertPool()
	f.roots.AddCert(testCA(t).leaf)
	f.echo = listen(t)
	go func() {
		for {
			conn, err := f.echo.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, "220 ready\r\n")
				buf := make([]byte, 64<<10)
				for {
					n, err := conn.Read(buf)
					f.mu.Lock()
					f.raw = append(f.raw, string(buf[:n]))
					f.mu.Unlock()
					if err != nil {
						return
					}
					_, _ = conn.Write(buf[:n])
				}
			}()
		}
	}()
	cfg := network.Config{
		Store: f.store, Connections: 1000, PerToken: 500, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lookups = append(f.lookups, name)
			return f.names[name], nil
		},
		Dial: func(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
			f.mu.Lock()
			f.dialed = append(f.dialed, address)
			f.mu.Unlock()
			to := f.plain.Listener.Addr()
			switch address.Port() {
			case 443:
				to = f.secure.Listener.Addr()
			case 25:
				to = f.echo.Addr()
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", to.String())
		},
	}
	for _, c := range change {
		c(&cfg, &f.limits)
	}
	f.network = network.New(cfg)
	exec.ID, exec.Token, exec.Limits = "exec-1", "t", f.limits
	f.way = f.network.Open(exec)
	ctx, end := context.WithCancel(context.Background())
	l := listen(t)
	f.proxy = l.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { f.way.Serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		end()
		serving.Wait()
		f.close()
		_ = f.echo.Close()
		f.plain.Close()
		f.secure.Close()
	})
	return f
}

// close ends the way out once.
func (f *fixture) close() audit.Traffic {
	if !f.closed {
		f.closed = true
		f.traffic = f.way.Close()
	}
	return f.traffic
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// client is an HTTP client that uses the proxy; scheme http or socks5.
func (f *fixture) client(scheme string) *http.Client {
	transport := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: scheme, Host: f.proxy}),
		TLSClientConfig: &tls.Config{RootCAs: f.roots},
	}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// get returns the status and the body of an answer, or the error.
func (f *fixture) get(scheme, url string) (int, string, error) {
	f.t.Helper()
	resp, err := f.client(scheme).Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// say sends bytes to the proxy and returns all that comes back until it ends the connection.
func (f *fixture) say(parts ...string) string {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.proxy)
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	var all strings.Builder
	buf := make([]byte, 64<<10)
	for i, part := range parts {
		if _, err := io.WriteString(conn, part); err != nil {
			break
		}
		if i < len(parts)-1 { // the answer to this part comes first
			n, _ := conn.Read(buf)
			all.Write(buf[:n])
		}
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	rest, _ := io.ReadAll(conn)
	return all.String() + string(rest)
}

// reached returns the hosts of requests that have reached a server, and what raw connections have
// carried.
func (f *fixture) reached() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Concat(f.seen, f.raw)
}
