package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"secbox/access/tokens"
	"secbox/fault"
	"secbox/policy"
	"secbox/skills"
)

// TestSkillsProvider lists and calls as an agent worker does, against a real server.
func TestSkillsProvider(t *testing.T) {
	t.Parallel()
	s, dir := withSkills(t, []trialSkill{{
		id:     "trial.sum",
		script: `jq -c '{sum: (.n + 1), files: [inputs], big: 9007199254740993}' "$SKILL_INPUT" >"$SKILL_OUTPUT"; echo said; echo x > /workspace/artifacts/left.txt`,
	}})
	workerID, secret := s.newToken(tokens.Spec{Role: tokens.Worker, Projects: []string{"mine"}})
	p, err := skills.NewProvider(s.url, secret, skills.WithHTTPClient(s.client))
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string) (skills.Tool, bool) {
		t.Helper()
		list, err := p.ListTools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := slices.IndexFunc(list, func(tool skills.Tool) bool { return tool.Name == name })
		if n < 0 {
			return skills.Tool{}, false
		}
		return list[n], true
	}
	tool, ok := find("skill.trial.sum")
	if !ok || !tool.ReadOnly || tool.SkillID != "trial.sum" || tool.Description == "" || !json.Valid(tool.InputSchema) || !json.Valid(tool.OutputSchema) {
		t.Fatalf("%+v", tool)
	}
	call := skills.ToolCall{ProjectID: "mine", TaskID: "t5", IdempotencyKey: "k5", Files: []skills.ToolFile{{Path: "a/b.bin", Content: []byte{0xff, 0}}}}
	r, err := p.Invoke(t.Context(), tool.Name, map[string]int{"n": 41}, call)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Sum int
		Big json.Number
	}
	if err := json.Unmarshal(r.Outputs, &out); err != nil || out.Sum != 42 || !r.Succeeded() || r.ExitCode == nil || *r.ExitCode != 0 || r.Stdout != "said\n" ||
		r.Replayed {
		t.Fatalf("%v %+v %s", err, r, r.Outputs)
	}
	if n := slices.IndexFunc(r.Artifacts, func(a skills.ToolArtifact) bool { return a.Path == "left.txt" && a.Size == 2 && len(a.SHA256) == 64 }); n < 0 {
		t.Errorf("%+v", r.Artifacts)
	}
	s.as(secret).get("/sandbox/execs/"+r.ExecID).wants(t, object{"skill_id": "trial.sum", "task_id": "t5", "requested_by": workerID})
	again, err := p.Invoke(t.Context(), "skill_trial_sum", json.RawMessage(`{"n":41}`), call)
	if err != nil || !again.Replayed || again.ExecID != r.ExecID || string(again.Outputs) != string(r.Outputs) {
		t.Errorf("%v %+v", err, again)
	}

	// A failed exec is a result; a refused one is an error.
	failed, err := p.Invoke(t.Context(), "skill.shell.run", map[string]string{"script": "exit 7"}, skills.ToolCall{ProjectID: "mine"})
	if err != nil || failed.Status != "failed" || failed.Reason != "nonzero_exit" || *failed.ExitCode != 7 || failed.Outputs == nil {
		t.Errorf("%v %+v", err, failed)
	}
	script := map[string]string{"script": "true"}
	for name, c := range map[string]struct {
		tool  string
		args  any
		call  skills.ToolCall
		code  fault.Code
		field string
	}{
		"inputs that do not fit": {"skill.shell.run", map[string]int{"script": 1}, skills.ToolCall{ProjectID: "mine"}, fault.InvalidInputs, "inputs.script"},
		"no inputs":              {"skill.shell.run", nil, skills.ToolCall{ProjectID: "mine"}, fault.InvalidInputs, "inputs.script"},
		"an unknown skill":       {"skill.no.such", nil, skills.ToolCall{ProjectID: "mine"}, fault.UnknownSkill, "skill_id"},
		"another's project":      {"skill.shell.run", script, skills.ToolCall{ProjectID: "theirs"}, fault.Forbidden, "project_id"},
		"a path that escapes": {
			"skill.shell.run", script,
			skills.ToolCall{ProjectID: "mine", Files: []skills.ToolFile{{Path: "../x"}}},
			fault.InvalidRequest, "files[0].path",
		},
		"beyond the ceiling": {
			"skill.shell.run", script,
			skills.ToolCall{ProjectID: "mine", Policy: policy.Layer{Limits: policy.Limits{MemoryMB: new(int64(1 << 20))}}},
			fault.PolicyDenied, "memory_mb",
		},
		"another request": {tool.Name, map[string]int{"n": 1}, call, fault.IdempotencyMismatch, ""},
	} {
		_, err := p.Invoke(t.Context(), c.tool, c.args, c.call)
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != c.code || (c.field == "") != (len(e.Fields) == 0) || c.field != "" && e.Fields[0].Field != c.field {
			t.Errorf("%s: %+v", name, err)
			continue
		}
		if c.code == fault.PolicyDenied {
			s.as(secret).get("/sandbox/execs/"+e.ExecID).wants(t, object{"status": "rejected", "skill_id": "shell.run"})
		}
	}

	trialSkill{id: "trial.late", script: "true"}.put(t, dir)
	eventually(t, "a new skill is a tool", func() bool { _, ok := find("skill.trial.late"); return ok })
}

// TestProviderCancel checks that an exec goes on when its provider call is canceled, and is found
// by its task.
func TestProviderCancel(t *testing.T) {
	t.Parallel()
	s := shared(t)
	p, err := skills.NewProvider(s.url, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := p.Invoke(ctx, "skill.shell.run", map[string]string{"script": "sleep 60"}, skills.ToolCall{ProjectID: "gives-up", TaskID: "t6"})
		ended <- err
	}()
	var id string
	eventually(t, "the exec runs", func() bool {
		if list := s.get("/sandbox/execs?task_id=t6&status=running").list("items"); len(list) == 1 {
			id = list[0].str("exec_id")
		}
		return id != ""
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	s.get("/sandbox/execs/"+id).wants(t, object{"status": "running"})
	if a := s.send("POST", "/sandbox/execs/"+id+"/cancel", nil); a.Code != 202 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	eventually(t, "the exec was canceled", func() bool { return s.get("/sandbox/execs/"+id).str("status") == "canceled" })
}
