package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
)

// TestStatusOfExit: how a job ended decides its status, reason and detail, in the answer, the row
// and meta.json alike.
func TestStatusOfExit(t *testing.T) {
	t.Parallel()
	lost := func(err *engine.RunError) func(*fixture) {
		return run(func(context.Context, *memengine.Container) (engine.Exit, error) { return engine.Exit{}, err })
	}
	internal := fault.New(fault.Internal, "it vanished")
	oomOfChild := engine.Exit{OOMKills: 2}
	for name, c := range map[string]struct {
		with   func(*fixture)
		script string
		status audit.Status
		reason audit.Reason
		code   int // -1: none
		detail string
	}{
		"success":   {script: "echo hi", status: audit.Succeeded},
		"exit code": {script: "exit 3", status: audit.Failed, reason: audit.NonzeroExit, code: 3, detail: "exit code 3"},
		"125 is the job's": {
			script: "echo 'docker: Error response from daemon: x' >&2; exit 125", status: audit.Failed, reason: audit.NonzeroExit,
			code: 125,
		},
		"signal":           {script: "kill -TERM $$", status: audit.Failed, reason: audit.NonzeroExit, code: 143, detail: "signal 15"},
		"killed by itself": {script: "kill -KILL $$", status: audit.Failed, reason: audit.NonzeroExit, code: 137, detail: "signal 9"},
		"timeout": {
			script: "sleep 1000", status: audit.Timeout, reason: audit.ReasonTimeout, code: 137,
			detail: "timeout_ms=20; raise policy_overrides.timeout_ms",
		},
		"out of memory":  {with: exits(memengine.OutOfMemory()), status: audit.OOMKilled, reason: audit.OOM, code: 137, detail: "memory_mb"},
		"OOM of a child": {with: exits(oomOfChild), status: audit.Succeeded, detail: "2 of its processes were killed for memory"},
		"failure after OOM": {
			with: exits(engine.Exit{Code: 1, OOMKills: 1}), status: audit.Failed, reason: audit.NonzeroExit, code: 1,
			detail: "exit code 1; 1 of its processes",
		},
		"pids": {
			with: exits(engine.Exit{Code: 254, PIDsMax: 7}), status: audit.Failed, reason: audit.PIDsLimit, code: 254,
			detail: "7 forks were refused at pids=",
		},
		"bus error": {
			with: exits(engine.Exit{Code: 135, Signal: 7}), status: audit.Failed, reason: audit.BusError, code: 135,
			detail: "ended by SIGBUS: /tmp was full at tmp_mb=",
		},
		"bus error in a shell": {
			with: exits(engine.Exit{Code: 135}), status: audit.Failed, reason: audit.BusError, code: 135,
			detail: "; raise policy_overrides.tmp_mb (ceiling ",
		},
		"full shared memory": {
			with: exits(engine.Exit{Code: 135, Signal: 7}), status: audit.Failed, reason: audit.BusError, code: 135,
			detail: "/dev/shm was full at shm_mb=16, or /tmp at tmp_mb=",
		},
		"pids but success": {with: exits(engine.Exit{PIDsMax: 7}), status: audit.Succeeded, detail: "7 forks were refused at pids="},
		"command not started": {
			with: exits(engine.Exit{Code: 127, StartError: "bash: not found"}), status: audit.Failed, reason: audit.StartFailed, code: 127,
			detail: "bash: not found",
		},
		"changes lost": {
			with: exits(engine.Exit{Lost: fault.New(fault.TreeTooLarge, "more than a pod takes")}), status: audit.Errored,
			reason: audit.ArtifactsLost, detail: "more than a pod takes",
		},
		"failure with changes lost": {
			with: exits(engine.Exit{Code: 3, Lost: internal}), status: audit.Failed, reason: audit.NonzeroExit, code: 3,
			detail: "exit code 3; it vanished",
		},
		"container lost": {
			with: lost(&engine.RunError{Started: true, Dead: true, Err: internal}), status: audit.Errored, reason: audit.ContainerLost,
			code: -1, detail: "it vanished",
		},
		"engine lost": {
			with:   lost(&engine.RunError{Started: true, Dead: true, Err: fault.New(fault.EngineUnavailable, "the engine went away")}),
			status: audit.Errored, reason: audit.EngineUnavailable, code: -1, detail: "the engine went away",
		},
		"death not confirmed": {
			with:   lost(&engine.RunError{Started: true, Err: internal}),
			status: audit.Errored, reason: audit.ContainerLost, code: -1, detail: "its artifacts were not collected",
		},
		"artifacts lost": {
			script: "echo printed; break", status: audit.Errored, reason: audit.ArtifactsLost,
			detail: "output and metadata could not be written",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, c.with)
			timeout := int64(20)
			result := f.exec(shell("p", c.script, func(r *runner.Request) {
				switch name {
				case "timeout":
					r.Overrides = policy.Layer{Limits: policy.Limits{TimeoutMS: &timeout}}
				case "full shared memory":
					r.Overrides = policy.Layer{Limits: policy.Limits{ShmMB: new(int64(16))}}
				}
			}))
			r := result.Record
			if r.Status != c.status || r.ErrorReason != c.reason || !strings.Contains(r.Detail, c.detail) || r.ExitCode == nil != (c.code < 0) ||
				r.ExitCode != nil && *r.ExitCode != c.code {
				t.Errorf("%s %s %q %v, want %s %s %d", r.Status, r.ErrorReason, r.Detail, r.ExitCode, c.status, c.reason, c.code)
			}
			row := f.row(r.ExecID)
			if row.Status != r.Status || row.ErrorReason != r.ErrorReason || row.Detail != r.Detail || row.OOMEvents != r.OOMEvents || row.EndedAt.IsZero() ||
				row.StartedAt.IsZero() {
				t.Errorf("the row is %+v, the answer's %+v", row, r)
			}
			if n := f.ended.of(r.ExecID); n != 1 {
				t.Errorf("the observer was told %d times", n)
			}
			if r.ManifestDigest == "" {
				return
			}
			var meta audit.Record
			if name != "artifacts lost" {
				must(t, json.Unmarshal([]byte(f.published(r, runner.MetaFile)), &meta))
				if meta.Status != r.Status || meta.ErrorReason != r.ErrorReason || meta.Detail != r.Detail {
					t.Errorf("meta.json is %+v", meta)
				}
			}
		})
	}
}

