package ports_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"secbox/api/ports"
	"secbox/audit/hmackey"
)

const (
	domain  = ports.Domain("preview.example.net")
	session = "019aa4b6-7c1e-7d35-9a52-0f4f3a1b2c3d"
)

func TestHostForms(t *testing.T) {
	t.Parallel()
	good := ports.Address{Session: session, Port: 8000}
	for host, want := range map[string]struct {
		at         ports.Address
		within, ok bool
	}{
		"8000-" + session + ".preview.example.net":                  {good, true, true},
		"8000-" + session + ".preview.example.net:8003":             {good, true, true},
		strings.ToUpper("8000-" + session + ".preview.example.net"): {good, true, true},
		"8000-" + session + ".preview.example.net.":                 {within: true},
		"8000-" + session + ".preview.example.net..:80":             {within: true},
		"8000-" + session + ".preview.example.net:":                 {within: true},
		"8000-" + session + ".preview.example.net:x":                {within: true},
		"8000-" + session + ".preview.example.net:99999":            {within: true},
		"0-" + session + ".preview.example.net":                     {within: true},
		"80-" + session + ".preview.example.net":                    {within: true},
		"1023-" + session + ".preview.example.net":                  {at: ports.Address{Session: session, Port: 1023}, within: true},
		"08000-" + session + ".preview.example.net":                 {at: good, within: true},
		"99999-" + session + ".preview.example.net":                 {at: ports.Address{Session: session, Port: 65535}, within: true},
		"a.8000-" + session + ".preview.example.net":                {within: true},
		"x@8000-" + session + ".preview.example.net":                {within: true},
		"8000-.preview.example.net":                                 {within: true},
		"8000-other.preview.example.net":                            {within: true},
		"-8000-" + session + ".preview.example.net":                 {within: true},
		"preview.example.net":                                       {within: true},
		"PREVIEW.example.net.:80":                                   {within: true},
		".preview.example.net":                                      {within: true},
		"[8000-" + session + ".preview.example.net]":                {within: true},
		"8000-" + session + ".xpreview.example.net":                 {},
		"8000-" + session + ".preview.example.net.evil.org":         {},
		"example.net":  {},
		"127.0.0.1:80": {},
		"[::1]:80":     {},
		"::1":          {},
		"":             {},
	} {
		at, within, ok := domain.Find(host)
		if within != want.within || ok != want.ok || ok && at != want.at {
			t.Errorf("%q: %v %v %v", host, at, within, ok)
		}
	}
	if host := domain.Host(good); host != "8000-"+session+".preview.example.net" {
		t.Error(host)
	}
}

