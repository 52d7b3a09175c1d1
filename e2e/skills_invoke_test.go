package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"secbox/settings"
)

// trialSkill is a skill of the operator's for a test: a manifest that asks for little, and a
// run.sh.
type trialSkill struct {
	id      string
	script  string
	outputs object // the schema; nil: any object
	change  func(manifest object)
}

// put writes the skill's folder.
func (k trialSkill) put(t testing.TB, dir string) {
	t.Helper()
	manifest := object{
		"schema_version": "1", "id": k.id, "name": "A trial", "description": "A skill of a test.",
		"interface": object{
			"inputs":  object{"type": "object", "properties": object{"n": object{"type": "integer", "description": "A number."}}},
			"outputs": object{"type": "object"},
		},
		"runtime":     object{"kind": "docker", "entrypoint": []string{"bash", "./run.sh"}},
		"permissions": object{"fs": object{"read": []string{"inputs/**", "work/**"}, "write": []string{"artifacts/**"}}, "net": object{"mode": "none"}},
		"limits":      object{"timeout_ms": 30000, "memory_mb": 128},
	}
	if k.outputs != nil {
		manifest["interface"].(object)["outputs"] = k.outputs
	}
	if k.change != nil {
		k.change(manifest)
	}
	content, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, k.id)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"run.sh": []byte(k.script), "SKILL.md": []byte("# A trial\n"), "manifest.json": content} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// withSkills boots a server whose operator has these skills.
func withSkills(t testing.TB, list []trialSkill, more ...func(*settings.Settings)) (s *testServer, dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, k := range list {
		k.put(t, dir)
	}
	return start(t, append([]func(*settings.Settings){noPool, func(s *settings.Settings) { s.Sandbox.SkillsDir = dir }}, more...)...), dir
}

// invoke calls a skill and wants 200, with any result of the exec.
func (s *testServer) invoke(skill string, request object) object {
	s.t.Helper()
	a := s.send(http.MethodPost, "/skills/"+skill+"/invoke", request)
	if a.Code != http.StatusOK {
		s.t.Fatalf("invoke %s: %d %s", skill, a.Code, a.Body)
	}
	return a.json(s.t)
}

// TestSkillsConvention checks where a skill finds its input and its folder, and where it writes its
// output.
func TestSkillsConvention(t *testing.T) {
	t.Parallel()
	s, _ := withSkills(t, []trialSkill{{id: "trial.where", script: `
set -u
touch "$SKILL_DIR/x" 2>/dev/null && echo "the folder can be written"
touch "$SKILL_INPUT" 2>/dev/null && echo "the input can be written"
ls /workspace/inputs/.skill/.in 2>/dev/null && echo "the inputs can be listed"
[ "$0" = "$SKILL_DIR/run.sh" ] || echo "run as $0"
[ "$PWD" = /workspace/work ] || echo "run in $PWD"
touch /workspace/work/x 2>/dev/null && echo "work can be written"
jq -c '{got: ., output: $ENV.SKILL_OUTPUT, dir: $ENV.SKILL_DIR, input: $ENV.SKILL_INPUT}' "$SKILL_INPUT" >"$SKILL_OUTPUT"
`}})
	a := s.invoke("trial.where", object{
		"project_id": "demo", "inputs": object{"n": 7}, "task_ref": object{"task_id": "t7"},
		"files": []object{{"path": "a.txt", "content": "hello"}}, "policy_overrides": object{"memory_mb": 96},
	})
	if a.str("exec.status") != "succeeded" || a.str("exec.stdout") != "" {
		t.Fatalf("%v", a)
	}
	digest := s.get("/skills/trial.where").str("digest")
	if a.num("outputs.got.n") != 7 || a.str("outputs.output") != "/workspace/artifacts/skill_output.json" ||
		a.str("outputs.dir") != "/workspace/inputs/.skill/"+digest || len(digest) != 64 {
		t.Errorf("outputs %v, digest %s", a["outputs"], digest)
	}
	record := s.get("/sandbox/execs/" + a.str("exec.exec_id"))
	for path, want := range map[string]any{
		"skill_id": "trial.where", "task_id": "t7", "cmd": "bash", "status": "succeeded",
		"policy_snapshot.fields.timeout_ms.value": 30000.0, "policy_snapshot.fields.timeout_ms.layer": "manifest",
		"policy_snapshot.fields.memory_mb.value": 96.0, "policy_snapshot.fields.memory_mb.layer": "request",
	} {
		if got := record.at(path); got != want {
			t.Errorf("record: %s is %v, want %v", path, got, want)
		}
	}
	fields, _ := record.at("policy_snapshot.fields").(map[string]any)
	if write, _ := fields["fs.write"].(map[string]any); write["layer"] != "manifest" || fmt.Sprint(write["value"]) != "[artifacts/**]" {
		t.Errorf("fs.write in the snapshot: %v", write)
	}
	inputs := record.list("inputs")
	if len(inputs) != 2 || inputs[0].str("path") != "a.txt" || inputs[1].num("size") != float64(len(`{"n":7}`)) {
		t.Errorf("inputs %v", inputs)
	}
	if left, err := os.ReadDir(filepath.Join(s.project("demo"), "inputs/.skill/.in")); err != nil || len(left) > 0 {
		t.Errorf("the input was not removed: %v %v", left, err)
	}
	if page := s.get("/sandbox/execs?skill_id=trial.where"); len(page.list("items")) != 1 {
		t.Errorf("list by skill: %v", page)
	}
}