// TestDiskLimit: the job that has written most is killed when the disk is nearly full.
func TestDiskLimit(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	p := f.post(shell("p", "echo x > w; hold"))
	<-f.held
	f.disk.set(1)
	r := p.wants(audit.Failed, audit.DiskLimit).Record
	if *r.ExitCode != 137 || r.Detail == "" {
		t.Errorf("%+v", r)
	}
	// Nothing begins on a full disk, and nothing of that is on record.
	rows := f.rows()
	f.refused(fault.DiskFull, shell("p", "true"))
	if f.rows() != rows {
		t.Error("a request that was refused for the disk has a row")
	}
}

// TestNothingRan: a job that does not run is an error for the caller, is on record if the request
// was in order, and leaves neither a directory nor a slot. The request may come again under its
// key, except after a refusal by policy.
func TestNothingRan(t *testing.T) {
	t.Parallel()
	huge := int64(1 << 40)
	unavailable := fault.New(fault.EngineUnavailable, "the engine is away")
	noImage := fault.New(fault.ImageMissing, "no such image")
	start := func(err error) func(*fixture) {
		return func(f *fixture) { f.options.Start = func(engine.Spec) error { return err } }
	}
	for name, c := range map[string]struct {
		with    func(*fixture)
		request func(*runner.Request)
		code    fault.Code
		status  audit.Status // empty: no row
		reason  audit.Reason
		keeps   bool // the key
		told    bool // its callback: the row was open already
	}{
		"invalid":  {request: func(r *runner.Request) { r.Command.Kind = "perl" }, code: fault.InvalidRequest},
		"no skill": {request: func(r *runner.Request) { r.SkillID = "x" }, code: fault.UnknownSkill},
		"policy": {
			request: func(r *runner.Request) { r.Overrides.MemoryMB = &huge },
			code:    fault.PolicyDenied, status: audit.Rejected, reason: audit.PolicyDenied, keeps: true,
		},
		"image missing": {
			with: func(f *fixture) { f.images.Fail(policy.DefaultImage, noImage) }, code: fault.ImageMissing, status: audit.Errored, reason: audit.ImageMissing,
		},
		"engine away when the image is resolved": {
			with: func(f *fixture) { f.images.Fail(policy.DefaultImage, unavailable) }, code: fault.EngineUnavailable, status: audit.Errored,
			reason: audit.EngineUnavailable,
		},
		"engine away at the start": {
			with: start(unavailable), code: fault.EngineUnavailable, status: audit.Errored, reason: audit.EngineUnavailable,
			told: true,
		},
		"image gone at the start": {with: start(noImage), code: fault.ImageMissing, status: audit.Errored, reason: audit.ImageMissing, told: true},
		"start failed": {
			with: start(fault.New(fault.Internal, "no container")), code: fault.Internal, status: audit.Errored,
			reason: audit.StartFailed, told: true,
		},
		"engine away before there is a slot": {
			with: func(f *fixture) { f.options.Acquire = func(engine.Spec) error { return unavailable } }, code: fault.EngineUnavailable,
		},
		"project damaged": {
			with: func(f *fixture) {
				must(f.t, os.MkdirAll(f.path("p"), 0o755))
				must(f.t, os.WriteFile(f.path("p", "work"), nil, 0o600))
			},
			code: fault.ProjectDamaged, status: audit.Errored, reason: audit.StartFailed,
		},
		"row not written": {
			with: func(f *fixture) { f.store.fail(fault.New(fault.DatabaseUnavailable, "no database"), nil) }, code: fault.DatabaseUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := &callbacks{}
			f := setUp(t, c.with, func(f *fixture) { f.cfg.Callbacks, told.f = told, f })
			e := f.refused(c.code, shell("p", "echo x > ran", under("key"), func(r *runner.Request) {
				r.CallbackURL = "https://a.example"
				if c.request != nil {
					c.request(r)
				}
			}))
			if (e.ExecID == "") != (c.status == "") || f.rows() != min(1, len(c.status)) {
				t.Fatalf("the error names exec %q, there are %d rows", e.ExecID, f.rows())
			}
			if c.status != "" {
				r := f.row(e.ExecID)
				if r.Status != c.status || r.ErrorReason != c.reason || r.Detail != e.Message || r.ArtifactsPath != "" || !r.StartedAt.IsZero() ||
					(r.IdempotencyKey != "") != c.keeps {
					t.Errorf("%+v", r)
				}
			}
			if _, err := os.Stat(f.path("p", "work", "ran")); err == nil {
				t.Error("the job ran")
			}
			if entries, _ := os.ReadDir(f.path("p", "artifacts")); len(entries) > 0 {
				t.Errorf("artifacts: %v", entries)
			}
			if _, is := told.known[e.ExecID]; is != c.told && e.ExecID != "" {
				t.Errorf("its callback stays: %v, want %v", is, c.told)
			}
			if name == "image gone at the start" && len(f.images.Forgotten()) != 1 {
				t.Error("the image's id is still believed")
			}
		})
	}
}

