package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"secbox/access/tokens"
	"secbox/settings"
)

// TestOneTokenLeavesRoomToOthers: a token that fills its share of the places and of the queue keeps
// no other token waiting.
func TestOneTokenLeavesRoomToOthers(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(c *settings.Settings) { c.Sandbox.MaxConcurrentExecs, c.Sandbox.MaxQueuedExecs = 2, 4 })
	_, secret := s.newToken(tokens.Spec{Role: tokens.Worker, Users: []string{"alice"}})
	alice := s.as(secret)
	_, secret = s.newToken(tokens.Spec{Role: tokens.Worker, Users: []string{"bob"}})
	bob := s.as(secret)

	var sleeping sync.WaitGroup
	for range 4 { // one runs and three wait
		sleeping.Go(func() { alice.send(http.MethodPost, "/sandbox/execs", shell("ag~alice", "sleep 600")) })
	}
	open := func() (running, queued []object) {
		return alice.get("/sandbox/execs?status=running").list("items"), alice.get("/sandbox/execs?status=queued").list("items")
	}
	eventually(t, "one runs and three wait", func() bool {
		running, queued := open()
		return len(running) == 1 && len(queued) == 3
	})
	full := alice.send(http.MethodPost, "/sandbox/execs", shell("ag~alice", "true"))
	if full.Code != http.StatusTooManyRequests || full.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(full.Body), "sandbox.max_queued_execs_per_token") {
		t.Errorf("beyond its share: %d %s", full.Code, full.Body)
	}
	if result := bob.exec(shell("ag~bob", "echo hi")); result.str("stdout") != "hi\n" {
		t.Errorf("the other token: %v", result)
	}
	if a := bob.send(http.MethodPost, "/sandbox/execs", shell("c1", "true")); a.Code != http.StatusForbidden {
		t.Errorf("a plain project, by a token that is limited to users: %d %s", a.Code, a.Body)
	}
	running, queued := open()
	for _, e := range append(queued, running...) { // those that wait first, or they would run
		alice.send(http.MethodPost, "/sandbox/execs/"+e.str("exec_id")+"/cancel", nil)
	}
	sleeping.Wait()
}