// TestInvalidOutputs breaks the promise of interface.outputs: the exec fails, and its files are
// kept.
func TestInvalidOutputs(t *testing.T) {
	t.Parallel()
	const kept, gone = true, false
	cases := map[string]struct {
		script string
		says   string
		kept   bool
	}{
		"missing":   {`true`, "skill_output.json", gone},
		"type":      {`printf '{"n":"one"}' >"$SKILL_OUTPUT"`, "/n", kept},
		"too large": {`{ printf '{"n":1,"s":"'; head -c 6000000 /dev/zero | tr '\0' x; printf '"}'; } >"$SKILL_OUTPUT"`, "bytes", kept},
		"over":      {`{ printf '{"n":1}'; head -c 60000000 /dev/zero | tr '\0' ' '; } >"$SKILL_OUTPUT"`, "max_artifacts_bytes_total", gone},
		"symlink":   {`ln -s /etc/hostname "$SKILL_OUTPUT"`, "symlink", gone},
		"FIFO":      {`mkfifo "$SKILL_OUTPUT"`, "fifo", gone},
	}
	var list []trialSkill
	name := func(what string) string {
		return "trial." + strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(what))
	}
	schema := object{"type": "object", "properties": object{"n": object{"type": "integer"}}, "required": []string{"n"}}
	for what, c := range cases {
		list = append(list, trialSkill{id: name(what), script: c.script, outputs: schema})
	}
	s, _ := withSkills(t, list)
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			a := s.invoke(name(what), object{"project_id": "demo"})
			for path, want := range map[string]any{
				"exec.status": "failed", "exec.error_reason": "invalid_output", "exec.exit_code": 0.0, "exec.audit": "stored", "outputs": nil,
			} {
				if got := a.at(path); got != want {
					t.Errorf("%s is %v, want %v", path, got, want)
				}
			}
			if detail := a.str("exec.detail"); !strings.Contains(detail, c.says) {
				t.Errorf("detail %q does not speak of %s", detail, c.says)
			}
			id := a.str("exec.exec_id")
			record := s.get("/sandbox/execs/" + id)
			if record.str("status") != "failed" || record.str("error_reason") != "invalid_output" || record.str("detail") != a.str("exec.detail") {
				t.Errorf("record %v", record)
			}
			var meta object
			content, err := os.ReadFile(filepath.Join(s.dir, "workspace", record.str("artifacts_path"), "meta.json"))
			if err == nil {
				err = json.Unmarshal(content, &meta)
			}
			if err != nil || meta.str("error_reason") != "invalid_output" {
				t.Errorf("meta.json: %v %s", err, content)
			}
			if got := s.artifact(id, "skill_output.json").Code; (got == http.StatusOK) != c.kept {
				t.Errorf("the raw output: %d", got)
			}
		})
	}
}

// TestOutputsOfAFailedSkill are given when they are valid, and are no second failure when they are
// not.
func TestOutputsOfAFailedSkill(t *testing.T) {
	t.Parallel()
	schema := object{"type": "object", "properties": object{"n": object{"type": "integer"}}, "required": []string{"n"}}
	s, _ := withSkills(t, []trialSkill{
		{id: "trial.honest", script: `printf '{"n": 3}' >"$SKILL_OUTPUT"; exit 3`, outputs: schema},
		{id: "trial.mute", script: `exit 4`, outputs: schema},
		{id: "trial.wrong", script: `printf '{}' >"$SKILL_OUTPUT"; exit 5`, outputs: schema},
	})
	for skill, want := range map[string]struct {
		code    float64
		outputs bool
	}{"trial.honest": {3, true}, "trial.mute": {4, false}, "trial.wrong": {5, false}} {
		a := s.invoke(skill, object{"project_id": "demo"})
		if a.str("exec.status") != "failed" || a.str("exec.error_reason") != "nonzero_exit" || a.num("exec.exit_code") != want.code {
			t.Errorf("%s: %v", skill, a)
		}
		if got := a["outputs"] != nil; got != want.outputs || got && a.num("outputs.n") != 3 {
			t.Errorf("%s: outputs %v", skill, a["outputs"])
		}
	}
}