// TestRefuse puts on record what its caller refuses: the reasons that there are rows for, and no
// others.
func TestRefuse(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	req := shell("ag~ann", "true", under("key"))
	for code, reason := range map[fault.Code]audit.Reason{fault.Forbidden: audit.Forbidden, fault.PathRefused: audit.PathRefused} {
		e := fault.From(f.Refuse(t.Context(), req, fault.New(code, "not this one")))
		r := f.row(e.ExecID)
		if e.Code != code || r.Status != audit.Rejected || r.ErrorReason != reason || r.AgentID != "ag" || r.UserID != "ann" || r.IdempotencyKey != "" ||
			r.Backend != "" {
			t.Errorf("%s: %+v, %+v", code, e, r)
		}
	}
	why := fault.New(fault.InvalidRequest, "no")
	if err := f.Refuse(t.Context(), req, why); err != error(why) || f.rows() != 2 { //nolint:errorlint // the very one
		t.Errorf("%v, %d rows", err, f.rows())
	}
}

// TestSpool: a result that the database refuses goes to the spool, and the answer says so. If the
// spool fails, too, the error names the exec.
func TestSpool(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.store.fail(nil, fault.New(fault.DatabaseUnavailable, "no database"))
	result := f.exec(shell("p", "echo out; exit 3"))
	if !result.Spooled || result.Record.Status != audit.Failed || string(result.Stdout) != "out\n" {
		t.Errorf("%+v", result)
	}
	if row := f.row(result.Record.ExecID); row.Status != audit.Running {
		t.Errorf("the database has %s", row.Status)
	}
	if got, err := f.log.Get(t.Context(), result.Record.ExecID); err != nil || got.Status != audit.Failed || f.log.Unstored().Results != 1 {
		t.Errorf("%s %v, %d are spooled", got.Status, err, f.log.Unstored().Results)
	}
	must(t, os.RemoveAll(filepath.Join(f.dir, "spool")))
	_, err := f.Run(t.Context(), shell("p", "true"))
	if err == nil || fault.From(err).ExecID == "" {
		t.Errorf("nowhere to record: %v", err)
	}
}

