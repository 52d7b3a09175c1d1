package e2e

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"secbox/settings"
)

// The hosts of these tests: other addresses of the loopback, which NO_PROXY does not have.
const (
	allowedHost = "127.0.0.2"
	deniedHost  = "127.0.0.3"
)

// netHost is a host with TLS of its own: a git repository, a package of Python, and data.
type netHost struct {
	port, ca string
	requests atomic.Int64
}

// startNetHost starts it at both addresses.
func startNetHost(t *testing.T) *netHost {
	t.Helper()
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		own := []string{"-c", "user.name=t", "-c", "user.email=t@example.org", "-C", filepath.Join(root, "repo")}
		cmd := exec.Command("git", append(own, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v %s", args, err, out)
		}
	}
	must(t, os.Mkdir(filepath.Join(root, "repo"), 0o755))
	git("init", "-q", "-b", "main")
	must(t, os.WriteFile(filepath.Join(root, "repo", "README"), []byte("cloned\n"), 0o644))
	git("add", ".")
	git("commit", "-qm", "first")
	git("update-server-info")
	must(t, os.MkdirAll(filepath.Join(root, "simple", "tiny"), 0o755))
	const wheel = "tiny-1.0-py3-none-any.whl"
	must(t, os.WriteFile(filepath.Join(root, "simple", "tiny", "index.html"), []byte(`<a href="`+wheel+`">`+wheel+`</a>`), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "simple", "tiny", wheel), tinyWheel(t), 0o644))

	o := &netHost{}
	files := http.FileServer(http.Dir(root))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.requests.Add(1)
		if r.URL.Path == "/data" {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
			return
		}
		files.ServeHTTP(w, r)
	}))
	certificate, ca := netHostCertificate(t)
	server.TLS, o.ca = &tls.Config{Certificates: []tls.Certificate{certificate}}, ca
	_ = server.Listener.Close()
	var err error
	if server.Listener, err = net.Listen("tcp", "0.0.0.0:0"); err != nil { // both addresses, and no other machine is asked
		t.Fatal(err)
	}
	server.Listener = onlyLoopback{server.Listener}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, o.port, _ = net.SplitHostPort(server.Listener.Addr().String())
	return o
}

// onlyLoopback closes connections from other machines.
type onlyLoopback struct{ net.Listener }

func (l onlyLoopback) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if addr, ok := conn.RemoteAddr().(*net.TCPAddr); ok && addr.IP.IsLoopback() {
			return conn, nil
		}
		_ = conn.Close()
	}
}

