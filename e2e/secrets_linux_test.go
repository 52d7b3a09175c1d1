package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/store/storetest/pgtest"
)

// keyServer is a server with TLS on the name of this machine, which keeps the credentials of its
// requests, by path.
type keyServer struct {
	host string // name:port
	ca   string // file of the authority that signed its certificate
	mu   sync.Mutex
	got  map[string]string
}

func (k *keyServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got[r.URL.Path] = r.Header.Get("Authorization") + r.Header.Get("X-Key") + r.URL.Query().Get("key")
	fmt.Fprintln(w, "served")
}

func (k *keyServer) of(path string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got[path]
}

// startKeyServer starts one, at an address that jobs may reach only with sandbox.net.private.
func startKeyServer(t *testing.T) (k *keyServer, address string) {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := net.DefaultResolver.LookupHost(t.Context(), name)
	if err != nil {
		t.Fatalf("this test needs an address of the machine's own name: %v", err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(addresses[0], "0"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	k = &keyServer{host: name + ":" + portOf(listener), ca: filepath.Join(t.TempDir(), "ca.pem"), got: map[string]string{}}
	if err := os.WriteFile(k.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(k)
	_ = server.Listener.Close()
	server.Listener, server.TLS = listener, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return k, addresses[0]
}

func portOf(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }

// canary is a value that is nowhere else, and the forms in which it may be found.
type canary struct {
	value string
	forms []string
}

func newCanary(t *testing.T) canary {
	t.Helper()
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		t.Fatal(err)
	}
	value := "canary+" + hex.EncodeToString(id)
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + value))
	return canary{value, []string{value, url.QueryEscape(value), basic[8 : len(basic)-8], hex.EncodeToString([]byte(value))}}
}

// in reports whether a text has the canary.
func (c canary) in(text []byte) bool {
	return slices.ContainsFunc(c.forms, func(form string) bool { return bytes.Contains(text, []byte(form)) })
}

// clients are programs that make a request each, if the image has them.
const clients = `
curl -sS -H 'Authorization: mine' "https://$HOST_/curl"
curl -sS --socks5-hostname "${HTTPS_PROXY#http://}" "https://$HOST_/socks"
python3 -c 'import os, urllib.request as u; print(u.urlopen("https://" + os.environ["HOST_"] + "/urllib").read().decode().strip())'
python3 -c 'import os
try: import requests
except ImportError: from pip._vendor import requests
print(requests.get("https://" + os.environ["HOST_"] + "/requests").text.strip())'
if command -v node >/dev/null; then
  node -e 'fetch("https://" + process.env.HOST_ + "/node").then(async (r) => console.log((await r.text()).trim()))'; fi
git ls-remote "https://$HOST_/git" >/dev/null 2>&1
curl -sS "http://$HOST_/plain"
cp -r /tmp tmp; env > environment; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline > processes 2>/dev/null
`

// TestSecretsNeverEnter: the programs of a job reach a host with a secret, and the secret is then
// in no file, row, log, process and container.
func TestSecretsNeverEnter(t *testing.T) {
	t.Parallel()
	keys, address := startKeyServer(t)
	value := newCanary(t)
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(value.value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := serve(t, dir, "SSL_CERT_FILE="+keys.ca, "CORE_API_LOG_LEVEL=debug", "CORE_API_SANDBOX_NET_PRIVATE="+address,
		"CORE_API_SANDBOX_POLICY_NET_ALLOW="+keys.host, "THE_KEY="+value.value, fmt.Sprintf(`CORE_API_SANDBOX_SECRETS={
  "file": {"file": %q, "hosts": [%q]}, "env": {"env": "THE_KEY", "hosts": [%[2]q]},
  "command": {"command": ["/bin/cat", %[1]q], "hosts": [%[2]q], "as": ["query key"]}, "ci": {"file": %[1]q, "hosts": [%[2]q], "tokens": ["ci"]}}`,
			file, keys.host))
	overrides := func(c object) object {
		c["host"] = keys.host
		return object{"net.mode": "allowlist", "net.credentials": []object{c}}
	}
	request := func(project, then string, c object) object {
		o := shell(project, clients+then, "policy_overrides", overrides(c))
		o["exec"].(object)["env"] = object{"HOST_": keys.host, "MARK": "marker-" + project}
		return o
	}
	var ids []string
	for project, c := range map[string]object{
		"header": {"secret": "file", "header": "Authorization: Bearer"}, "basic": {"secret": "env", "basic": "me"},
		"query": {"secret": "command", "query": "key"},
	} {
		running := s.post(request(project, waiting("echo $MARK"), c))
		id := s.awaitStart(project)
		s.clean(value, "marker-"+project)
		s.letGo(project)
		result := running.result()
		ids = append(ids, id)
		out := result.str("stdout")
		if !strings.Contains(out, "served") || !strings.Contains(out, "only sent over TLS") || !strings.Contains(out, "marker-"+project) {
			t.Errorf("%s: %v", project, result)
		}
		want := "Bearer " + value.value
		switch project {
		case "basic":
			want = "Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+value.value))
		case "query":
			want = value.value
		}
		for _, path := range []string{"/curl", "/socks", "/urllib", "/requests", "/git/info/refs"} {
			if got := keys.of(path); got != want && (project != "query" || !strings.HasSuffix(got, want)) {
				t.Errorf("%s: %s got %q, want %q\n%v", project, path, got, want, result)
			}
		}

		used := 0
		for _, row := range s.get("/sandbox/execs/" + id + "/connections").list("items") {
			if fmt.Sprint(row["secrets"]) == "["+c["secret"].(string)+"]" {
				used++
			}
		}
		if used == 0 { // requests to one host share connections
			t.Errorf("%s: %d connections with the secret on record: %v", project, used, s.get("/sandbox/execs/"+id+"/connections"))
		}
	}
	s.secretsOfSession(keys, value, overrides(object{"secret": "file", "header": "X-Key"}))
	problem := s.refused(http.StatusForbidden, "policy_denied", shell("token", "true", "policy_overrides",
		overrides(object{"secret": "ci", "header": "X-Key"})))
	if !strings.Contains(problem.str("detail"), "not for this token") || s.get("/sandbox/execs/"+problem.str("exec_id")).str("status") != "rejected" {
		t.Errorf("%v", problem)
	}
	for _, id := range ids {
		for _, part := range []string{"", "/connections", "/stdout", "/events"} {
			if a := s.send(http.MethodGet, "/sandbox/execs/"+id+part, nil); value.in(a.Body) {
				t.Errorf("%s has the secret: %s", part, a.Body)
			}
		}
	}
	s.terminate()
	s.exitCode()
	if value.in([]byte(s.log.String())) {
		t.Error("the log has the secret")
	}
	found := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if value.in(content) {
			t.Errorf("%s has the secret", path)
		}
		if bytes.Contains(content, []byte("marker-header")) {
			found++
		}
		return err
	})
	if err != nil || found < 2 { // in the output and in the copied environment
		t.Errorf("%v; %d files have the marker, so the search is blind", err, found)
	}
}

