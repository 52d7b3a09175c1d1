package webhooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"golang.org/x/net/dns/dnsmessage"

	"secbox/audit"
	"secbox/audit/hmackey"
)

// memory is a Store in memory, whose clock is time.Now.
type memory struct {
	Store   // of calls that no test makes
	mu      sync.Mutex
	all     []*Delivery
	secrets map[string][][]byte // by token

	forgotten int           // calls of ForgetOld
	ended     chan Delivery // what Finish stores; nil: not told
}

func (m *memory) due(execID, url string) { m.dueOf("tok", execID, url) }

func (m *memory) dueOf(token, execID, url string) {
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, &Delivery{ExecID: execID, RequestedBy: token, Host: host, URL: url, State: Due})
}

// state returns the state of a delivery.
func (m *memory) state(execID string) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.all {
		if d.ExecID == execID {
			return d.State
		}
	}
	return ""
}

func (m *memory) Tokens(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var tokens []string
	for _, d := range m.all {
		if d.State == Due && !d.NextAt.After(time.Now()) && !slices.Contains(tokens, d.RequestedBy) {
			tokens = append(tokens, d.RequestedBy)
		}
	}
	return tokens, nil
}

func (m *memory) Take(_ context.Context, token string, except []string, lease time.Duration) (*Delivery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first *Delivery
	for _, d := range m.all {
		if d.State == Due && d.RequestedBy == token && !slices.Contains(except, d.Host) && !d.NextAt.After(time.Now()) && (first == nil ||
			d.NextAt.Before(first.NextAt)) {
			first = d
		}
	}
	if first == nil {
		return nil, nil
	}
	first.Attempts++
	first.NextAt = time.Now().Add(lease)
	taken := *first
	return &taken, nil
}

func (m *memory) Finish(_ context.Context, done Delivery, delay time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.all {
		if d.ExecID == done.ExecID && d.Attempts == done.Attempts && d.State == Due {
			d.State, d.URL, d.Tries, d.NextAt = done.State, done.URL, done.Tries, time.Now().Add(delay)
			if m.ended != nil {
				m.ended <- *d
			}
		}
	}
	return nil
}

func (m *memory) ForgetOld(context.Context, time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgotten++
	return nil
}

func (m *memory) SetSecret(_ context.Context, token string, sealed []byte, _ time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.secrets == nil {
		m.secrets = map[string][][]byte{}
	}
	m.secrets[token] = append([][]byte{sealed}, m.secrets[token]...)
	return nil
}

func (m *memory) Secrets(_ context.Context, token string) (copies [][]byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, sealed := range m.secrets[token] {
		copies = append(copies, slices.Clone(sealed)) // Unseal works in place
	}
	return copies, nil
}

func (m *memory) Get(_ context.Context, execID string) (audit.Record, error) {
	return audit.Record{ExecID: execID, Status: audit.Succeeded}, nil
}

