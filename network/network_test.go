package network_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/network"
	"secbox/policy"
)

// TestReaches: the ways to an allowed host work, and each is on record with its bytes.
func TestReaches(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org", "*.good.example.org:443", "good.example.org:25"})
	for _, c := range []struct{ scheme, url string }{
		{"http", "http://good.example.org/"},
		{"http", "https://good.example.org/"},
		{"http", "https://api.good.example.org/"},
		{"socks5", "http://good.example.org/"},
		{"socks5", "https://good.example.org/"},
		{"http", "http://GOOD.example.org./"},
	} {
		if code, body, err := f.get(c.scheme, c.url); err != nil || code != 200 || !strings.HasPrefix(body, "hello from ") {
			t.Errorf("%s by %s: %d %q %v", c.url, c.scheme, code, body, err)
		}
	}
	// the host speaks first, and the job's bytes come back
	for _, said := range []string{"hello", "GE", "\x00\x01", "a line\nand more"} { // without waiting for more
		if got := f.say("CONNECT good.example.org:25 HTTP/1.1\r\n\r\n", said); !strings.HasSuffix(got, said) {
			t.Errorf("%q", got)
		}
	}
	if got := f.say("CONNECT good.example.org:25 HTTP/1.1\r\nHost: good.example.org:25\r\n\r\n", "EHLO me\r\n"); !strings.Contains(got, "220 ready") ||
		!strings.HasSuffix(got, "EHLO me\r\n") {
		t.Errorf("%q", got)
	}
	traffic := f.close()
	rows := f.store.all()
	if traffic.Denied != 0 || traffic.Connections != int64(len(rows)) || traffic.Digest == "" || !reflect.DeepEqual(traffic, audit.TrafficOf(rows)) {
		t.Errorf("%+v\n%+v", traffic, rows)
	}
	for _, c := range rows {
		if !c.Allowed || c.Rule == "" || c.Address != goodAddr.String() || c.EndedAt.IsZero() || c.End != audit.ConnClosed &&
			c.End != audit.ConnExecEnded || !strings.HasSuffix(c.Host, "good.example.org") ||
			c.BytesIn == 0 && c.Protocol != audit.ProtocolSOCKS5 { // its request may go through an earlier connection

			t.Errorf("%+v", c)
		}
	}
}

