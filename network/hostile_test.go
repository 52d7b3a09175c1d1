package network_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/network"
	"secbox/policy"
)

// helloOf returns the bytes of a ClientHello.
func helloOf(name string) string {
	sent := &sentBytes{}
	_ = tls.Client(sent, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}).Handshake()
	return sent.String()
}

// sentBytes is a connection that keeps what is written, and is never read from.
type sentBytes struct {
	net.Conn
	bytes.Buffer
}

func (s *sentBytes) Read([]byte) (int, error)    { return 0, io.EOF }
func (s *sentBytes) Write(p []byte) (int, error) { return s.Buffer.Write(p) }
func (s *sentBytes) Close() error                { return nil }
func (s *sentBytes) SetDeadline(time.Time) error { return nil }

// records returns a TLS record as records with n bytes each.
func records(record string, n int) string {
	var b strings.Builder
	for chunk := range slices.Chunk([]byte(record[5:]), n) {
		b.WriteString(record[:3])
		b.Write([]byte{0, byte(len(chunk))})
		b.Write(chunk)
	}
	return b.String()
}

// TestNotations: no other notation of a request or a ClientHello gets the name of another host
// through a tunnel.
func TestNotations(t *testing.T) {
	t.Parallel()
	plain, secure := "CONNECT good.example.org:80 HTTP/1.1\r\n\r\n", "CONNECT good.example.org:443 HTTP/1.1\r\n\r\n"
	const host = "\r\nHost: evil.example.net\r\n\r\n"
	for name, parts := range map[string][]string{
		"a tab":                  {plain, "GET /\tHTTP/1.1" + host},
		"a vertical tab":         {plain, "GET /\vHTTP/1.1" + host},
		"a form feed":            {plain, "\fGET / HTTP/1.1" + host},
		"a file separator":       {plain, "GET\x1c/\x1cHTTP/1.1" + host},
		"lower case":             {plain, "get / http/1.1" + host},
		"spaces first":           {plain, "  \r\n\r\n GET / HTTP/1.1" + host},
		"bare LF":                {plain, "GET / HTTP/1.1\nHost: evil.example.net\n\n"},
		"a folded Host":          {plain, "GET / HTTP/1.1\r\nHost: good.example.org\r\n evil.example.net\r\n\r\n"},
		"two Hosts":              {plain, "GET / HTTP/1.1\r\nHost: good.example.org" + host},
		"no Host":                {plain, "GET / HTTP/1.1\r\n\r\n"},
		"HTTP/1.0":               {plain, "GET / HTTP/1.0" + host},
		"an authority":           {plain, "GET / HTTP/1.1\r\n:authority: evil.example.net" + host},
		"a space before a colon": {plain, "GET / HTTP/1.1\r\nHost : evil.example.net\r\nHost: good.example.org\r\n\r\n"},
		"a control character":    {plain, "GET /\x01 HTTP/1.1" + host},
		"a line of spaces":       {plain, "\v\r\nGET / HTTP/1.1" + host},
		"a NUL":                  {plain, "GET / HTTP/1.1\r\nX: \x00\r\nHost: evil.example.net\r\n\r\n"},
		"an unknown encoding":    {plain, "POST / HTTP/1.1\r\nHost: good.example.org\r\nTransfer-Encoding: xchunked\r\n\r\nGET / HTTP/1.1" + host},
		"encodings":              {plain, "POST / HTTP/1.1\r\nHost: good.example.org\r\nTransfer-Encoding: chunked, identity\r\n\r\nGET / HTTP/1.1" + host},
		"TLS on the web port":    {plain, helloOf("evil.example.net")},
		"TLS in small records":   {secure, records(helloOf("evil.example.net"), 1)},
		"TLS after an alert":     {secure, "\x15\x03\x01\x00\x02\x01\x5a" + helloOf("evil.example.net")},
		"TLS after a CCS":        {secure, "\x14\x03\x03\x00\x01\x01" + helloOf("evil.example.net")},
		"SSLv2":                  {secure, "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10" + strings.Repeat("\x00", 37)},
		"half a hello":           {secure, helloOf("evil.example.net")[:40]},
		"an empty record":        {secure, "\x16\x03\x01\x00\x00" + helloOf("evil.example.net")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []string{"good.example.org"})
			got := f.say(parts...)
			f.close()
			for _, host := range f.reached() {
				t.Errorf("%q has reached a server: %q", host, got)
			}
			for _, row := range f.store.all() {
				if row.BytesOut > 0 {
					t.Errorf("%+v %q", row, got)
				}
			}
		})
	}
}

