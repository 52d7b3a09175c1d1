package api_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

const (
	inSkill   = "/v1/skills/u/ag/weather_skill/execute?command="
	inSandbox = "/v1/sandbox/u/ag/execute?command="
)

// TestRestrictedCommand checks the request to the runner and the record.
func TestRestrictedCommand(t *testing.T) {
	t.Parallel()
	f := start(t)
	id, secret := f.token(tokens.Spec{Role: tokens.Worker, Agents: []string{"ag"}})
	data[string](t, f.upload("u/ag", "overlay", "x.zip", weather(t), as(secret)))
	r := f.do(request{method: "POST", path: inSkill + "python3", body: `["main.py", "--city", "北京"]`, token: secret})
	if got := data[wire.V1Output](t, r); got != (wire.V1Output{Stdout: "hi\n"}) {
		t.Errorf("%+v", got)
	}
	if got := string(r.body); got != `{"status":"success","data":{"stdout":"hi\n","stderror":"","exit_code":0}}`+"\n" {
		t.Errorf("answered %s", got)
	}
	req := f.runner.seen()[len(f.runner.seen())-1]
	if req.ProjectID != "ag~u" || req.AgentID != "ag" || req.UserID != "u" || req.SkillID != "weather_skill" || req.RequestedBy != id || req.Digest == "" ||
		req.Command.Kind != runner.KindArgv || req.Command.Name != "python3" || req.Command.Cwd != "/workspace/work/skills/weather_skill" ||
		!slices.Equal(req.Command.Args, []string{"main.py", "--city", "北京"}) || *req.Overrides.TimeoutMS != 5*60*1000 {
		t.Errorf("the runner was asked for %+v", req)
	}
	rec := decodeAs[wire.ExecRecord](t, f.do(request{path: "/sandbox/execs/" + r.Header.Get("X-Exec-Id"), token: secret}), 200)
	if rec.Cmd != "python3" || rec.SkillID != "weather_skill" || rec.AgentID != "ag" || rec.UserID != "u" || rec.ProjectID != "ag~u" {
		t.Errorf("recorded %+v", rec)
	}

	f.runner.timeoutCeiling = 60_000
	data[wire.V1Output](t, f.do(request{method: "POST", path: inSkill + "ls", token: secret})) // without a body, without arguments
	req = f.runner.seen()[len(f.runner.seen())-1]
	if req.SkillID != "weather_skill" || len(req.Command.Args) != 0 || *req.Overrides.TimeoutMS != 60_000 {
		t.Errorf("the runner was asked for %+v", req)
	}
}

// TestCommandsDoNotChangeTheInstallationsSkill by any path that leads to it; they may read it.
func TestCommandsDoNotChangeTheInstallationsSkill(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, c := range []struct{ path, args, field string }{
		{inSandbox + "rm", `["-rf", "skills/skill-creator"]`, "args[1]"},
		{inSandbox + "rm", `["./skills//Skill-Creator/x"]`, "args[0]"},
		{inSandbox + "mv", `["x", "skills/skill-creator"]`, "args[1]"},
		{inSandbox + "mv", `["skills/skill-creator", "x"]`, "args[0]"},
		{inSandbox + "mkdir", `["-p", "skills/skill-creator"]`, "args[1]"},
		{inSandbox + "cp", `["-r", "x", "skills/skill-creator"]`, "args[2]"},
		{"/v1/skills/u/ag/skill-creator/execute?command=rm", `["SKILL.md"]`, "args[0]"},
		{"/v1/skills/u/ag/skill-creator/execute?command=rm", `["-r", "/workspace/work/skills/skill-creator"]`, "args[1]"},
	} {
		f.post(c.path, c.args).refused(t, fault.ReservedSkill, c.field)
	}
	for _, args := range []string{`["skills/skill-creators"]`, `["skill-creator"]`, `["notes/skill-creator"]`} {
		if err := changed(f, "rm", args); strings.Contains(err, "reserved_skill") {
			t.Errorf("%s: %s", args, err)
		}
	}
	if err := changed(f, "cp", `["-r", "skills/skill-creator", "mine"]`); strings.Contains(err, "reserved_skill") {
		t.Errorf("a copy of it: %s", err)
	}
}

// changed returns the answer to a command in a sandbox.
func changed(f *fixture, command, args string) string {
	return string(f.post(inSandbox+command, args).body)
}