// TestNothingLeaves: none of these reaches a server, and each is on record as refused.
func TestNothingLeaves(t *testing.T) {
	t.Parallel()
	connect := func(authority string) string { return "CONNECT " + authority + " HTTP/1.1\r\nHost: x\r\n\r\n" }
	get := func(url, host string) string {
		return "GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
	}
	socks := func(name string, port byte) string {
		return "\x05\x01\x00\x05\x01\x00\x03" + string([]byte{byte(len(name))}) + name + "\x00" + string([]byte{port})
	}
	tunnel := connect("good.example.org:80")
	for name, c := range map[string]struct {
		parts []string
		end   audit.ConnEnd
	}{
		"another host":               {[]string{connect("evil.example.net:443")}, audit.ConnNotAllowed},
		"another host by HTTP":       {[]string{get("http://evil.example.net/", "good.example.org")}, audit.ConnNotAllowed},
		"another port":               {[]string{connect("good.example.org:8080")}, audit.ConnNotAllowed},
		"another port by HTTP":       {[]string{get("http://good.example.org:8080/", "good.example.org")}, audit.ConnNotAllowed},
		"an address":                 {[]string{connect("93.184.215.14:443")}, audit.ConnNotAllowed},
		"an address in IPv6":         {[]string{connect("[::ffff:93.184.215.14]:443")}, audit.ConnNotAllowed},
		"loopback":                   {[]string{connect("127.0.0.1:80")}, audit.ConnNotAllowed},
		"loopback, short":            {[]string{connect("127.1:80")}, audit.ConnName},
		"loopback, decimal":          {[]string{connect("2130706433:80")}, audit.ConnName},
		"loopback, hexadecimal":      {[]string{connect("0x7f000001:80")}, audit.ConnName},
		"loopback, hexadecimal part": {[]string{connect("0x7f.0.0.1:80")}, audit.ConnName},
		"loopback, octal":            {[]string{connect("0177.0.0.1:80")}, audit.ConnName},
		"loopback of IPv6":           {[]string{connect("[::1]:80")}, audit.ConnNotAllowed},
		"with a zone":                {[]string{connect("[fe80::1%25eth0]:80")}, audit.ConnName},
		"a name with inside address": {[]string{connect("inside.example.org:80")}, audit.ConnAddress},
		"the same by SOCKS":          {[]string{socks("inside.example.org", 80)}, audit.ConnAddress},
		"SOCKS elsewhere":            {[]string{socks("evil.example.net", 80)}, audit.ConnNotAllowed},
		"SOCKS with an address":      {[]string{"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"}, audit.ConnNotAllowed},
		"SOCKS with mapped IPv6": {
			[]string{"\x05\x01\x00\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\x00\x50"},
			audit.ConnNotAllowed,
		},
		"SOCKS binds":           {[]string{"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50"}, audit.ConnProtocol},
		"SOCKS with a NUL":      {[]string{socks("good.example.org\x00.evil", 80)}, audit.ConnName},
		"the wildcard's own":    {[]string{connect("wild.example.org:443")}, audit.ConnNotAllowed},
		"the wildcard's suffix": {[]string{connect("evil-wild.example.org:443")}, audit.ConnNotAllowed},
		"an empty label":        {[]string{connect(".wild.example.org:443")}, audit.ConnName},
		"a name not in ASCII":   {[]string{connect("gööd.example.org:443")}, audit.ConnName},
		"a full-width dot":      {[]string{connect("good\uff0eexample.org:443")}, audit.ConnName},
		"two trailing dots":     {[]string{connect("good.example.org..:443")}, audit.ConnName},
		"a name of 300 bytes":   {[]string{connect(strings.Repeat("a", 280) + ".wild.example.org:443")}, audit.ConnName},
		"a tunnel by names":     {[]string{connect("c2VjcmV0.evil.example.net:443")}, audit.ConnNotAllowed},
		"with a user":           {[]string{get("http://good.example.org@evil.example.net/", "good.example.org")}, audit.ConnNotAllowed},
		"https by HTTP":         {[]string{get("https://good.example.org/", "good.example.org")}, audit.ConnProtocol},
		"ftp":                   {[]string{get("ftp://good.example.org/", "good.example.org")}, audit.ConnProtocol},
		"fronting in a tunnel":  {[]string{tunnel, get("/", "evil.example.net")}, audit.ConnMismatch},
		"fronting, later": {
			[]string{tunnel, "\r\nGET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"}, "",
		},
		"fronting by URL":         {[]string{tunnel, get("http://evil.example.net/", "good.example.org")}, audit.ConnMismatch},
		"another port's Host":     {[]string{tunnel, get("/", "good.example.org:8080")}, audit.ConnMismatch},
		"CONNECT in CONNECT":      {[]string{tunnel, connect("evil.example.net:443")}, audit.ConnMismatch},
		"HTTP/2 cleartext":        {[]string{tunnel, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"}, audit.ConnProtocol},
		"a request in lower case": {[]string{tunnel, "get / http/1.1\r\nHost: evil.example.net\r\n\r\n"}, ""},
		"an endless line":         {[]string{tunnel, strings.Repeat("A", 10_000)}, audit.ConnProtocol},
		"an upgrade elsewhere": {
			[]string{"GET http://evil.example.net/upgrade HTTP/1.1\r\nHost: evil.example.net\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"},
			audit.ConnNotAllowed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []string{"good.example.org", "*.wild.example.org", "inside.example.org"})
			got := f.say(c.parts...)
			f.close()
			for _, host := range f.reached() {
				t.Errorf("%q has reached a server: %q", host, got)
			}
			rows := f.store.all()
			if c.end == "" {
				return
			}
			if len(rows) == 0 || !slices.ContainsFunc(rows, func(r audit.Connection) bool { return r.End == c.end && !r.Allowed && r.Detail != "" }) {
				t.Errorf("%q, on record %+v", got, rows)
			}
			for _, row := range rows {
				if len(row.Host) > audit.MaxHost {
					t.Errorf("a host of %d bytes", len(row.Host))
				}
			}
		})
	}
}