// withEarlyData adds the extension early_data to a ClientHello in one record.
func withEarlyData(hello string) string {
	b := []byte(hello + "\x00\x2a\x00\x00")
	at := 5 + 4 + 2 + 32
	at += 1 + int(b[at])                                          // session
	at += 2 + int(binary.BigEndian.Uint16(b[at:]))                // cipher suites
	at += 1 + int(b[at])                                          // compression
	for _, size := range [][]byte{b[3:5], b[7:9], b[at : at+2]} { // of the record, the message, the extensions
		binary.BigEndian.PutUint16(size, binary.BigEndian.Uint16(size)+4)
	}
	return string(b)
}

// withVersion replaces the version of a ClientHello, which hosts ignore.
func withVersion(hello string) string { return hello[:9] + "\x7f\x7f" + hello[11:] }

// TestSecondHello: a further ClientHello, for which a host may ask, must name the tunnel's host,
// too.
func TestSecondHello(t *testing.T) {
	t.Parallel()
	const (
		tunnel = "CONNECT good.example.org:25 HTTP/1.1\r\n\r\n"
		change = "\x14\x03\x03\x00\x01\x01"
		data   = "\x17\x03\x03\x00\x03abc"
	)
	good, evil := helloOf("good.example.org"), helloOf("evil.example.net")
	sized := func(s string) string { return string(binary.BigEndian.AppendUint16(nil, uint16(len(s)))) + s }
	for name, parts := range map[string][]string{
		"at once":          {tunnel, good + evil},
		"later":            {tunnel, good, evil},
		"after a change":   {tunnel, good, change + evil},
		"in small records": {tunnel, records(good, 7), change, records(evil, 5)},
		"the third":        {tunnel, good, good, evil},
		"after early data": {tunnel, withEarlyData(good), change + data, data + evil},
		"half of it":       {tunnel, good, evil[:len(evil)/2]},
		"interleaved":      {tunnel, good, evil[:3] + sized(evil[5:15]) + change + evil[:3] + sized(evil[15:])},
		"in one record":    {tunnel, good[:3] + sized(good[5:]+evil[5:])},
		"of no version":    {tunnel, withVersion(good), change + withVersion(evil)},
		"a large one": {tunnel, good, "\x16\x03\x03\x40\x00\x01\x01\x80\x00" + strings.Repeat("e", 16380) +
			strings.Repeat("\x16\x03\x03\x40\x00"+strings.Repeat("e", 16384), 5)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []string{"good.example.org:25"})
			f.say(parts...)
			f.close()
			last := parts[len(parts)-1]
			if raw := strings.Join(f.reached(), ""); strings.Contains(raw, last[len(last)-16:]) {
				t.Errorf("the host got the second ClientHello: %q", raw)
			}
			want := audit.ConnMismatch
			if name == "a large one" || name == "interleaved" || name == "in one record" {
				want = audit.ConnProtocol
			}
			if row := f.store.all()[0]; row.End != want && name != "half of it" {
				t.Errorf("%+v", row)
			}
		})
	}
	const ancient = "\x16\x03\x00\x00\x2d\x01\x00\x00\x29\x00\x00" + "0123456789abcdef0123456789abcdef" + "\x00\x00\x02\x00\x2f\x01\x00"
	for name, parts := range map[string][]string{
		"no version":       {"CONNECT 93.184.215.14:25 HTTP/1.1\r\n\r\n", ancient, "rest"},
		"TLS 1.2":          {tunnel, good, "\x16\x03\x03\x00\x06\x10\x00\x00\x02\x03\x03", evil},
		"TLS 1.2, resumed": {tunnel, good, change + "\x16\x03\x03\x00\x0a\x01\x07\x00\x01\x00\x00\x00\x00\x00\x00", "rest"},
		"data":             {tunnel, good, change + data, "rest"},
	} {
		f := start(t, []string{"good.example.org:25", "93.184.215.14:25"})
		f.say(parts...)
		if raw := strings.Join(f.reached(), ""); !strings.HasSuffix(raw, strings.Join(parts[2:], "")) {
			t.Errorf("%s: the host got %q", name, raw)
		}
	}
}

// FuzzSecondHello: what is passed on is the beginning of what came, and no whole ClientHello in it
// names another host.
func FuzzSecondHello(f *testing.F) {
	good, evil := helloOf("good.example.org"), helloOf("evil.example.net")
	f.Add([]byte(good + evil))
	f.Add([]byte(records(good, 100) + "\x14\x03\x03\x00\x01\x01" + evil))
	f.Add([]byte(withEarlyData(good) + "\x17\x03\x03\x00\x03abc" + evil))
	f.Add([]byte(good + "\x16\x03\x03\x00\x06\x10\x00\x00\x02\x03\x03"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var passed bytes.Buffer
		refused := network.PassHellos(&passed, bytes.NewReader(said), "good.example.org")
		if !bytes.HasPrefix(said, passed.Bytes()) {
			t.Errorf("%q is passed on of %q", passed.Bytes(), said)
		}
		if name := []byte("evil.example.net"); !refused && bytes.HasPrefix(said, []byte(good+evil)) && bytes.Contains(passed.Bytes(), name) {
			t.Errorf("%q is passed on", passed.Bytes())
		}
	})
}