// TestAttachedIsOnRecord: row and meta.json say whether the container had waited for any project,
// and meta.json has the project's directories.
func TestAttachedIsOnRecord(t *testing.T) {
	t.Parallel()
	for _, attached := range []bool{false, true} {
		f := setUp(t, func(f *fixture) { f.options.Warm, f.options.Attached = true, attached })
		r := f.exec(shell("p", "true")).Record
		var meta struct {
			audit.Record
			Mounts []engine.Mount `json:"docker_mounts"`
		}
		must(t, json.Unmarshal([]byte(f.published(r, runner.MetaFile)), &meta))
		if row := f.row(r.ExecID); r.Attached != attached || row.Attached != attached || meta.Attached != attached {
			t.Errorf("attached %v: answer %v, row %v, meta.json %v", attached, r.Attached, row.Attached, meta.Attached)
		}
		if len(meta.Mounts) != 3 || meta.Mounts[0].Source != f.path("p", "inputs") {
			t.Errorf("mounts %+v", meta.Mounts)
		}
	}
}

// TestEnvironmentStaysOut: of variables and standard input, only the variables' names are kept.
func TestEnvironmentStaysOut(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	result := f.exec(shell("p", "cat > in; echo $NAME > env", func(r *runner.Request) {
		r.Command.Env, r.Command.Stdin = map[string]string{"NAME": "s3cret-value"}, []byte("s3cret-input")
	}))
	for name, want := range map[string]string{"in": "s3cret-input", "env": "s3cret-value\n"} {
		if got, err := os.ReadFile(f.path("p", "work", name)); string(got) != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	row, err := json.Marshal(f.row(result.Record.ExecID))
	must(t, err)
	for name, text := range map[string]string{
		"row": string(row), "meta.json": f.published(result.Record, runner.MetaFile),
		"manifest": f.published(result.Record, runner.ManifestFile),
	} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("%s has a value: %s", name, text)
		}
		if name != "manifest" && !strings.Contains(text, `"NAME"`) {
			t.Errorf("%s lacks the name: %s", name, text)
		}
	}
}

// TestDurations are between the job's start and its end; times are UTC in microseconds.
func TestDurations(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.FixedZone("x", 3600))
	f := setUp(t, func(f *fixture) {
		f.cfg.Now = func() time.Time { return now }
		f.options.Run = func(context.Context, *memengine.Container) (engine.Exit, error) {
			now = now.Add(1500 * time.Millisecond)
			return engine.Exit{}, nil
		}
	})
	r := f.exec(shell("p", "true")).Record
	if r.DurationMS != 1500 || r.CreatedAt.Location() != time.UTC || r.CreatedAt.Nanosecond() != 678_901_000 {
		t.Errorf("%d ms, created %v", r.DurationMS, r.CreatedAt)
	}
}