// TestSecondRequest: a request after an allowed one, in the same connection, is decided again; what
// is smuggled in a body stays in it.
func TestSecondRequest(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	const (
		allowed = "GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n"
		fronted = "GET / HTTP/1.1\r\nHost: evil.example.net\r\nConnection: close\r\n\r\n"
	)
	got := f.say("CONNECT good.example.org:80 HTTP/1.1\r\n\r\n", allowed, fronted)
	if !strings.Contains(got, "hello from good.example.org") || !strings.Contains(got, " 403 ") {
		t.Errorf("%q", got)
	}
	// a body with two lengths
	got = f.say("POST http://good.example.org/upload HTTP/1.1\r\nHost: good.example.org\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n" +
		"Connection: close\r\n\r\n0\r\n\r\n" + fronted)
	if strings.Contains(got, "evil") {
		t.Errorf("%q", got)
	}
	got = f.say("GET http://good.example.org/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
	if !strings.Contains(got, " 400 ") {
		t.Errorf("%q", got)
	}
	for _, host := range f.reached() {
		if host != "good.example.org" {
			t.Errorf("reached as %q", host)
		}
	}
}

// TestRequestInPieces: no piece of a request by an unusual method names a host.
func TestRequestInPieces(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org:25"})
	conn, err := net.Dial("tcp", f.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "CONNECT good.example.org:25 HTTP/1.1\r\n\r\n")
	r := bufio.NewReader(conn)
	read := func(until string) {
		t.Helper()
		for got := ""; !strings.HasSuffix(got, until); {
			b, err := r.ReadByte()
			if err != nil {
				t.Fatalf("%q %v", got, err)
			}
			got += string(b)
		}
	}
	read("220 ready\r\n")
	_, _ = io.WriteString(conn, "FOO /")
	read("FOO /")
	_, _ = io.WriteString(conn, " http/1.1\r\nHost: evil.example.net\r\n\r\n")
	rest, _ := io.ReadAll(r)
	f.close()
	if len(rest) > 0 || strings.Contains(strings.Join(f.reached(), ""), "evil") || f.store.all()[0].End != audit.ConnProtocol {
		t.Errorf("%q %q %+v", rest, f.reached(), f.store.all())
	}
}

// TestForeignProtocols: what is neither HTTP nor SOCKS5 is on record.
func TestForeignProtocols(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	for _, said := range []string{
		"\x04\x01\x00\x50\x5d\xb8\xd7\x0e\x00", helloOf("good.example.org"), "SSH-2.0-x\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"\x05\x01\x02", "\x05\x01\x00\x05\x01\x00\x09", "",
	} {
		f.say(said)
	}
	f.close()
	var got []string
	for _, row := range f.store.all() {
		got = append(got, string(row.Protocol)+" "+row.Host)
		if row.Allowed || row.End != audit.ConnProtocol || row.Detail == "" || row.EndedAt.IsZero() {
			t.Errorf("%+v", row)
		}
	}
	slices.Sort(got) // a row may come after the end of its connection
	if want := []string{"http x", "socks5 ", "socks5 ", "unknown ", "unknown ", "unknown "}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestRedirect: a redirect of an allowed host to a metadata address leads nowhere.
func TestRedirect(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	if code, body, err := f.get("http", "http://good.example.org/inside"); err != nil || code != 403 || !strings.Contains(body, "net.allow") {
		t.Errorf("%d %q %v", code, body, err)
	}
	if got := f.dialed; len(got) != 1 || got[0].Addr() != goodAddr {
		t.Errorf("dialed %v", got)
	}
}

// TestChangingName: the address that was checked is dialed, also when the name has another one by
// then; addresses that no job may reach are left out.
func TestChangingName(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org", "mixed.example.org"})
	if _, _, err := f.get("http", "http://good.example.org/"); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.names["good.example.org"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	f.mu.Unlock()
	if code, _, err := f.get("http", "https://good.example.org/"); err == nil {
		t.Errorf("reached: %d", code)
	}
	if code, _, err := f.get("http", "https://mixed.example.org/"); err != nil || code != 200 {
		t.Errorf("%d %v", code, err)
	}
	for _, address := range f.dialed {
		if address.Addr() != goodAddr {
			t.Errorf("dialed %v", address)
		}
	}
	if want := []string{"good.example.org", "good.example.org", "mixed.example.org"}; !slices.Equal(f.lookups, want) {
		t.Errorf("looked up %v, want %v", f.lookups, want)
	}
}

// TestServerName: a TLS connection must name the tunnel's host.
func TestServerName(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org", "93.184.215.14"})
	hello := func(authority, name string, ech []byte) error {
		conn, err := net.Dial("tcp", f.proxy)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "CONNECT "+authority+" HTTP/1.1\r\n\r\n")
		r := bufio.NewReader(conn)
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 {
			return errors.New("no tunnel")
		}
		return tls.Client(conn, &tls.Config{
			ServerName: name, RootCAs: f.roots, EncryptedClientHelloConfigList: ech, MinVersion: tls.VersionTLS13,
			InsecureSkipVerify: name == "", //nolint:gosec // the test looks at the proxy
		}).Handshake()
	}
	if err := hello("good.example.org:443", "good.example.org", nil); err != nil {
		t.Error(err)
	}
	if err := hello("93.184.215.14:443", "", nil); err != nil {
		t.Error(err)
	}
	for _, c := range [][2]string{
		{"good.example.org:443", "evil.example.net"},
		{"good.example.org:443", ""},
		{"93.184.215.14:443", "evil.example.net"},
		{"good.example.org:443", "api.good.example.org"},
	} {
		if err := hello(c[0], c[1], nil); err == nil {
			t.Errorf("a connection that names %q went through a tunnel to %s", c[1], c[0])
		}
	}
	if err := hello("good.example.org:443", "hidden.example.org", echConfig(t, "good.example.org")); err == nil {
		t.Error("an encrypted ClientHello went through")
	}
	f.close()
	refused := 0
	for _, row := range f.store.all() {
		if row.End == audit.ConnMismatch && !row.Allowed && row.BytesOut == 0 {
			refused++
		}
	}
	if refused != 5 {
		t.Errorf("%+v", f.store.all())
	}
}

// TestLimits: connections at once, in all, of a token and of the node, and bytes each way.
func TestLimits(t *testing.T) {
	t.Parallel()
	hold := func(t *testing.T, f *fixture) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", f.proxy)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "CONNECT good.example.org:25 HTTP/1.1\r\n\r\n")
		if _, err := conn.Read(make([]byte, 12)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for name, change := range map[string]func(*network.Config, *policy.NetLimits){
		"at once":  func(_ *network.Config, l *policy.NetLimits) { l.NetConnections = 1 },
		"in all":   func(_ *network.Config, l *policy.NetLimits) { l.NetMaxConnections = 1 },
		"token":    func(c *network.Config, _ *policy.NetLimits) { c.PerToken = 1 },
		"the node": func(c *network.Config, _ *policy.NetLimits) { c.Connections = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, []string{"good.example.org", "good.example.org:25"}, change)
			hold(t, f)
			if code, body, err := f.get("http", "http://good.example.org/"); err != nil || code != 503 || !strings.Contains(body, "connections") {
				t.Errorf("%d %q %v", code, body, err)
			}
		})
	}
	bytes := func(_ *network.Config, l *policy.NetLimits) { l.NetMaxBytes = 100_000 }
	t.Run("bytes in", func(t *testing.T) {
		t.Parallel()
		f := start(t, []string{"good.example.org"}, bytes)
		if _, body, err := f.get("http", "http://good.example.org/big"); err == nil || len(body) > 100_000 {
			t.Errorf("%d bytes, %v", len(body), err)
		}
		if code, body, _ := f.get("http", "http://good.example.org/"); code != 403 || !strings.Contains(body, "net.max_bytes") {
			t.Errorf("%d %q", code, body)
		}
		if got := f.close(); got.BytesIn != 100_000 || f.store.all()[0].End != audit.ConnMaxBytes {
			t.Errorf("%+v", got)
		}
	})
	t.Run("bytes out", func(t *testing.T) {
		t.Parallel()
		f := start(t, []string{"good.example.org"}, bytes)
		resp, err := f.client("http").Post("http://good.example.org/upload", "", io.LimitReader(zeros{}, 1<<20))
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == 200 {
				t.Error("all was sent")
			}
		}
		if got := f.close(); got.BytesOut != 100_000 {
			t.Errorf("%+v", got)
		}
	})
}