// TestInvokesAtOnce share a project: each gets its own input, and none finds another's.
func TestInvokesAtOnce(t *testing.T) {
	t.Parallel()
	s, _ := withSkills(t, []trialSkill{{id: "trial.echo", script: `
others=$(cat /workspace/inputs/.skill/.in/* 2>/dev/null; find /workspace/inputs -name '*.json' -path '*/.in/*' 2>/dev/null)
jq -c --arg others "$others" '{n, others: $others}' "$SKILL_INPUT" >"$SKILL_OUTPUT"
`}}, func(s *settings.Settings) { s.Sandbox.MaxConcurrentExecs = 8 })
	var all sync.WaitGroup
	answers := make([]answer, scaled(8, 50))
	for n := range answers {
		all.Go(func() {
			answers[n] = s.send(http.MethodPost, "/skills/trial.echo/invoke", object{"project_id": "shared", "inputs": object{"n": n}})
		})
	}
	all.Wait()
	for n, a := range answers {
		if a.Code != http.StatusOK {
			t.Errorf("%d: %d %s", n, a.Code, a.Body)
			continue
		}
		if o := a.json(t); o.at("outputs.n") != float64(n) || o.str("outputs.others") != "" {
			t.Errorf("%d got %v", n, o["outputs"])
		}
	}
	if left, err := os.ReadDir(filepath.Join(s.project("shared"), "inputs/.skill/.in")); err != nil || len(left) > 0 {
		t.Errorf("inputs stay: %v %v", left, err)
	}
}

// TestManifestIsALayer: what it asks for holds for its execs, within the ceilings, whether they are
// invokes or name it only.
func TestManifestIsALayer(t *testing.T) {
	t.Parallel()
	s, _ := withSkills(t, []trialSkill{
		{id: "trial.greedy", script: `true`, change: func(m object) { m["limits"] = object{"memory_mb": 1 << 20} }},
		{id: "trial.modest", script: `printf '{}' >"$SKILL_OUTPUT"`},
		{id: "trial.nosuch", script: `true`, change: func(m object) { m["runtime"].(object)["entrypoint"] = []string{"no-such-program"} }},
		{id: "trial.image", script: `true`, change: func(m object) { m["runtime"].(object)["image"] = "not-allowed:1" }},
	})
	problem := func(skill string, request object) (int, object) {
		a := s.send(http.MethodPost, "/skills/"+skill+"/invoke", request)
		return a.Code, a.json(t)
	}
	code, p := problem("trial.greedy", object{"project_id": "demo"})
	if fields := p.list("errors"); code != http.StatusForbidden || p.str("code") != "policy_denied" || len(fields) != 1 ||
		fields[0].str("field") != "memory_mb" || fields[0].str("layer") != "manifest" {
		t.Errorf("beyond the ceiling: %d %v", code, p)
	}
	if record := s.get("/sandbox/execs/" + p.str("exec_id")); record.str("status") != "rejected" || record.str("skill_id") != "trial.greedy" {
		t.Errorf("record %v", record)
	}
	// A limit that the request replaces does not count.
	record := s.get("/sandbox/execs/" + s.invoke("trial.greedy", object{"project_id": "demo", "policy_overrides": object{"memory_mb": 96}}).str("exec.exec_id"))
	if record.num("policy_snapshot.fields.memory_mb.value") != 96 || record.str("policy_snapshot.fields.memory_mb.layer") != "request" {
		t.Errorf("with an override: %v", record)
	}
	if code, p := problem("trial.image", object{"project_id": "demo"}); code != http.StatusForbidden || p.str("code") != "policy_denied" {
		t.Errorf("an image that is not allowed: %d %v", code, p)
	}
	for field, overrides := range map[string]object{
		"policy_overrides.fs.read":  {"fs.read": []string{}, "fs.write": []string{"artifacts/**"}},
		"policy_overrides.fs.write": {"fs.write": []string{}},
	} {
		code, p := problem("trial.modest", object{"project_id": "demo", "policy_overrides": overrides})
		if fields := p.list("errors"); code != http.StatusBadRequest || len(fields) == 0 ||
			!slices.ContainsFunc(fields, func(f object) bool { return f.str("field") == field }) {
			t.Errorf("%s: %d %v", field, code, p)
		}
	}
	if code, p := problem("trial.modest", object{
		"project_id":       "demo",
		"policy_overrides": object{"fs.write": []string{"work/**", "artifacts/**"}},
	}); code != http.StatusForbidden {
		t.Errorf("more than the manifest grants: %d %v", code, p)
	}
	a := s.invoke("trial.nosuch", object{"project_id": "demo"})
	if a.str("exec.status") != "failed" || a.str("exec.error_reason") != "start_failed" || !strings.Contains(a.str("exec.detail"), "no-such-program") {
		t.Errorf("a program that is not there: %v", a)
	}
	// An exec that only names the skill runs its own command under the skill's limits.
	result := s.exec(shell("demo", "touch /workspace/work/x && echo written; echo ran", "skill_id", "trial.modest"))
	result.wants(t, object{"status": "succeeded", "stdout": "ran\n"})
	record = s.get("/sandbox/execs/" + result.str("exec_id"))
	if record.str("skill_id") != "trial.modest" || record.num("policy_snapshot.fields.memory_mb.value") != 128 ||
		record.str("policy_snapshot.fields.memory_mb.layer") != "manifest" {
		t.Errorf("record %v", record)
	}
	s.refused(http.StatusNotFound, "unknown_skill", shell("demo", "true", "skill_id", "trial.unknown"))
}