func tinyWheel(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range [][2]string{
		{"tiny.py", "answer = 42\n"},
		{"tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"},
		{"tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"tiny-1.0.dist-info/RECORD", "tiny.py,,\ntiny-1.0.dist-info/METADATA,,\ntiny-1.0.dist-info/WHEEL,,\ntiny-1.0.dist-info/RECORD,,\n"},
	} {
		entry, err := w.Create(f[0])
		must(t, err)
		_, err = io.WriteString(entry, f[1])
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func netHostCertificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.ParseIP(allowedHost), net.ParseIP(deniedHost)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// reaching lets jobs reach a host of the test.
func reaching(o *netHost) func(*settings.Settings) {
	return func(s *settings.Settings) {
		s.Sandbox.Policy.NetAllow = []string{allowedHost + ":" + o.port}
		s.Sandbox.Net.Private = []string{"127.0.0.0/8"}
	}
}

// request is an exec that may reach the host.
func (o *netHost) request(script string) object {
	ca := "/workspace/inputs/ca.pem"
	return object{
		"project_id": "net", "policy_overrides": object{"net.mode": "allowlist"},
		"inputs": []object{{"path": "ca.pem", "content": o.ca}},
		"exec": object{"script": script, "env": object{
			"CURL_CA_BUNDLE": ca, "SSL_CERT_FILE": ca, "GIT_SSL_CAINFO": ca, "PIP_CERT": ca, "HOST": "https://" + allowedHost + ":" + o.port,
			"DENIED": "https://" + deniedHost + ":" + o.port, "PORT": o.port,
		}},
	}
}

// TestNetwork: programs in real containers reach the host that is allowed, and no other one.
func TestNetwork(t *testing.T) {
	t.Parallel()
	o := startNetHost(t)
	s := start(t, reaching(o))
	says := func(t *testing.T, script, stdout string) object {
		t.Helper()
		r := s.with(t).exec(o.request(script))
		if r.str("status") != "succeeded" || !strings.Contains(r.str("stdout"), stdout) {
			t.Errorf("%s: %s, %q %q", script, r.str("status"), r.str("stdout"), r.str("stderr"))
		}
		return s.with(t).get("/sandbox/execs/" + r.str("exec_id"))
	}
	const fetch = `python3 -c 'import os, urllib.request as u; print(len(u.urlopen(os.environ["HOST"] + "/data").read()))'`
	t.Run("programs", func(t *testing.T) {
		t.Parallel()
		r := says(t, `set -e
curl -sS $HOST/data | wc -c
`+fetch+`
git clone -q $HOST/repo/.git /tmp/repo && cat /tmp/repo/README
pip download -q --no-deps --disable-pip-version-check -d /tmp/wheels -i $HOST/simple/ tiny && ls /tmp/wheels
curl -sS --socks5-hostname ${HTTP_PROXY#http://} --noproxy '' $HOST/data | wc -c`, "1048576\n1048576\ncloned\ntiny-1.0-py3-none-any.whl\n1048576\n")
		rows := s.with(t).get("/sandbox/execs/" + r.str("exec_id") + "/connections").list("items")
		if len(rows) < 5 || r.num("net_connections") != float64(len(rows)) || r.num("net_denied") != 0 || r.num("net_bytes_in") < 3<<20 ||
			len(r.str("net_digest")) != 64 {
			t.Errorf("%v\n%v", r, rows)
		}
		for _, row := range rows {
			row.wants(t, object{"allowed": true, "address": allowedHost, "rule": allowedHost + ":" + o.port, "host": allowedHost})
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		r := says(t, `curl -sS $DENIED/data; echo $?
python3 -c 'import os, urllib.request as u
try: u.urlopen(os.environ["DENIED"])
except OSError as e: print(e)'
(exec 3<>/dev/tcp/`+allowedHost+`/$PORT) 2>/dev/null; echo $?
curl -sS --noproxy '*' -m 5 $HOST/data; echo $?
getent hosts example.org; echo $?`,
			"56\n<urlopen error Tunnel connection failed: 403 secbox: "+deniedHost+":"+o.port+
				" is not allowed by net.allow of this exec's policy>\n1\n7\n2\n")
		if r.num("net_denied") != 2 || r.num("net_bytes_out") != 0 {
			t.Errorf("%v", r)
		}
	})
	t.Run("64 at once", func(t *testing.T) {
		t.Parallel()
		r := says(t, `python3 -c '
import os, concurrent.futures as f, urllib.request as u
with f.ThreadPoolExecutor(64) as pool:
    print(sum(pool.map(lambda _: len(u.urlopen(os.environ["HOST"] + "/data").read()), range(64))))'`, "67108864\n")
		if r.num("net_connections") != 64 {
			t.Errorf("%v", r)
		}
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		request := o.request("env | grep -ci proxy; curl -sS -m 5 $HOST/data; echo $?")
		delete(request, "policy_overrides")
		s.with(t).exec(request).wants(t, object{"stdout": "0\n7\n"})
	})
	t.Run("more than the settings", func(t *testing.T) {
		t.Parallel()
		request := o.request("true")
		request["policy_overrides"] = object{"net.mode": "allowlist", "net": object{"allow": []string{deniedHost}}}
		if a := s.with(t).send(http.MethodPost, "/sandbox/execs", request); a.Code != http.StatusForbidden || !strings.Contains(string(a.Body), "net.allow") {
			t.Errorf("%d %s", a.Code, a.Body)
		}
	})
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		session := s.with(t).startSession("netsession", "policy_overrides", object{"net.mode": "allowlist"})
		must(t, os.WriteFile(filepath.Join(s.dir, "workspace", "projects", "netsession", "work", "ca.pem"), []byte(o.ca), 0o644))
		curl := fmt.Sprintf("curl -sS --cacert /workspace/work/ca.pem https://%s:%s/data | wc -c", allowedHost, o.port)
		record := session.says(curl, "1048576\n")
		if r := s.with(t).get("/sandbox/execs/" + record.str("exec_id")); r.num("net_connections") != 1 {
			t.Errorf("%v", r)
		}
		a := session.try(object{"context": "py", "code": fmt.Sprintf(`import ssl, urllib.request as u
own = ssl.create_default_context(cafile='/workspace/work/ca.pem')
len(u.urlopen('https://%s:%s/data', context=own).read())`, allowedHost, o.port)})
		if a.Code != http.StatusOK || !strings.Contains(string(a.Body), "1048576") {
			t.Errorf("%d %s", a.Code, a.Body)
		}
		s.with(t).send(http.MethodDelete, "/sandbox/sessions/"+session.id, nil)
		eventually(t, "the session's end", func() bool { return s.with(t).get("/sandbox/execs/"+session.id).str("status") != "running" })
		if r := s.with(t).get("/sandbox/execs/" + session.id); r.num("net_connections") != 1 { // of its interpreter
			t.Errorf("%v", r)
		}
	})
}