// TestIdle: a connection without traffic ends, and is on record with that.
func TestIdle(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org:25"}, func(_ *network.Config, l *policy.NetLimits) { l.NetIdleMS = 50 })
	conn, err := net.Dial("tcp", f.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "CONNECT good.example.org:25 HTTP/1.1\r\n\r\n")
	_, _ = io.ReadAll(conn)
	if rows := f.store.all(); f.close().Connections != 1 || len(rows) != 1 {
		t.Errorf("%+v", rows)
	}
	if row := f.store.all()[0]; row.End != audit.ConnIdle {
		t.Errorf("%+v", row)
	}
}

// TestNoRecordNoConnection: what cannot be put on record is not dialed.
func TestNoRecordNoConnection(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	f.store.fail(errors.New("down"))
	if code, body, err := f.get("http", "http://good.example.org/"); err != nil || code != 502 || !strings.Contains(body, "on record") {
		t.Errorf("%d %q %v", code, body, err)
	}
	if len(f.dialed) > 0 {
		t.Errorf("dialed %v", f.dialed)
	}
	f.store.fail(nil)
	if code, _, err := f.get("http", "http://good.example.org/"); err != nil || code != 200 {
		t.Errorf("%d %v", code, err)
	}
}

// TestManyRefused: of many refused connections, a bounded number has rows, and all are counted.
func TestManyRefused(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	const many = audit.MaxConnections + 500
	conn, err := net.Dial("tcp", f.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		for range many {
			_, _ = io.WriteString(conn, "GET http://evil.example.net/ HTTP/1.1\r\nHost: x\r\n\r\n")
		}
	}()
	r := bufio.NewReader(conn)
	for range many {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	got := f.close()
	rows := f.store.all()
	if got.Connections != many || got.Denied != many || len(rows) != audit.MaxConnections || got.Digest != audit.TrafficOf(rows).Digest {
		t.Errorf("%+v, %d rows", got, len(rows))
	}
}

// TestClose ends open connections and puts that on record.
func TestClose(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org:25"})
	conn, err := net.Dial("tcp", f.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "CONNECT good.example.org:25 HTTP/1.1\r\n\r\n")
	if _, err := conn.Read(make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	f.close()
	if rows := f.store.all(); len(rows) != 1 || rows[0].End != audit.ConnExecEnded || rows[0].EndedAt.IsZero() {
		t.Errorf("%+v", rows)
	}
}

// TestUpgrade carries an upgraded connection both ways.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	for _, scheme := range []string{"http", "ws"} {
		got := f.say("GET "+scheme+"://good.example.org/upgrade HTTP/1.1\r\nHost: good.example.org\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n",
			"ping")
		if !strings.Contains(got, " 101 ") || !strings.HasSuffix(got, "ping") {
			t.Errorf("%s: %q", scheme, got)
		}
	}
}

// TestBrokenAnswer: an answer that breaks off does not look complete.
func TestBrokenAnswer(t *testing.T) {
	t.Parallel()
	f := start(t, []string{"good.example.org"})
	if _, body, err := f.get("http", "http://good.example.org/broken"); err == nil {
		t.Errorf("%q", body)
	}
}