// TestSkillChangedOnDisk changes contract and script again and again while it is invoked: each call
// is served whole by one of its versions, and the record's digest says which.
func TestSkillChangedOnDisk(t *testing.T) {
	t.Parallel()
	version := func(n int) trialSkill {
		return trialSkill{
			id: "trial.moving", script: fmt.Sprintf(`printf '{"v": %d}' >"$SKILL_OUTPUT"`, n),
			outputs: object{"type": "object", "properties": object{"v": object{"const": n}}, "required": []string{"v"}},
		}
	}
	s, dir := withSkills(t, []trialSkill{version(0)})
	seen := map[float64]bool{}
	for n := range scaled(3, 6) {
		staged := t.TempDir()
		version(n).put(t, staged)
		// As an operator would: the new folder takes the old one's place by renames.
		old := filepath.Join(t.TempDir(), "old")
		if err := os.Rename(filepath.Join(dir, "trial.moving"), old); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(staged, "trial.moving"), filepath.Join(dir, "trial.moving")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			a := s.send(http.MethodPost, "/skills/trial.moving/invoke", object{"project_id": fmt.Sprintf("p%d", n)})
			if a.Code != http.StatusOK {
				t.Fatalf("version %d: %d %s", n, a.Code, a.Body)
			}
			o := a.json(t)
			if o.str("exec.status") != "succeeded" {
				t.Errorf("version %d: %v", n, o)
			}
			seen[o.num("outputs.v")] = true
		}
		eventually(t, "the new version is served", func() bool {
			return s.invoke("trial.moving", object{"project_id": "latest"}).num("outputs.v") == float64(n)
		})
	}
	if len(seen) < 2 {
		t.Errorf("versions seen: %v", seen)
	}
}

// TestSkillsAreOutOfReach: no request can put anything where skills lie.
func TestSkillsAreOutOfReach(t *testing.T) {
	t.Parallel()
	s, _ := withSkills(t, []trialSkill{{id: "trial.modest", script: `printf '{}' >"$SKILL_OUTPUT"`}})
	s.invoke("trial.modest", object{"project_id": "demo"})
	digest := s.get("/skills/trial.modest").str("digest")
	for _, path := range []string{".skill/" + digest + "/run.sh", ".SKILL/x", "./.skill/.in/x.json", "../inputs/.skill/x"} {
		a := s.send(http.MethodPost, "/skills/trial.modest/invoke", object{"project_id": "demo", "files": []object{{"path": path, "content": "x"}}})
		if fields := a.json(t).list("errors"); a.Code != http.StatusBadRequest || len(fields) != 1 || fields[0].str("field") != "files[0].path" {
			t.Errorf("%s: %d %s", path, a.Code, a.Body)
		}
		s.refused(http.StatusBadRequest, "invalid_request", shell("demo", "true", "inputs", []object{{"path": path, "content": "x"}}))
	}
}
