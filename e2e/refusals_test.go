package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/audit"
)

// TestRefusedRequests checks that refused requests are recorded, and that many of them take little
// disk space and few rows.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir, noPool)
	_, auditor := s.newToken(tokens.Spec{Role: tokens.Auditor})
	noisyID, noisy := s.newToken(tokens.Spec{Role: tokens.Worker})
	before := stateBytes(t, dir)

	inputs := make([]object, 4000)
	for i := range inputs {
		inputs[i] = object{"path": fmt.Sprintf("%s/%d", strings.Repeat(strings.Repeat("d", 200)+"/", 15), i), "content": ""}
	}
	huge := shell("noise", "true", "inputs", inputs, "policy_overrides", object{"memory_mb": 999999})
	hugeOnes, begun := scaled(1, 3), time.Now()
	for range hugeOnes {
		problem := s.as(noisy).refused(http.StatusForbidden, "policy_denied", huge)
		record := s.as(auditor).get("/sandbox/execs/" + problem.str("exec_id"))
		if large := record.at("large_lists.inputs").(map[string]any); large["count"] != 4000.0 || len(record.list("inputs")) != int(large["kept"].(float64)) {
			t.Errorf("the record has %d inputs and says %v", len(record.list("inputs")), large)
		}
	}
	s.recordsWhatIsRefused(auditor)

	small := shell("noise", "true", "policy_overrides", object{"memory_mb": 999999})
	recorded, omitted := hugeOnes, 0
	for omitted < 10 && recorded < 200 {
		if problem := s.as(noisy).refused(http.StatusForbidden, "policy_denied", small); problem.str("exec_id") != "" {
			recorded++
		} else {
			omitted++
		}
	}
	if most := 61 + int(10*time.Since(begun).Minutes()); recorded < 60 || recorded > most { // 60 at once, and 10 in a minute
		t.Errorf("%d refusals are on record, want 60 to %d", recorded, most)
	}
	if grown := stateBytes(t, dir) - before; grown > 8<<20 { // WAL included
		t.Errorf("the state dir has grown by %d bytes", grown)
	}
	page := s.as(auditor).send(http.MethodGet, "/sandbox/execs?limit=500&status=rejected", nil)
	if items := page.json(t).list("items"); page.Code != http.StatusOK || len(items) != recorded+6 || len(page.Body) > 2<<20 {
		t.Errorf("the auditor's list: %d, %d items, %d bytes", page.Code, len(items), len(page.Body))
	}

	if err := s.app.Close(); err != nil { // writes the row that counts the omitted refusals
		t.Fatal(err)
	}
	s.inDatabase(func(ctx context.Context, db audit.Store) {
		rows, _, err := db.List(ctx, audit.Filter{RequestedBy: noisyID}, nil, 1)
		if err != nil || len(rows) != 1 || rows[0].ErrorReason != audit.RefusalsOmitted ||
			!strings.HasPrefix(rows[0].Detail, fmt.Sprint(omitted, " refused requests")) {
			t.Errorf("%v: %+v", err, rows)
		}
	})
}

// recordsWhatIsRefused makes six requests that a token may not make, or that lead out of a skill's
// folder.
func (s *testServer) recordsWhatIsRefused(auditor string) {
	s.t.Helper()
	id, mine := s.newToken(tokens.Spec{Role: tokens.Worker, Projects: []string{"mine", "ag~alice"}})
	alice := s.as(mine)
	const skill, sandbox = "/v1/skills/alice/ag/tool/execute", "/v1/sandbox/alice/ag/execute"
	for _, c := range []struct {
		what, path string
		body       any
		code       string
		record     object
	}{
		{
			"an exec", "/sandbox/execs", shell("other", "true", "task_ref", object{"task_id": "t"}), "forbidden",
			object{"project_id": "other", "cmd": "bash", "task_id": "t"},
		},
		{"an invoke", "/skills/shell.run/invoke", object{"project_id": "ag~bob", "inputs": object{"script": "true"}}, "forbidden", object{
			"project_id": "ag~bob", "skill_id": "shell.run", "agent_id": "ag", "user_id": "bob",
		}},
		{
			"another's skill", "/v1/skills/bob/ag/tool/execute?command=ls",
			[]string{"-l"},
			"forbidden",
			object{"project_id": "ag~bob", "skill_id": "tool", "cmd": "ls", "user_id": "bob"},
		},
		{
			"a path out of a skill", skill + "?command=cat",
			[]string{"../other/SKILL.md"},
			"path_refused",
			object{"project_id": "ag~alice", "skill_id": "tool", "cmd": "cat"},
		},
		{
			"a path out of the sandbox", sandbox + "?command=cat",
			[]string{"/etc/passwd"},
			"path_refused",
			object{"project_id": "ag~alice", "skill_id": "", "cmd": "cat"},
		},
	} {
		answer := alice.send(http.MethodPost, c.path, c.body)
		if !strings.Contains(string(answer.Body), c.code) {
			s.t.Errorf("%s: %d %s", c.what, answer.Code, answer.Body)
		}
		rows := s.as(auditor).get("/sandbox/execs?limit=1").list("items")
		c.record["status"], c.record["error_reason"], c.record["requested_by"], c.record["policy_snapshot"], c.record["backend"] = "rejected", c.code, id, nil,
			""
		rows[0].wants(s.t, c.record)
	}
	if result := shellTool(s.t, alice.mcpClient("", nil), "true", "project_id", "other"); !result.IsError {
		s.t.Errorf("a tool: %v", result)
	}
	rows := s.as(auditor).get("/sandbox/execs?limit=1").list("items")
	rows[0].wants(s.t, object{"project_id": "other", "skill_id": "shell.run", "status": "rejected", "error_reason": "forbidden", "requested_by": id})

	// No exec was asked for yet: these are in the log only.
	before := len(s.as(auditor).get("/sandbox/execs?limit=500").list("items"))
	for _, a := range []answer{
		alice.send(http.MethodPost, "/sandbox/execs", "{"), s.as(auditor).send(http.MethodPost, "/sandbox/execs", shell("mine", "true")),
		s.as("sbx_none").send(http.MethodPost, "/sandbox/execs", shell("mine", "true")),
		alice.send(http.MethodPost, "/sandbox/execs", shell("mine", "true", "inputs", []object{{"path": "../x", "content": ""}})),
	} {
		if a.Code < 400 || a.Code > 403 {
			s.t.Errorf("%d %s", a.Code, a.Body)
		}
	}
	if after := len(s.as(auditor).get("/sandbox/execs?limit=500").list("items")); after != before {
		s.t.Errorf("%d rows, there were %d", after, before)
	}
}

// stateBytes is the size of a server's state dir.
func stateBytes(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "state"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