var errOutput = errors.New("is no number")

// TestSkillOutput: the output of a skill's exec is validated before its row is closed. An output
// that breaks the contract fails the exec.
func TestSkillOutput(t *testing.T) {
	t.Parallel()
	accept := func(_ context.Context, output []byte) ([]byte, error) {
		if string(output) != "7\n" {
			return nil, errOutput
		}
		return output, nil
	}
	busy := func(context.Context, []byte) ([]byte, error) { return nil, fault.New(fault.ServerBusy, "busy") }
	limit := int64(1 << 20)
	for name, c := range map[string]struct {
		script string
		accept func(context.Context, []byte) ([]byte, error)
		status audit.Status
		reason audit.Reason
		output string
		detail string
	}{
		"valid":           {script: "echo 7 > $SKILL_OUTPUT", status: audit.Succeeded, output: "7\n"},
		"reads its input": {script: "cat $SKILL_INPUT > $SKILL_OUTPUT", status: audit.Succeeded, output: "7\n"},
		"invalid":         {script: "echo x > $SKILL_OUTPUT", status: audit.Failed, reason: audit.InvalidOutput, detail: "is no number"},
		"missing":         {script: "true", status: audit.Failed, reason: audit.InvalidOutput, detail: "left no skill_output.json"},
		"a directory": {
			script: "mkdir $SKILL_OUTPUT; echo x > $SKILL_OUTPUT/x", status: audit.Failed, reason: audit.InvalidOutput,
			detail: "skill_output.json",
		},
		"too large":          {script: "cat > $SKILL_OUTPUT", status: audit.Failed, reason: audit.InvalidOutput, detail: "bytes"},
		"valid of a failed":  {script: "echo 7 > $SKILL_OUTPUT; exit 3", status: audit.Failed, reason: audit.NonzeroExit, output: "7\n"},
		"invalid of a fail":  {script: "echo x > $SKILL_OUTPUT; exit 3", status: audit.Failed, reason: audit.NonzeroExit},
		"missing of a fail":  {script: "exit 3", status: audit.Failed, reason: audit.NonzeroExit},
		"not judged in time": {script: "echo 7 > $SKILL_OUTPUT", accept: busy, status: audit.Errored, reason: audit.ArtifactsLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t, func(f *fixture) { f.cfg.KeepRequests = c.script != "exit 3" })
			skill := &runner.Skill{Input: []byte("7\n"), MaxOutput: 1000, Accept: accept}
			if c.accept != nil {
				skill.Accept = c.accept
			}
			skill.Layer.MaxArtifactsBytesTotal = &limit
			skill.Folder.Digest = strings.Repeat("ab", 32)
			req := shell("p", c.script, under("key"), func(r *runner.Request) {
				r.SkillID, r.Skill, r.Command.Stdin = "a.skill", skill, make([]byte, 2000)
			})
			result := f.exec(req)
			r := result.Record
			if r.Status != c.status || r.ErrorReason != c.reason || string(result.Output) != c.output || !strings.Contains(r.Detail, c.detail) {
				t.Errorf("%s %s %q, output %q", r.Status, r.ErrorReason, r.Detail, result.Output)
			}
			if row := f.row(r.ExecID); row.Status != r.Status || row.ErrorReason != r.ErrorReason || row.SkillID != "a.skill" ||
				row.SkillDigest != skill.Folder.Digest || (row.Request == "7\n") != f.cfg.KeepRequests {
				t.Errorf("row %+v", row)
			}
			if c.accept != nil {
				return
			}
			again := f.exec(req)
			if !again.Replayed || string(again.Output) != c.output {
				t.Errorf("replayed %v, output %q", again.Replayed, again.Output)
			}
		})
	}
}
