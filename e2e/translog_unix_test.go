//go:build unix

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/audit/translog/logtest"
	"secbox/audit/translog/proof"
	"secbox/settings"
	"secbox/store/storetest/pgtest"
)

// logged waits until the transparency log has all events of the execs so far, and returns its
// checkpoint.
func (s *testServer) logged() []byte {
	s.t.Helper()
	for _, r := range s.records("") {
		eventually(s.t, "the transparency log has all events", func() bool {
			return s.send(http.MethodGet, "/sandbox/execs/"+r.str("exec_id")+"/proof", nil).Code == http.StatusOK
		})
	}
	a := s.send(http.MethodGet, "/audit/log/checkpoint", nil)
	if a.Code != http.StatusOK {
		s.t.Fatalf("%d %s", a.Code, a.Body)
	}
	return a.Body
}

// verifyLog verifies the log over HTTP with libraries that are not core-api's, and the proof of
// every exec and administrative event. It returns the entries.
func (s *testServer) verifyLog(key string) [][]byte {
	s.t.Helper()
	entries, err := logtest.Verify(key, func(path string) ([]byte, error) {
		a := s.send(http.MethodGet, "/audit/log/"+path, nil)
		if a.Code != http.StatusOK {
			return nil, fmt.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
		return a.Body, nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	events := 0
	for _, r := range s.records("") {
		a := s.send(http.MethodGet, "/sandbox/execs/"+r.str("exec_id")+"/proof", nil)
		result, err := proof.Check(a.Body, key)
		if err != nil {
			s.t.Errorf("%s: %v", r.str("exec_id"), err)
		}
		if _, err := logtest.VerifyProof(key, a.Body); err != nil {
			s.t.Errorf("%s, by the independent verifier: %v", r.str("exec_id"), err)
		}
		events += len(result.Events)
	}
	for _, e := range s.get("/audit/events?limit=500").list("items") {
		id := int64(e.num("id"))
		a := s.send(http.MethodGet, fmt.Sprintf("/audit/events/%d/proof", id), nil)
		if result, err := proof.CheckAdmin(a.Body, key); err != nil || result.Event.Seq != id {
			s.t.Errorf("event %d: %+v, %v", id, result, err)
		}
		events++
	}
	if events != len(entries) {
		s.t.Errorf("the execs and the administration have %d events, and the log has %d entries", events, len(entries))
	}
	return entries
}

// logKey is the public key that `core-api audit key` prints.
func logKey(t *testing.T, args ...string) string {
	t.Helper()
	cmd := coreAPI(t, os.Environ(), append([]string{"audit", "key"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("audit key: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// TestTransparencyLogOutlivesKills kills core-api while it writes events and puts them into the
// log.
func TestTransparencyLogOutlivesKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const noPool = "CORE_API_POOL_MAX=0"
	var points [][]byte
	for i := range 3 {
		p := serve(t, dir, noPool)
		p.exec(shell("demo", "echo hi"))
		if i > 0 { // else killed before, while or after the log gets its first events
			points = append(points, p.logged())
		}
		p.exec(shell("demo", "exit 3"))
		running := p.post(shell("waits", waiting("true")))
		p.awaitStart("waits")
		p.kill()
		running.noAnswer()
		p.noContainers()
	}
	p := serve(t, dir, noPool)
	points = append(points, p.logged())
	key := logKey(t, "--state-dir", filepath.Join(dir, "state"))
	entries := p.verifyLog(key)
	for _, point := range points {
		if err := logtest.Consistent(key, point, entries); err != nil {
			t.Error(err)
		}
	}
	starts := p.get("/audit/events?kind=node_started").list("items")
	if len(starts) != 4 || starts[0].at("data.previous_end_recorded") != false {
		t.Errorf("%v", starts)
	}
	if info, err := os.Stat(filepath.Join(dir, "state", "log.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestTransparencyLogOfTwoNodes: nodes with the same log key extend one log, and a node with
// another one leaves it alone.
func TestTransparencyLogOfTwoNodes(t *testing.T) {
	t.Parallel()
	database := settings.Secret(pgtest.New(t).Database(t))
	file, hmac := filepath.Join(t.TempDir(), "log.key"), filepath.Join(t.TempDir(), "hmac.key")
	joined := func(c *settings.Settings) { c.DatabaseURL, c.Audit.HMACKeyFile = database, hmac }
	on := func(c *settings.Settings) { joined(c); c.Audit.LogKeyFile = file }
	one, two := tidy(t, noPool, on), tidy(t, noPool, on)
	one.exec(shell("a", "echo one"))
	first := one.logged()
	foreign := tidy(t, noPool, joined)
	two.exec(shell("b", "echo two"))
	foreign.exec(shell("c", "echo three"))
	two.logged()
	key := logKey(t, "--database-url", string(database), "--state-dir", t.TempDir(), "--config", writeFile(t, "audit: {log_key_file: "+file+"}"))
	entries := foreign.verifyLog(key)
	if err := logtest.Consistent(key, first, entries); err != nil {
		t.Error(err)
	}
}

// writeFile writes a settings file.
func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