func TestForbiddenCommands(t *testing.T) {
	t.Parallel()
	f := start(t)
	data[string](t, f.upload("u/ag", "overlay", "x.zip", weather(t)))
	for _, command := range []string{"perl", "python", "/bin/ls", "ls%20-la", "LS", "docker", "./ls", "..", "%00", "ls%3Bid"} {
		message := f.post(inSkill+command, `[]`).refused(t, fault.InvalidRequest, "command")
		if !strings.Contains(message, "python3, pip") {
			t.Errorf("%q does not list the allowed commands", message)
		}
		f.post(inSandbox+command, `[]`).refused(t, fault.InvalidRequest, "command")
	}
	for args, field := range map[string]string{
		`["/etc/passwd"]`:     "args[0]",
		`["-la", "../other"]`: "args[1]",
		`["--f=/etc/x"]`:      "args[0]",
		`["-f/etc/x"]`:        "args[0]",
		`["/workspace/work/skills/weather_skill2"]`:   "args[0]",
		`["/workspace/work/skills/weather"]`:          "args[0]",
		`["a", "b", "/workspace/inputs/x"]`:           "args[2]",
		`["/workspace/work/skills/weather_skill/.."]`: "args[0]",
	} {
		f.post(inSkill+"cat", args).refused(t, fault.PathRefused, field)
	}
	f.post(inSandbox+"cat", `["/etc/passwd"]`).refused(t, fault.PathRefused, "args[0]")
	f.post(inSandbox+"cat", `["/workspaces/x"]`).refused(t, fault.PathRefused, "args[0]")
	f.post(inSandbox+"cat", `["a\u0000b"]`).refused(t, fault.InvalidRequest, "args[0]")
	f.post(strings.Replace(inSkill, "weather_skill", "unknown", 1)+"ls", `[]`).refused(t, fault.UnknownSkill)
	if ran := f.runner.seen(); len(ran) > 0 {
		t.Errorf("ran %+v", ran)
	}
	for _, good := range []string{`["/workspace/work/skills/weather_skill/main.py"]`, `["./utils/helper.py"]`} {
		data[wire.V1Output](t, f.post(inSkill+"cat", good))
	}
	if rows, _, err := f.db.Audit().List(t.Context(), audit.Filter{Backend: "none"}, nil, 10); err != nil || len(rows) > 0 {
		t.Errorf("ran in the sandbox: %+v, %v", rows, err)
	}
}

// TestOutcomesOfRestrictedCommands checks the answer for each status of an exec.
func TestOutcomesOfRestrictedCommands(t *testing.T) {
	t.Parallel()
	f := start(t)
	data[string](t, f.upload("u/ag", "overlay", "x.zip", weather(t)))
	long := strings.Repeat("x", 100_000)
	for name, tc := range map[string]struct {
		status audit.Status
		reason audit.Reason
		code   *int
		detail string
		stderr string
		want   wire.V1Output
		fails  fault.Code
	}{
		"an exit code": {
			status: audit.Failed, reason: audit.NonzeroExit, code: new(3), detail: "exit code 3", stderr: "no\n",
			want: wire.V1Output{ExitCode: 3, Stderror: "no\n"},
		},
		"no such program": {
			status: audit.Failed, reason: audit.StartFailed, code: new(127), detail: "could not be started",
			want: wire.V1Output{ExitCode: 127, Stderror: "could not be started\n"},
		},
		"time is up": {
			status: audit.Timeout, reason: audit.ReasonTimeout, code: new(137), detail: "killed after 5 minutes", stderr: "work",
			want: wire.V1Output{ExitCode: -1, Stderror: "work\nkilled after 5 minutes\n"},
		},
		"canceled": {
			status: audit.Canceled, reason: audit.ReasonCanceled, detail: "canceled by request",
			want: wire.V1Output{ExitCode: -1, Stderror: "canceled by request\n"},
		},
		"out of memory": {
			status: audit.OOMKilled, reason: audit.OOM, code: new(137), detail: "memory_mb", stderr: "a\n",
			want: wire.V1Output{ExitCode: 137, Stderror: "a\nmemory_mb\n"},
		},
		"the engine failed": {status: audit.Errored, reason: audit.ContainerLost, detail: "the container is gone", fails: fault.EngineUnavailable},
	} {
		f.runner.run = func(_ context.Context, req runner.Request) (runner.Result, error) {
			rec := newRecord(req)
			rec.Status, rec.ErrorReason, rec.ExitCode, rec.Detail = tc.status, tc.reason, tc.code, tc.detail
			return runner.Result{Record: rec, Stderr: []byte(tc.stderr)}, nil
		}
		t.Log(name)
		r := f.post(inSkill+"ls", `[]`)
		if tc.fails != "" {
			if message := r.refused(t, tc.fails); !strings.Contains(message, tc.detail) {
				t.Error(message)
			}
		} else if got := data[wire.V1Output](t, r); got != tc.want {
			t.Errorf("%+v, want %+v", got, tc.want)
		}
	}

	// A result carries the first bytes of the output only.
	f.runner.output = map[string]string{"stdout": long + "\xff", "stderr": "never asked for"}
	f.runner.run = func(_ context.Context, req runner.Request) (runner.Result, error) {
		rec := newRecord(req)
		rec.Status, rec.ExitCode, rec.StdoutBytes, rec.StderrBytes, rec.StdoutTruncated = audit.Succeeded, new(int), 100_001, 4, true
		return runner.Result{Record: rec, Stdout: []byte(long[:runner.InlineBytes]), Stderr: []byte("warn")}, nil
	}
	if got := data[wire.V1Output](t, f.post(inSkill+"ls", `[]`)); got.Stdout != long+"\uFFFD" || got.Stderror != "warn" || !got.StdoutTruncated ||
		got.StderrTruncated {
		t.Errorf("%d bytes of output, %q", len(got.Stdout), got.Stderror)
	}

	for _, code := range []fault.Code{
		fault.QueueFull, fault.ImageMissing, fault.EngineUnavailable, fault.DatabaseUnavailable, fault.DiskFull,
		fault.ShuttingDown, fault.PolicyDenied,
	} {
		f.runner.run = func(context.Context, runner.Request) (runner.Result, error) {
			return runner.Result{}, fault.New(code, "no")
		}
		r := f.post(inSkill+"ls", `[]`)
		if r.refused(t, code); code == fault.QueueFull && r.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
}