// TestHelloRetry: a host that asks for a second ClientHello gets it.
func TestHelloRetry(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
			Certificates: []tls.Certificate{certificate(t)}, CurvePreferences: []tls.CurveID{tls.CurveP521}, MaxVersion: version,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				_, _ = io.WriteString(conn, "hello")
				_ = conn.Close()
			}
		}()
		f := start(t, []string{"good.example.org"}, func(c *network.Config, _ *policy.NetLimits) {
			c.Dial = func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
			}
		})
		sessions := tls.NewLRUClientSessionCache(1)
		for range 2 { // the second one is resumed
			conn := tls.Client(f.tunnel("good.example.org:443"), &tls.Config{
				ServerName: "good.example.org", RootCAs: f.roots, ClientSessionCache: sessions, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP521},
			})
			if got, err := io.ReadAll(conn); err != nil || string(got) != "hello" {
				t.Errorf("%x: %q %v", version, got, err)
			}
			_ = conn.Close()
		}
	}
}

// TestSmallRecords: a ClientHello may come in many records.
func TestSmallRecords(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	got := f.say("CONNECT good.example.org:443 HTTP/1.1\r\n\r\n", records(helloOf("good.example.org"), 3))
	if !strings.Contains(got, "200 OK\r\n\r\n\x16\x03") {
		t.Errorf("%q", got)
	}
}

// TestTunnelsShareNothing: the end of a tunnel does not end the requests of others that use the
// same connection to the host.
func TestTunnelsShareNothing(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	tunnel := func() (*net.TCPConn, *bufio.Reader) {
		conn, err := net.Dial("tcp", f.proxy)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "CONNECT good.example.org:80 HTTP/1.1\r\n\r\n")
		r := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 {
			t.Fatal("no tunnel")
		}
		return conn.(*net.TCPConn), r
	}
	first, answers := tunnel()
	_, _ = io.WriteString(first, "GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n")
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	second, others := tunnel()
	_, _ = io.WriteString(second, "POST /upload HTTP/1.1\r\nHost: good.example.org\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
	if resp, err = http.ReadResponse(others, nil); err != nil || resp.StatusCode != 100 { // the host has begun to read it
		t.Fatalf("%+v %v", resp, err)
	}
	_ = first.CloseWrite()
	_, _ = io.Copy(io.Discard, answers)
	_, _ = io.WriteString(second, "body")
	for err == nil && resp.StatusCode == 100 {
		resp, err = http.ReadResponse(others, nil)
	}
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("%+v %v", resp, err)
	}
}

// meeting is a connection whose writes begin when two connections write.
type meeting struct {
	*net.TCPConn
	both *sync.WaitGroup
	once sync.Once
}

func (m *meeting) Write(p []byte) (int, error) {
	m.once.Do(func() { m.both.Done(); m.both.Wait() })
	return m.TCPConn.Write(p)
}

// TestParallelBytes: parallel connections together send no more than the limit.
func TestParallelBytes(t *testing.T) {
	t.Parallel()
	var both sync.WaitGroup
	both.Add(2)
	f := start(t, []string{"good.example.org:25"}, func(c *network.Config, l *policy.NetLimits) {
		l.NetMaxBytes = 1000
		dial := c.Dial
		c.Dial = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			conn, err := dial(ctx, to)
			return &meeting{TCPConn: conn.(*net.TCPConn), both: &both}, err
		}
	})
	var saying sync.WaitGroup
	for range 2 {
		saying.Go(func() { f.say("CONNECT good.example.org:25 HTTP/1.1\r\n\r\n", "\x01"+strings.Repeat("x", 799)) })
	}
	saying.Wait()
	if got := f.close(); got.BytesOut != 1000 {
		t.Errorf("%+v", got)
	}
}

// TestUnstored: rows that the database has not taken by the end of the exec go with its record.
func TestUnstored(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	if _, _, err := f.get("http", "https://good.example.org/"); err != nil {
		t.Fatal(err)
	}
	f.store.fail(errors.New("down"))
	f.say("CONNECT evil.example.net:443 HTTP/1.1\r\n\r\n")
	got := f.close()
	if len(got.Unstored) != 2 || got.Unstored[0].End == "" || got.Unstored[1].End != audit.ConnNotAllowed {
		t.Errorf("%+v", got.Unstored)
	}
}
