package network_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
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