// TestNoSecretOnPostgreSQL: no row of any table has the secret of a job.
func TestNoSecretOnPostgreSQL(t *testing.T) {
	t.Parallel()
	keys, address := startKeyServer(t)
	value := newCanary(t)
	database := pgtest.New(t).Database(t)
	s := serve(t, t.TempDir(), "SSL_CERT_FILE="+keys.ca, "DATABASE_URL="+database, "CORE_API_SANDBOX_NET_PRIVATE="+address,
		"CORE_API_SANDBOX_POLICY_NET_ALLOW="+keys.host, "THE_KEY="+value.value,
		fmt.Sprintf(`CORE_API_SANDBOX_SECRETS={"env": {"env": "THE_KEY", "hosts": [%q]}}`, keys.host))
	result := s.exec(shell("rows", "echo a-marker; curl -sS https://"+keys.host+"/rows", "policy_overrides", object{
		"net.mode": "allowlist", "net.credentials": []object{{"secret": "env", "host": keys.host, "query": "key"}},
	}))
	if keys.of("/rows") != value.value {
		t.Errorf("the server got %q: %v", keys.of("/rows"), result)
	}
	s.terminate()
	s.exitCode()
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "SET xmlbinary TO hex"); err != nil {
		t.Fatal(err)
	}
	var rows string
	if err := db.QueryRowContext(t.Context(), `
		SELECT string_agg(query_to_xml(format('SELECT * FROM %I.%I', table_schema, table_name), true, false, '')::text, '')
		FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if value.in([]byte(rows+strings.ToLower(rows))) || !strings.Contains(rows, "a-marker") {
		t.Errorf("%d bytes of rows have the secret, or lack what they must have", len(rows))
	}
}

// secretsOfSession runs a command and a cell of Python in a session with a secret.
func (s *process) secretsOfSession(keys *keyServer, value canary, overrides object) {
	s.t.Helper()
	x := s.startSession("session", "policy_overrides", overrides)
	for path, exec := range map[string]object{
		"/command": {"kind": "shell", "script": "curl -sS https://" + keys.host + "/command; ls -d /tmp/.secbox-ca-* | wc -l; echo $SSL_CERT_FILE"},
		"/cell": {
			"kind": "python", "context": "main", "code": "import urllib.request as u; print(u.urlopen('https://" + keys.host + "/cell').read().decode())",
		},
	} {
		result := s.exec(object{"project_id": "session", "session_id": x.id, "exec": exec})
		if out := result.str("stdout"); !strings.Contains(out, "served") || keys.of(path) != value.value {
			s.t.Errorf("%s: %v; the server got %q", path, result, keys.of(path))
		}
	}
	left := s.exec(object{"project_id": "session", "session_id": x.id, "exec": object{"kind": "shell", "script": "ls -d /tmp/.secbox-ca-* | wc -l"}})
	if n := strings.TrimSpace(left.str("stdout")); n != "4" && n != "2" { // its own two, and an interpreter's
		s.t.Errorf("files of authorities in the session: %s", n)
	}
	s.clean(value, "SSL_CERT_FILE=")
	if a := s.send(http.MethodDelete, "/sandbox/sessions/"+x.id, nil); a.Code >= 300 {
		s.t.Errorf("%d %s", a.Code, a.Body)
	}
}

// clean checks that no running container has the secret: in its configuration, its files, and,
// where this test may read it, the memory of its processes. One process must have the mark.
func (s *process) clean(value canary, mark string) {
	s.t.Helper()
	var processes []string
	for _, container := range s.containers() {
		var said []string
		for _, args := range [][]string{{"inspect", container}, {"export", container}, {"top", container, "-o", "pid"}} {
			out, err := s.tryDocker(args...)
			if err != nil { // an earlier exec's, which is gone by now
				break
			}
			said = append(said, out)
		}
		if len(said) < 3 {
			eventually(s.t, "the end of a container that cannot be looked at", func() bool {
				return s.docker("ps", "-q", "--filter", "name="+container) == ""
			})
			continue
		}
		if value.in([]byte(said[0])) || value.in([]byte(said[1])) {
			s.t.Errorf("container %s has the secret", container)
		}
		processes = append(processes, strings.Fields(said[2])[1:]...)
	}
	seen := os.Getuid() != 0
	for _, pid := range processes {
		for _, name := range []string{"environ", "cmdline"} {
			if text, _ := os.ReadFile(filepath.Join("/proc", pid, name)); value.in(text) {
				s.t.Errorf("%s of process %s has the secret", name, pid)
			}
		}
		if memoryHas(pid, value) {
			s.t.Errorf("the memory of process %s has the secret", pid)
		}
		seen = seen || memoryHas(pid, canary{forms: []string{mark}})
	}
	if !seen {
		s.t.Errorf("the memory of no process has %s, so the search is blind", mark)
	}
}

// memoryHas searches the writable memory of a process, as far as it may be read.
func memoryHas(pid string, value canary) bool {
	maps, _ := os.ReadFile(filepath.Join("/proc", pid, "maps"))
	memory, err := os.Open(filepath.Join("/proc", pid, "mem"))
	if err != nil {
		return false
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") || to-from > 256<<20 {
			continue
		}
		content := make([]byte, to-from)
		if n, _ := memory.ReadAt(content, from); value.in(content[:n]) {
			return true
		}
	}
	return false
}
