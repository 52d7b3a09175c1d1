package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/settings"
)

// refusedInvoke calls a skill and wants a problem with this status, code and field; an empty field:
// none is named.
func (s *testServer) refusedInvoke(skill string, request any, status int, code, field string, header ...string) object {
	s.t.Helper()
	a := s.send(http.MethodPost, "/skills/"+skill+"/invoke", request, header...)
	problem := a.json(s.t)
	fields := problem.list("errors")
	if a.Code != status || problem.str("code") != code || (field == "") != (len(fields) == 0) || field != "" && fields[0].str("field") != field {
		s.t.Errorf("%v: got %d %s, want %d %s %s", request, a.Code, a.Body, status, code, field)
	}
	return problem
}

// TestSkillOverHTTP lists, reads and invokes a skill and looks up its record.
func TestSkillOverHTTP(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	list := s.get("/skills").list("items")
	n := slices.IndexFunc(list, func(o object) bool { return o.str("id") == "shell.run" })
	if n < 0 {
		t.Fatalf("shell.run is not listed: %v", list)
	}
	list[n].wants(t, object{"tool": "skill.shell.run", "source": "built-in", "read_only": false, "runtime.kind": "docker", "permissions.net.mode": "none"})
	one := s.get("/skills/shell.run")
	if one.str("digest") != list[n].str("digest") || one.str("readme") == "" || len(one.list("files")) < 2 {
		t.Errorf("%v", one)
	}
	a := s.invoke("shell.run", object{
		"project_id": "demo", "conversation_id": "c9",
		"inputs": object{"script": "cat /workspace/inputs/a.txt; echo kept > /workspace/artifacts/out.txt; exit 3"},
		"files":  []object{{"path": "a.txt", "content": "aGVsbG8=", "encoding": "base64"}}, "task_ref": object{"task_id": "t9"},
	})
	a.wants(t, object{"exec.status": "failed", "exec.error_reason": "nonzero_exit", "exec.exit_code": 3, "outputs.exit_code": 3, "outputs.stdout": "hello"})
	id := a.str("exec.exec_id")
	if got := string(s.artifact(id, "out.txt").Body); got != "kept\n" {
		t.Errorf("the artifact holds %q", got)
	}
	record := s.get("/sandbox/execs/" + id)
	record.wants(t, object{"skill_id": "shell.run", "task_id": "t9", "conversation_id": "c9", "project_id": "demo", "status": "failed"})
	fields, _ := record.at("policy_snapshot.fields").(map[string]any)
	for name, layer := range map[string]string{"net.mode": "manifest", "fs.write": "manifest", "timeout_ms": "default"} {
		if field, _ := fields[name].(map[string]any); field["layer"] != layer {
			t.Errorf("%s comes from %v", name, field)
		}
	}
	page := s.get("/sandbox/execs?skill_id=shell.run").list("items")
	if len(page) != 1 || page[0].str("exec_id") != id || len(s.get("/sandbox/execs?skill_id=python.run").list("items")) != 0 {
		t.Errorf("listed by skill: %v", page)
	}
	resolved := s.send(http.MethodPost, "/sandbox/policy/resolve", object{"project_id": "demo", "skill_id": "shell.run"})
	if resolved.Code != http.StatusOK || !strings.Contains(string(resolved.Body), `"manifest"`) {
		t.Errorf("resolve: %d %s", resolved.Code, resolved.Body)
	}
	if a := s.send(http.MethodPost, "/sandbox/policy/resolve", object{"project_id": "demo", "skill_id": "no.such"}); a.Code != http.StatusNotFound {
		t.Errorf("resolve of an unknown skill: %d", a.Code)
	}
	numbers := string(s.send(http.MethodGet, "/metrics", nil).Body)
	for _, want := range []string{
		`secbox_skill_invokes_total{skill="shell.run",status="failed"} 1`, fmt.Sprintf("secbox_skills_loaded %d", len(list)),
		"secbox_skills_broken 0",
	} {
		if !strings.Contains(numbers, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// TestBrokenSkill checks that a broken skill is reported, hides no other, and works once it is
// repaired, without a restart.
func TestBrokenSkill(t *testing.T) {
	t.Parallel()
	s, dir := withSkills(t, []trialSkill{{id: "trial.good", script: `printf '{}' >"$SKILL_OUTPUT"`}})
	health := func() (loaded, broken float64, problems []string) {
		o := s.get("/sandbox/health")
		for _, p := range o.list("problems") {
			if p.str("check") == "skills" {
				problems = append(problems, p.str("reason"))
			}
		}
		return o.num("skills.loaded"), o.num("skills.broken"), problems
	}
	before, broken, problems := health()
	if broken != 0 || len(problems) > 0 || before < 2 {
		t.Fatalf("%v loaded, %v broken, %v", before, broken, problems)
	}
	wrong := trialSkill{id: "trial.wrong", script: `printf '{"n": 1}' >"$SKILL_OUTPUT"`, change: func(m object) { m["runtime"].(object)["kind"] = "host" }}
	wrong.put(t, dir)
	eventually(t, "the broken skill is listed", func() bool { return len(s.get("/skills?broken=true").list("broken")) == 1 })
	listed := s.get("/skills?broken=true").list("broken")[0]
	if first := listed.list("problems")[0]; listed.str("folder") != "trial.wrong" || listed.str("source") != "skills_dir" ||
		first.str("file") != "manifest.json" || first.str("pointer") != "/runtime/kind" || first.str("reason") == "" {
		t.Errorf("%v", listed)
	}
	loaded, broken, problems := health()
	if loaded != before || broken != 1 || len(problems) != 1 || !strings.Contains(problems[0], "trial.wrong") ||
		!strings.Contains(problems[0], "/runtime/kind") {
		t.Errorf("%v loaded, %v broken, %v", loaded, broken, problems)
	}
	if a := s.send(http.MethodGet, "/readyz", nil); a.Code != http.StatusOK {
		t.Errorf("a broken skill stops execs: %d %s", a.Code, a.Body)
	}
	s.refusedInvoke("trial.wrong", object{"project_id": "demo"}, http.StatusNotFound, "unknown_skill", "skill_id")
	s.invoke("trial.good", object{"project_id": "demo"}).wants(t, object{"exec.status": "succeeded"})

	wrong.change = nil
	wrong.put(t, dir)
	eventually(t, "the mended skill is no problem any more", func() bool { _, broken, problems := health(); return broken == 0 && len(problems) == 0 })
	s.invoke("trial.wrong", object{"project_id": "demo"}).wants(t, object{"exec.status": "succeeded", "outputs.n": 1})
	if err := os.RemoveAll(filepath.Join(dir, "trial.wrong")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the skill that was removed is gone", func() bool { return s.send(http.MethodGet, "/skills/trial.wrong", nil).Code == http.StatusNotFound })
}

// TestRefusedInvokes checks that invalid invokes run nothing and that the answer names the field.
func TestRefusedInvokes(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(s *settings.Settings) { s.HTTP.MaxBodyBytes = 1 << 20 })
	script := object{"script": "true"}
	for _, c := range []struct {
		request     any
		status      int
		code, field string
	}{
		{object{"project_id": "demo", "inputs": nil}, 400, "invalid_request", "inputs"},
		{object{"project_id": "demo", "inputs": "true"}, 422, "invalid_inputs", "inputs"},
		{object{"project_id": "demo", "inputs": []string{"true"}}, 422, "invalid_inputs", "inputs"},
		{object{"project_id": "demo"}, 422, "invalid_inputs", "inputs.script"},
		{object{"project_id": "demo", "inputs": object{"script": nil}}, 422, "invalid_inputs", "inputs.script"},
		{object{"project_id": "demo", "inputs": object{"script": "true", "skript": 1}}, 422, "invalid_inputs", "inputs.skript"},
		{`{"project_id": "demo", "inputs": {"script": "true", "script": "false"}}`, 400, "invalid_request", "inputs.script"},
		{object{"project_id": "..", "inputs": script}, 400, "invalid_request", "project_id"},
		{object{"inputs": script}, 400, "invalid_request", "project_id"},
		{object{"project_id": "demo", "inputs": script, "policy_overrides": object{"memory_mb": 1 << 20}}, 403, "policy_denied", "memory_mb"},
		{object{"project_id": "demo", "inputs": object{"script": strings.Repeat("x", 1<<20)}}, 413, "body_too_large", ""},
	} {
		s.refusedInvoke("shell.run", c.request, c.status, c.code, c.field)
	}
	for _, path := range []string{"../x", "/etc/passwd", "a/../../x", `C:\x`, "a\x00b", ".skill/x/run.sh", ".skill", "CON", ""} {
		s.refusedInvoke("shell.run", object{"project_id": "demo", "inputs": script, "files": []object{{"path": path, "content": ""}}}, 400, "invalid_request",
			"files[0].path")
	}
	s.refusedInvoke("shell.run", object{
		"project_id": "demo", "inputs": script,
		"files": []object{{"path": "a", "content": "1"}, {"path": "a", "content": "2"}},
	},
		400, "invalid_request", "files[1].path")
	for _, skill := range []string{"no.such", "shell", "skill.shell.run", "SHELL.RUN"} {
		s.refusedInvoke(skill, object{"project_id": "demo", "inputs": script}, 404, "unknown_skill", "skill_id")
	}
	for _, o := range s.get("/sandbox/execs").list("items") {
		if o.str("status") != "rejected" {
			t.Errorf("ran: %v", o)
		}
	}
	if list := s.containers(); len(list) > 0 {
		t.Errorf("containers: %v", list)
	}
}

// TestInvokeReplay repeats an invoke under its key, before and after a restart.
func TestInvokeReplay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir, noPool)
	request := object{"project_id": "demo", "inputs": object{"script": "echo $RANDOM$RANDOM$RANDOM; exit 5"}}
	first := s.send(http.MethodPost, "/skills/shell.run/invoke", request, "Idempotency-Key", "k1")
	want := first.json(t)
	want.wants(t, object{"exec.status": "failed", "outputs.exit_code": 5})
	same := func() {
		t.Helper()
		a := s.send(http.MethodPost, "/skills/shell.run/invoke", request, "Idempotency-Key", "k1")
		if a.Code != http.StatusOK || a.Header.Get("Idempotency-Replayed") != "true" || first.Header.Get("Idempotency-Replayed") != "" {
			t.Fatalf("%d %v", a.Code, a.Header)
		}
		a.json(t).wants(t, object{
			"exec.exec_id": want.at("exec.exec_id"), "exec.exit_code": 5, "exec.stdout": want.at("exec.stdout"), "outputs": want.at("outputs"),
		})
	}
	same()
	s.refusedInvoke("shell.run", object{"project_id": "demo", "inputs": object{"script": "echo another"}}, 409, "idempotency_mismatch", "", "Idempotency-Key",
		"k1")
	s.refusedInvoke("python.run", object{"project_id": "demo", "inputs": object{"code": "pass"}}, 409, "idempotency_mismatch", "", "Idempotency-Key", "k1")
	s.refused(409, "idempotency_mismatch", shell("demo", "true", "skill_id", "shell.run"), "Idempotency-Key", "k1")
	if err := s.app.Close(); err != nil {
		t.Fatal(err)
	}
	s = startIn(t, dir, noPool)
	same()
	if list := s.get("/sandbox/execs").list("items"); len(list) != 1 {
		t.Errorf("%d execs for one key", len(list))
	}
}

// TestInvokeAccess invokes with tokens of several roles.
func TestInvokeAccess(t *testing.T) {
	t.Parallel()
	s := start(t, noPool)
	workerID, worker := s.newToken(tokens.Spec{Role: tokens.Worker, Projects: []string{"mine"}})
	_, other := s.newToken(tokens.Spec{Role: tokens.Worker})
	_, auditor := s.newToken(tokens.Spec{Role: tokens.Auditor})
	request := object{"project_id": "mine", "inputs": object{"script": "true"}}
	s.refusedInvoke("shell.run", request, 401, "unauthenticated", "")
	s.as(auditor).refusedInvoke("shell.run", request, 403, "forbidden", "")
	s.as(worker).refusedInvoke("shell.run", object{"project_id": "theirs", "inputs": object{"script": "true"}}, 403, "forbidden", "project_id")
	id := s.as(worker).invoke("shell.run", request).str("exec.exec_id")
	s.as(auditor).get("/sandbox/execs/"+id).wants(t, object{"requested_by": workerID, "skill_id": "shell.run"})
	if a := s.as(other).send(http.MethodGet, "/sandbox/execs/"+id, nil); a.Code != http.StatusNotFound {
		t.Errorf("another worker sees it: %d", a.Code)
	}
	if n := len(s.as(auditor).get("/skills").list("items")); n == 0 {
		t.Error("an auditor sees no skills")
	}
	if a := s.send(http.MethodGet, "/skills", nil); a.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", a.Code)
	}
}