// allowing allows the hosts of the tests, on this machine.
func allowing(urls ...string) Policy {
	p := Policy{Allow: []string{"*.example"}, AllowHTTP: true, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, url := range urls {
		p.Allow = append(p.Allow, strings.TrimPrefix(url, "http://"))
	}
	return p
}

// deliverer makes a Deliverer, and a secret of the token.
func deliverer(t *testing.T, m *memory, p Policy) (*Deliverer, string) {
	t.Helper()
	secrets := Secrets{Store: m, Key: hmackey.New([]byte("key"))}
	secret, err := secrets.create(t.Context(), "tok")
	if err != nil {
		t.Fatal(err)
	}
	return NewDeliverer(Config{
		Policy: p, Store: m, Secrets: secrets, Records: m, Body: func(r audit.Record) []byte { return []byte(`{"exec":"` + r.ExecID + `"}`) },
		Logger: slog.New(slog.DiscardHandler),
	}), secret
}

// run runs a Deliverer until stop.
func run(t *testing.T, d *Deliverer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// TestDeliveriesAreSigned: a service verifies a delivery with the library of Standard Webhooks,
// with the new secret and, after a rotation, the old one.
func TestDeliveriesAreSigned(t *testing.T) {
	t.Parallel()
	type got struct {
		header http.Header
		body   []byte
		query  string
	}
	requests := make(chan got, 10)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- got{r.Header, body, r.URL.RawQuery}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer service.Close()
	m := &memory{ended: make(chan Delivery, 10)}
	d, first := deliverer(t, m, allowing(service.URL))
	second, err := d.cfg.Secrets.create(t.Context(), "tok")
	if err != nil {
		t.Fatal(err)
	}
	m.due("e1", service.URL+"/hook?key=hunter2")
	stored := d.cfg.Secrets.sealQuery("e1", m.all[0].URL)
	m.all[0].URL = stored
	defer run(t, d)()
	r := <-requests
	if r.query != "key=hunter2" {
		t.Errorf("the query is %q", r.query)
	}
	if string(r.body) != `{"exec":"e1"}` || r.header.Get("webhook-id") != "msg_e1" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v %s", r.header, r.body)
	}
	for _, secret := range []string{first, second} {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify(r.body, r.header); err != nil {
			t.Errorf("%s: %v", secret, err)
		}
		if hook.Verify([]byte(`{"exec":"e2"}`), r.header) == nil {
			t.Error("another body is verified")
		}
	}
	if e := <-m.ended; e.State != Delivered || e.URL != service.URL+"/hook" || len(e.Tries) != 1 || e.Tries[0].Status != 204 || e.Tries[0].Error != "" {
		t.Errorf("%+v", e)
	}
	if delivered, refused, gaveUp := d.Counts(); delivered != 1 || refused != 0 || gaveUp != 0 {
		t.Error(delivered, refused, gaveUp)
	}
	if strings.Contains(first, second) || !strings.HasPrefix(first, "whsec_") {
		t.Error(first, second)
	}
}

// TestHostileServices: however a service answers, the request ends, is followed nowhere, and its
// error is ours.
func TestHostileServices(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect is followed") }))
	defer other.Close()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of the connection only after the body
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/huge":
			_, err := io.Copy(w, neverEnds{})
			if err == nil {
				t.Error("all of an answer without end is read")
			}
		case "/headers":
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		case "/hangs":
			<-r.Context().Done()
		case "/slow":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "/garbage":
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("secret garbage\r\n\r\n"))
				_ = conn.Close()
			}
		case "/gone":
			w.WriteHeader(http.StatusGone)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer service.Close()
	for path, want := range map[string]struct {
		status int
		says   string
	}{
		"/redirect": {307, "redirects are not followed"},
		"/huge":     {200, ""},
		"/slow":     {200, ""},
		"/headers":  {0, "no valid answer"},
		"/garbage":  {0, "no valid answer"},
		"/hangs":    {0, "in time"},
		"/gone":     {410, "did not take it"},
		"/error":    {500, "did not take it"},
	} {
		client := newClient(allowing(service.URL), nil)
		client.Timeout = time.Second
		status, err := send(t.Context(), client, service.URL+path+"?key=hunter2", http.Header{}, []byte("{}"))
		if status != want.status || (err == nil) != (want.says == "") || err != nil && !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %d, %v", path, status, err)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "garbage")) {
			t.Errorf("%s: the error quotes what it must not: %v", path, err)
		}
		client.CloseIdleConnections()
	}
	if _, err := send(t.Context(), newClient(Policy{}, nil), service.URL, http.Header{}, nil); !errors.Is(err, errNotPublic) {
		t.Errorf("this machine is dialled: %v", err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if _, err := send(t.Context(), newClient(allowing(), nil), "http://"+closed.Addr().String(), http.Header{}, nil); err == nil ||
		!strings.Contains(err.Error(), "no connection") {
		t.Error(err)
	}
}

// TestNamesThatChange: the address of a name is checked at each connection, so a name that led to
// an allowed address when the exec was posted, and leads to this machine now, is not called.
func TestNamesThatChange(t *testing.T) {
	t.Parallel()
	var called atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	defer service.Close()
	_, port, err := net.SplitHostPort(service.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p := Policy{Allow: []string{"a.example:" + port}, AllowHTTP: true, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	if _, err := p.Check("http://a.example:" + port); err != nil {
		t.Fatal(err)
	}
	names := nameServer(t, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, []netip.Addr{netip.MustParseAddr("127.0.0.2")},
		[]netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")})
	dialer := newDialer(p)
	dialer.Resolver = names
	client := newClient(p, nil)
	client.Transport.(*http.Transport).DialContext = dialer.DialContext
	client.Transport.(*http.Transport).DisableKeepAlives = true
	for i, want := range []bool{true, false, true} { // of several addresses, the allowed one is called
		_, err := send(t.Context(), client, "http://a.example:"+port, http.Header{}, nil)
		if (err == nil) != want || !want && !errors.Is(err, errNotPublic) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if n := called.Load(); n != 2 {
		t.Errorf("the service was called %d times", n)
	}
}

// nameServer resolves every name to the next of the answers.
func nameServer(t *testing.T, answers ...[]netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	go func() {
		defer close(ended)
		buffer := make([]byte, 512)
		for next := 0; ; {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(buffer[:n]); err != nil || len(m.Questions) != 1 {
				t.Errorf("a question: %v", err)
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			if q.Type == dnsmessage.TypeA {
				for _, addr := range answers[min(next, len(answers)-1)] {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
						Body:   &dnsmessage.AResource{A: addr.As4()},
					})
				}
				next++
			}
			packed, err := m.Pack()
			if err == nil {
				_, err = conn.WriteTo(packed, from)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { return len(p), nil }

// answers is a http.RoundTripper.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int) (*http.Response, error) {
	return &http.Response{StatusCode: status, Body: http.NoBody, Header: http.Header{}}, nil
}

// TestTriesAreRepeatedForADay: the pauses grow, each request has the same id, and then the delivery
// is given up. A 410 ends it at once.
func TestTriesAreRepeatedForADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		d, _ := deliverer(t, m, allowing())
		var mu sync.Mutex
		var times []time.Time
		d.client.Transport = answers(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Host == "gone.example" {
				return answer(http.StatusGone)
			}
			if id := r.Header.Get("webhook-id"); id != "msg_e1" {
				t.Errorf("the id is %q", id)
			}
			times = append(times, time.Now())
			return answer(http.StatusServiceUnavailable)
		})
		m.due("e1", "http://a.example/")
		m.due("e2", "http://gone.example/")
		stop := run(t, d)
		begin := time.Now()
		time.Sleep(48 * time.Hour)
		stop()
		if m.forgotten < 48 {
			t.Errorf("old callbacks without an exec were forgotten %d times in two days", m.forgotten)
		}
		if len(times) != len(pauses)+1 {
			t.Fatalf("%d tries", len(times))
		}
		for i, want := range pauses {
			if got := times[i+1].Sub(times[i]); got < want*9/10 || got > want*11/10+2*poll {
				t.Errorf("the pause %d is %v, want %v", i, got, want)
			}
		}
		if whole := times[len(times)-1].Sub(begin); whole < 20*time.Hour || whole > 27*time.Hour {
			t.Errorf("it is given up after %v", whole)
		}
		a, gone := m.all[0], m.all[1]
		if a.State != Failed || a.Attempts != len(times) || len(a.Tries) != len(times) || a.Tries[0].Status != 503 {
			t.Errorf("%+v", a)
		}
		if gone.State != Failed || gone.Attempts != 1 {
			t.Errorf("410: %+v", gone)
		}
		if _, refused, gaveUp := d.Counts(); refused != int64(len(times))+1 || gaveUp != 2 {
			t.Error(refused, gaveUp)
		}
	})
}

// hanging is a http.RoundTripper of services that do not answer, except those that live, and counts
// requests at once: all, by host, by token and by both. The path of an address is the token that
// has it.
type hanging struct {
	live func(*http.Request) bool

	mu        sync.Mutex
	now, most map[string]int
}

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	token := strings.Trim(r.URL.Path, "/")
	keys := []string{"all", r.URL.Host, token, token + "@" + r.URL.Host}
	h.count(keys, 1)
	defer h.count(keys, -1)
	if h.live(r) {
		return answer(http.StatusOK)
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func (h *hanging) count(keys []string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == nil {
		h.now, h.most = map[string]int{}, map[string]int{}
	}
	for _, key := range keys {
		h.now[key] += n
		h.most[key] = max(h.most[key], h.now[key])
	}
}

// TestDeadHostsDelayNoOthers: hosts that do not answer have hundreds of deliveries, and deliveries
// to another host of the same token are made at once. Only if there are so many such hosts that the
// token has no place left, they wait for the first one.
func TestDeadHostsDelayNoOthers(t *testing.T) {
	t.Parallel()
	for hosts, after := range map[int]time.Duration{3: time.Second, 30: sendTimeout + poll} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{}
			d, _ := deliverer(t, m, allowing())
			services := &hanging{live: func(r *http.Request) bool { return r.URL.Host == "live.example" }}
			d.client.Transport = services
			for i := range 300 {
				m.due(fmt.Sprint("d", i), fmt.Sprintf("http://dead%d.example/tok", i%hosts))
			}
			for i := range 20 {
				m.due(fmt.Sprint("l", i), "http://live.example/tok")
			}
			stop := run(t, d)
			time.Sleep(after)
			stop()
			for _, x := range m.all {
				if x.Host == "live.example" && x.State != Delivered {
					t.Errorf("%d hosts: %+v waits for others", hosts, x)
				}
			}
			if hosts == 30 && services.most["all"] != perToken || hosts == 3 && services.most["dead0.example"] != perTokenHost {
				t.Errorf("%d hosts, requests at once: %v", hosts, services.most)
			}
		})
	}
}

// TestTokensDelayNoOthers: one token has a thousand deliveries to services that do not answer, and
// deliveries of other tokens are made at once, whether they are due at the same time or later, also
// if the services are on the same host.
func TestTokensDelayNoOthers(t *testing.T) {
	t.Parallel()
	for name, dead := range map[string]func(i int) string{
		"hosts":       func(i int) string { return fmt.Sprintf("http://dead%d.example/busy", i) },
		"the host":    func(int) string { return "http://live.example/busy" },
		"a few hosts": func(i int) string { return fmt.Sprintf("http://dead%d.example/busy", i%30) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &memory{}
				d, _ := deliverer(t, m, allowing())
				for _, token := range []string{"busy", "other", "third"} {
					if _, err := d.cfg.Secrets.create(t.Context(), token); err != nil {
						t.Fatal(err)
					}
				}
				services := &hanging{live: func(r *http.Request) bool { return r.URL.Path != "/busy" }}
				d.client.Transport = services
				for i := range 1000 {
					m.dueOf("busy", fmt.Sprint("d", i), dead(i))
				}
				m.dueOf("other", "beside", "http://live.example/other")
				defer run(t, d)()
				synctest.Wait()
				if got := m.state("beside"); got != Delivered {
					t.Errorf("a delivery of another token is %s", got)
				}
				for i := range 20 { // in this time tries end, and others begin
					time.Sleep(5 * time.Second)
					m.dueOf("other", fmt.Sprint("later", i), "http://live.example/other")
					m.dueOf("third", fmt.Sprint("third", i), "http://live.example/third")
					time.Sleep(poll)
					synctest.Wait()
					if a, b := m.state(fmt.Sprint("later", i)), m.state(fmt.Sprint("third", i)); a != Delivered || b != Delivered {
						t.Errorf("later deliveries of other tokens are %s and %s", a, b)
					}
				}
				services.mu.Lock()
				defer services.mu.Unlock()
				for key, n := range services.most {
					most := perHost
					switch {
					case key == "all":
						most = atOnce
					case strings.Contains(key, "@"):
						most = perTokenHost
					case !strings.Contains(key, "."):
						most = perToken
					}
					if n > most {
						t.Errorf("%s has %d requests at once, more than %d", key, n, most)
					}
				}
				if want := map[string]int{"hosts": perToken, "the host": perTokenHost, "a few hosts": perToken}[name]; services.most["busy"] != want {
					t.Errorf("the busy token has %d requests at once, want %d", services.most["busy"], want)
				}
			})
		})
	}
}

// TestDiesInTheMiddle: a node that dies during a try leaves the delivery to others, after the lease
// and with the same id.
func TestDiesInTheMiddle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		first, _ := deliverer(t, m, allowing())
		second, _ := deliverer(t, m, allowing())
		var mu sync.Mutex
		var ids []string
		first.client.Transport = answers(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			ids = append(ids, r.Header.Get("webhook-id"))
			mu.Unlock()
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		second.client.Transport = answers(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, r.Header.Get("webhook-id"))
			return answer(http.StatusOK)
		})
		m.due("e1", "http://a.example/")
		stop := run(t, first)
		time.Sleep(time.Second)
		stop()
		stop = run(t, second)
		time.Sleep(lease / 2)
		mu.Lock()
		if len(ids) != 1 {
			t.Errorf("during the lease another node has tried: %v", ids)
		}
		mu.Unlock()
		time.Sleep(lease)
		stop()
		if !slices.Equal(ids, []string{"msg_e1", "msg_e1"}) || m.all[0].State != Delivered || m.all[0].Attempts != 2 {
			t.Errorf("%v %+v", ids, m.all[0])
		}
	})
}
