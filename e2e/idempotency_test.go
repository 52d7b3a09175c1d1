package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"secbox/access/tokens"
	"secbox/settings"
)

// again posts a request under a key and wants the answer of an earlier exec, whole.
func (s *testServer) again(request object, key string, first object) {
	s.t.Helper()
	a := s.send(http.MethodPost, "/sandbox/execs", request, "Idempotency-Key", key)
	if got := a.json(s.t); a.Code != http.StatusOK || a.Header.Get("Idempotency-Replayed") != "true" || !reflect.DeepEqual(got, first) {
		s.t.Errorf("the second answer %d %v\n%v\ndiffers from the first\n%v", a.Code, a.Header, got, first)
	}
}

// TestOneKeyOneExec: under one key a request runs once, however often, when and from how many sides
// it comes.
func TestOneKeyOneExec(t *testing.T) {
	t.Parallel()
	dir := hostileDir(t)
	s := tidyIn(t, dir, noPool, func(c *settings.Settings) { c.Sandbox.MaxConcurrentExecs = 3 })
	created := s.watchCreations()
	request := shell("demo", `echo ran >> log; printf 'out\377'; echo err >&2; echo a > /workspace/artifacts/a.txt; sleep 0.3; exit 3`,
		"inputs", []object{{"path": "in.txt", "content": "x"}}, "task_ref", object{"task_id": "t"})

	var all sync.WaitGroup
	var mu sync.Mutex
	var answers []answer
	for range 20 {
		all.Go(func() {
			a := s.send(http.MethodPost, "/sandbox/execs", request, "Idempotency-Key", "twenty at once")
			mu.Lock()
			answers = append(answers, a)
			mu.Unlock()
		})
	}
	all.Wait()
	var first object
	replayed := 0
	for _, a := range answers {
		if a.Code != http.StatusOK {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		if a.Header.Get("Idempotency-Replayed") != "true" {
			first = a.json(t)
			continue
		}
		replayed++
	}
	if replayed != 19 || first == nil {
		t.Fatalf("%d answers were replayed", replayed)
	}
	first.wants(t, object{"status": "failed", "exit_code": 3, "stdout": "out\uFFFD", "stderr": "err\n", "stdout_bytes": 4})
	for _, a := range answers {
		if !reflect.DeepEqual(a.json(t), first) {
			t.Errorf("%s\ndiffers from\n%v", a.Body, first)
		}
	}
	id := first.str("exec_id")
	if ran, err := os.ReadFile(s.work("demo", "log")); string(ran) != "ran\n" {
		t.Errorf("it ran more than once: %q %v", ran, err)
	}
	if entries, err := os.ReadDir(filepath.Join(s.project("demo"), "artifacts")); err != nil || len(entries) != 1 || entries[0].Name() != id {
		t.Errorf("artifacts: %v %v", entries, err)
	}
	if rows := s.records("task_id=t"); len(rows) != 1 || rows[0].str("exec_id") != id || rows[0].str("idempotency_key") != "twenty at once" {
		t.Errorf("rows %v", rows)
	}

	// Another request under the key, and the same one written otherwise.
	other := shell("demo", "true", "inputs", []object{{"path": "in.txt", "content": "x"}})
	for name, body := range map[string]any{
		"another script": other, "another policy": withOverride(request, "pids", 100),
		"another task": without(request, "task_ref"),
	} {
		problem := s.refused(http.StatusConflict, "idempotency_mismatch", body, "Idempotency-Key", "twenty at once")
		if problem.str("exec_id") != id {
			t.Errorf("%s: %v", name, problem)
		}
	}
	text, err := json.MarshalIndent(request, " ", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if a := s.send(http.MethodPost, "/sandbox/execs", string(text), "Idempotency-Key", "twenty at once"); a.json(t).str("exec_id") != id {
		t.Errorf("%d %s", a.Code, a.Body)
	}

	// A refusal by policy is an answer like any other; what could not be tried leaves the key free.
	denied := withOverride(request, "memory_mb", 1<<20)
	refusal := s.refused(http.StatusForbidden, "policy_denied", denied, "Idempotency-Key", "denied")
	if again := s.refused(http.StatusForbidden, "policy_denied", denied, "Idempotency-Key", "denied"); again.str("exec_id") != refusal.str("exec_id") {
		t.Errorf("%v, then %v", refusal, again)
	}
	s.refused(http.StatusConflict, "idempotency_mismatch", request, "Idempotency-Key", "denied")
	if rows := s.records("status=rejected"); len(rows) != 1 {
		t.Errorf("%d rows of one refusal", len(rows))
	}

	// After a restart, and beside the first tokens: a key is its token's own.
	if before := created.upTo(s.works("other").str("exec_id")); !slices.Equal(before, []string{id}) {
		t.Errorf("containers were created for %q, not only for %s", before, id)
	}
	if err := s.app.Close(); err != nil {
		t.Fatal(err)
	}
	s = tidyIn(t, dir, noPool)
	s.again(request, "twenty at once", first)
	s.refused(http.StatusConflict, "idempotency_mismatch", other, "Idempotency-Key", "twenty at once")
	if again := s.refused(http.StatusForbidden, "policy_denied", denied, "Idempotency-Key", "denied"); again.str("exec_id") != refusal.str("exec_id") {
		t.Errorf("after a restart: %v, then %v", refusal, again)
	}
	_, worker := s.newToken(tokens.Spec{Role: tokens.Worker})
	if result := s.as(worker).exec(request, "Idempotency-Key", "twenty at once"); result.str("exec_id") == id {
		t.Error("another token got this one's exec")
	}
}

// TestKeyIsFreeAfterRefusal checks that a request refused for a temporary reason may be sent again
// under its key.
func TestKeyIsFreeAfterRefusal(t *testing.T) {
	t.Parallel()
	s := shared(t)
	holder := s.post(shell("key-is-free", waiting("cat /workspace/inputs/in.txt"), "inputs", []object{{"path": "in.txt", "content": "first"}}))
	s.awaitStart("key-is-free")
	request := shell("key-is-free", "cat /workspace/inputs/in.txt", "inputs", []object{{"path": "in.txt", "content": "second"}})
	for range 2 {
		problem := s.refused(http.StatusConflict, "input_in_use", request, "Idempotency-Key", "k")
		record := s.get("/sandbox/execs/" + problem.str("exec_id"))
		record.wants(t, object{"status": "rejected", "error_reason": "input_refused", "idempotency_key": "", "artifacts_path": ""})
	}
	s.letGo("key-is-free")
	holder.result().wants(t, object{"status": "succeeded", "stdout": "first"})
	result := s.exec(request, "Idempotency-Key", "k")
	result.wants(t, object{"status": "succeeded", "stdout": "second"})
	s.again(request, "k", result)
	// Nothing is left of the two that were refused.
	s.onlyWaiting("key-is-free")
}

// withOverride is the request with one more override.
func withOverride(request object, field string, value any) object {
	o := without(request, "policy_overrides")
	o["policy_overrides"] = object{field: value}
	return o
}

// without is the request without a field.
func without(request object, field string) object {
	o := object{}
	for key, value := range request {
		if key != field {
			o[key] = value
		}
	}
	return o
}