func TestLinksAreBound(t *testing.T) {
	t.Parallel()
	key, now := hmackey.New([]byte("key")), time.Unix(1_000_000, 0)
	at := ports.Address{Session: session, Port: 8000}
	link := ports.Link{Address: at, ID: "ID", Token: "the.token", Expires: now.Add(time.Minute).UTC()}
	text := link.Text(key)
	if got, ok := ports.Open(key, at, text, now); !ok || got != link {
		t.Errorf("%+v %v", got, ok)
	}
	refuse := func(name string, key hmackey.Key, at ports.Address, text string, now time.Time) {
		if _, ok := ports.Open(key, at, text, now); ok {
			t.Errorf("%s: it is taken", name)
		}
	}
	refuse("another port", key, ports.Address{Session: session, Port: 8001}, text, now)
	refuse("another session", key, ports.Address{Session: strings.Replace(session, "019", "018", 1), Port: 8000}, text, now)
	refuse("another key", hmackey.New([]byte("other")), at, text, now)
	refuse("expired", key, at, text, link.Expires)
	refuse("another token", key, at, "x"+text, now)
	refuse("a longer life", key, at, strings.Replace(text, "1000060", "1000061", 1), now)
	refuse("no signature", key, at, text[:strings.LastIndexByte(text, '.')+1], now)
	for i := range text {
		if text[i] != '0' {
			refuse("changed", key, at, text[:i]+"0"+text[i+1:], now)
		}
	}
	for _, bad := range []string{"", ".", "..", "...", strings.Repeat("a", 1000)} {
		refuse(bad, key, at, bad, now)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add("token.ID.1000060.abcd", "8000-"+session+".preview.example.net", "a=1&secbox_link=x", "//x")
	f.Fuzz(func(t *testing.T, text, host, query, path string) {
		if _, ok := ports.Open(hmackey.New([]byte("key")), ports.Address{Session: session, Port: 8000}, text, time.Unix(0, 0)); ok {
			t.Errorf("%q is taken", text)
		}
		if at, within, ok := domain.Find(host); ok && (!within || at.Port < ports.MinPort || len(at.Session) != len(session)) {
			t.Errorf("%q: %v", host, at)
		}
		_, rest := ports.Take(query)
		if strings.HasPrefix(rest, ports.Param+"=") || strings.Contains(rest, "&"+ports.Param+"=") {
			t.Errorf("%q", rest)
		}
		if target := ports.Target(path, ""); !strings.HasPrefix(target, "/") || len(target) > 1 && strings.ContainsRune(`/\`, rune(target[1])) {
			t.Errorf("%q leads to %q", path, target)
		}
	})
}

func TestForeignPagesAreRefused(t *testing.T) {
	t.Parallel()
	own, at := "8000-"+session+".preview.example.net", ports.Address{Session: session, Port: 8000}
	other := "8000-" + strings.Replace(session, "019", "018", 1) + ".preview.example.net"
	for _, c := range []struct {
		method, headers string
		secure, want    bool
	}{
		{"GET", "", false, true},
		{"POST", "Origin: http://" + own, false, true},
		{"POST", "Origin: http://3000-" + session + ".preview.example.net:8003", false, true},
		{"POST", "Origin: https://" + own, true, true},
		{"POST", "Origin: http://" + own, true, false},
		{"POST", "Origin: http://" + other, false, false},
		{"GET", "Origin: http://" + other + "; Sec-Fetch-Site: same-site; Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: document", false, false},
		{"POST", "Origin: null", false, false},
		{"POST", "Origin: http://localhost:8003", false, false},
		{"GET", "Sec-Fetch-Site: none", false, true},
		{"GET", "Sec-Fetch-Site: same-origin", false, true},
		{"GET", "Sec-Fetch-Site: same-site", false, false},
		{"GET", "Sec-Fetch-Site: same-site; Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: iframe", false, false},
		{"GET", "Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: document", false, true},
		{"POST", "Sec-Fetch-Site: cross-site; Sec-Fetch-Mode: navigate; Sec-Fetch-Dest: document", false, false},
	} {
		r := httptest.NewRequest(c.method, "http://"+own+"/", http.NoBody)
		for header := range strings.SplitSeq(c.headers, "; ") {
			if name, value, ok := strings.Cut(header, ": "); ok {
				r.Header.Set(name, value)
			}
		}
		if got := domain.FromOwnPage(r, at, c.secure); got != c.want {
			t.Errorf("%s %s: %v", c.method, c.headers, got)
		}
	}
}

// TestClientsThatTakeNoPart: an upgraded connection to a client that does not read, says nothing,
// or whose request has ended, ends.
func TestClientsThatTakeNoPart(t *testing.T) {
	t.Parallel()
	short, long := time.Millisecond, time.Hour
	write := func(conn net.Conn) (err error) {
		for err == nil {
			_, err = conn.Write(make([]byte, 64<<10))
		}
		return err
	}
	read := func(conn net.Conn) error {
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	for name, c := range map[string]struct {
		pace     ports.Pace
		canceled bool
		use      func(net.Conn) error
		want     error
	}{
		"does not read":  {ports.Pace{Stall: short, Idle: long}, false, write, os.ErrDeadlineExceeded},
		"says nothing":   {ports.Pace{Stall: long, Idle: short}, false, read, os.ErrDeadlineExceeded},
		"the end, read":  {ports.Pace{Stall: long, Idle: long}, true, read, net.ErrClosed},
		"the end, write": {ports.Pace{Stall: long, Idle: long}, true, write, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(r.Context())
				defer cancel()
				conn, _, err := http.NewResponseController(ports.Paced(ctx, w, c.pace)).Hijack()
				if err != nil {
					ended <- err
					return
				}
				defer conn.Close()
				if c.canceled {
					cancel()
				}
				ended <- c.use(conn)
			}))
			defer server.Close()
			client, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, _ = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if err := <-ended; !errors.Is(err, c.want) {
				t.Error(err)
			}
		})
	}
}

// TestServerThatNeverAnswers: the request ends, and its connection.
func TestServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	closed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, there)
		closed <- err
	}()
	r := httptest.NewRequest(http.MethodGet, "http://"+domain.Host(ports.Address{Session: session, Port: 8000})+"/", http.NoBody)
	w := httptest.NewRecorder()
	err := ports.NewProxy(time.Millisecond).Serve(w, r, ports.Request{Dial: func(context.Context) (net.Conn, error) { return here, nil }})
	if !errors.Is(err, ports.ErrNoAnswer) || w.Body.Len() > 0 {
		t.Errorf("%v %q", err, w.Body)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
