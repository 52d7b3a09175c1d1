package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/fault"
	"secbox/pathadapter"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
	"secbox/runner/diskwatch"
	"secbox/runner/inputstore"
	"secbox/skills"
	"secbox/skills/invoke"
	"secbox/store/sqlite"
	"secbox/store/storetest/sqlitetest"
	"secbox/workspace"
	"secbox/workspace/diskspace"
)

// fixture is a runner on an engine without containers, with the store of its inputs, and a
// Replayer.
type fixture struct {
	*replay.Replayer
	t       *testing.T
	dir     string
	runner  *runner.Runner
	engine  *memengine.Engine
	images  *memengine.Images
	log     *audit.Log
	inputs  *inputstore.Store
	key     hmackey.Key
	most    int64 // of the kept inputs, in bytes
	limits  policy.Limits
	catalog *skills.Catalog
	held    chan string
}

// setUp makes a fixture. The command hold tells the exec's id, and waits until it is killed; python
// prints its code, if that is in a file.
func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), images: &memengine.Images{}, key: hmackey.New([]byte("key")), most: 1 << 30, held: make(chan string, 1)}
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *fixture) start() {
	f.t.Helper()
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	adapter, err := pathadapter.New(pathadapter.Config{Root: filepath.Join(f.dir, "workspace")})
	f.must(err)
	files, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner})
	f.must(err)
	f.t.Cleanup(func() { files.Close() })
	path := filepath.Join(f.dir, "audit.db")
	if _, err := os.Stat(path); err != nil {
		sqlitetest.Migrated(f.t, path)
	}
	db, err := sqlite.Open(f.t.Context(), path)
	f.must(err)
	f.t.Cleanup(func() { db.Close() })
	quiet := slog.New(slog.DiscardHandler)
	f.log, err = audit.NewLog(audit.Config{Store: db.Audit(), Dir: filepath.Join(f.dir, "spool"), NodeID: "n", Logger: quiet})
	f.must(err)
	_, err = f.log.Recover(f.t.Context())
	f.must(err)
	f.inputs, err = inputstore.Open(inputstore.Config{Root: files.Root(), MaxBytes: f.most, MaxBytesPerToken: f.most, Now: time.Now, Logger: quiet})
	f.must(err)
	f.t.Cleanup(func() { f.inputs.Close() })
	resolver, err := policy.New(policy.Config{SettingsDigest: "s", Ceiling: f.limits})
	f.must(err)
	f.catalog, err = skills.Open(skills.Config{Logger: quiet})
	f.must(err)
	f.engine = memengine.New(memengine.Options{Run: memengine.Shell(map[string]memengine.Command{
		"hold": func(ctx context.Context, p *memengine.Process) (int, *engine.Exit, error) {
			f.held <- p.ExecID
			<-ctx.Done()
			died := memengine.Died()
			return 0, &died, nil
		},
		"python": func(_ context.Context, p *memengine.Process) (int, *engine.Exit, error) {
			if argv := p.Job.Argv; p.Job.CodeFile == runner.CodeFile && argv[1] == "-c" {
				fmt.Fprintln(p.Stdout, argv[2:])
				return 0, nil, nil
			}
			fmt.Fprintln(p.Stderr, "can't open file", p.Job.Argv[1])
			return 2, nil, nil
		},
	})})
	f.runner, err = runner.New(runner.Config{
		Log: f.log, Engine: f.engine, Images: f.images, Policy: resolver, Workspace: files, Inputs: f.inputs, Key: f.key, Skills: f.catalog,
		Host:     func() policy.Host { return policy.Host{} },
		StateDir: filepath.Join(f.dir, "state"), NodeID: "n", User: "1000:1000", Disk: diskwatch.New(room{}, diskwatch.Limits{}, quiet), Slots: 4, Queue: 8,
		Now:   time.Now,
		NewID: func() string { return uuid.Must(uuid.NewV7()).String() }, Logger: quiet,
	})
	f.must(err)
	f.Replayer = replay.New(f.runner, f.inputs, versions{f.catalog})
}

// stop kills what runs.
func (f *fixture) stop() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	f.runner.Drain(now)
	f.must(f.engine.Close())
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

type room struct{}

func (room) Free() (diskspace.Space, error) {
	return diskspace.Space{Bytes: 1 << 40, Inodes: 1 << 30}, nil
}

type versions struct{ *skills.Catalog }

func (v versions) Version(_ context.Context, _, skillID, digest string) (*skills.Skill, error) {
	if skill, err := v.Now().Get(skillID); err == nil && skill.Digest == digest {
		return skill, nil
	}
	return nil, fault.New(fault.UnknownSkill, "there is no version %s", digest)
}

func (versions) GlobalDigest() (string, error) { return "global", nil }

func shell(script string, change ...func(*runner.Request)) runner.Request {
	req := runner.Request{
		ProjectID: "p", RequestedBy: "token-1", Digest: script,
		Command: runner.Command{Kind: runner.KindShell, Name: "bash", Args: []string{"-lc", script}},
	}
	for _, c := range change {
		c(&req)
	}
	return req
}

func input(path, content string) func(*runner.Request) {
	return func(r *runner.Request) {
		r.Inputs = append(r.Inputs, runner.Input{Path: path, Content: []byte(content)})
	}
}

func env(name, value string) func(*runner.Request) {
	return func(r *runner.Request) { r.Command.Env = map[string]string{name: value} }
}

func stdin(text string) func(*runner.Request) {
	return func(r *runner.Request) { r.Command.Stdin = []byte(text) }
}

// exec runs a request, and returns its record as the database has it.
func (f *fixture) exec(req runner.Request) audit.Record {
	f.t.Helper()
	res, err := f.runner.Run(f.t.Context(), req)
	f.must(err)
	return f.row(res.Record.ExecID)
}

func (f *fixture) row(id string) audit.Record {
	f.t.Helper()
	r, err := f.log.Get(f.t.Context(), id)
	f.must(err)
	return r
}

// again replays an exec, and checks that the comparison is the same when it is made anew.
func (f *fixture) again(q replay.Request) (audit.Record, map[string]replay.Point) {
	f.t.Helper()
	q.RequestedBy, q.Reserve = "token-2", plenty
	res, err := f.Replay(f.t.Context(), q)
	f.must(err)
	second := f.row(res.Exec.Record.ExecID)
	if second.ReplayOf != q.First.ExecID || second.RequestedBy != "token-2" {
		f.t.Errorf("%+v", second)
	}
	if anew := f.Compare(f.t.Context(), q.First, second, plenty); !slices.Equal(anew, res.Comparison) {
		f.t.Errorf("later:\n%+v\nat once:\n%+v", anew, res.Comparison)
	}
	points := map[string]replay.Point{}
	for _, p := range res.Comparison {
		if points[p.What].What != "" || (p.Equal == replay.Yes) != (p.Why == "") {
			f.t.Errorf("%+v", p)
		}
		points[p.What] = p
	}
	return second, points
}

// plenty is a Reserve with room for everything.
func plenty(int64) error { return nil }

func (f *fixture) wants(points map[string]replay.Point, want map[string]replay.Equal) {
	f.t.Helper()
	for what, equal := range want {
		if points[what].Equal != equal {
			f.t.Errorf("%s: %+v, want %q", what, points[what], equal)
		}
	}
}

func (f *fixture) refused(code fault.Code, says string, q replay.Request) *fault.Error {
	f.t.Helper()
	q.RequestedBy = "token-1"
	if q.Reserve == nil {
		q.Reserve = plenty
	}
	_, err := f.Replay(f.t.Context(), q)
	if !fault.Is(err, code) || !strings.Contains(err.Error(), says) {
		f.t.Errorf("%v, want %s with %q", err, code, says)
	}
	return fault.From(err)
}

func TestReplay(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.limits.MemoryMB = new(int64(4096))
	executable := func(r *runner.Request) { r.Inputs[0].Executable = true }
	script := "cat /workspace/inputs/d/in.txt; cat > /workspace/artifacts/a.txt; echo x > /workspace/artifacts/b.txt; exit 3"
	first := f.exec(shell(script, input("d/in.txt", "content"), input("empty", ""), executable, env("SECRET", "hunter2"), stdin("some input"),
		func(r *runner.Request) {
			r.Overrides.MemoryMB, r.TaskID, r.ConversationID = new(int64(64)), "task", "talk"
		}))
	if first.InputsKept != audit.Kept {
		t.Fatalf("%+v", first)
	}
	second, points := f.again(replay.Request{First: first, Env: map[string]string{"SECRET": "hunter2"}, Stdin: []byte("some input")})
	for what, p := range points {
		if want := map[bool]replay.Equal{true: replay.Unknown, false: replay.Yes}[what == "work" || what == "other_inputs"]; p.Equal != want {
			t.Errorf("%+v", p)
		}
	}
	for _, what := range []string{
		"status", "exit_code", "stdout", "stderr", "artifacts/a.txt", "artifacts/b.txt", "image", "policy", "command", "inputs", "env.SECRET", "stdin", "work",
		"other_inputs",
	} {
		if points[what].What == "" {
			t.Errorf("no %s", what)
		}
	}
	if second.TaskID != "task" || second.ConversationID != "talk" || second.ExitCode == nil || *second.ExitCode != 3 || second.InputsKept != audit.Kept ||
		second.EnvHMACs[0] != first.EnvHMACs[0] {
		t.Errorf("%+v", second)
	}
	for _, r := range []audit.Record{first, second} {
		if r.Inputs[0].Mode != audit.ModeExecutable || r.Inputs[1].Mode != "" {
			t.Errorf("the modes of inputs are lost: %+v", r.Inputs)
		}
		if text, _ := json.Marshal(r); bytes.Contains(text, []byte("hunter2")) || bytes.Contains(text, []byte("some input")) {
			t.Errorf("%s", text)
		}
	}

	// A replay of a replay, with other values. Equal values in another exec do not show.
	_, points = f.again(replay.Request{First: second, Env: map[string]string{"SECRET": "hunter3"}})
	f.wants(points, map[string]replay.Equal{
		"env.SECRET": replay.No, "stdin": replay.No, "artifacts/a.txt": replay.No, "artifacts/b.txt": replay.Yes,
		"exit_code": replay.Yes, "inputs": replay.Yes,
	})
	_, points = f.again(replay.Request{First: second, Stdin: []byte("other input")})
	f.wants(points, map[string]replay.Equal{"env.SECRET": replay.No, "stdin": replay.No})
	other := f.exec(shell(script, env("SECRET", "hunter2"), stdin("some input")))
	if other.EnvHMACs[0] == first.EnvHMACs[0] || other.StdinHMAC == first.StdinHMAC {
		t.Error("equal values of two execs show")
	}

	f.refused(fault.InvalidRequest, "env.OTHER", replay.Request{First: first, Env: map[string]string{"OTHER": "x"}})
	f.refused(fault.InvalidRequest, "stdin", replay.Request{First: f.exec(shell("true")), Stdin: []byte("x")})
}

// TestCodeInFile: exec.code runs as a file again, also in a replay of the replay.
func TestCodeInFile(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	record := f.exec(shell("", func(r *runner.Request) {
		r.Command = runner.Command{Kind: runner.KindPython, Name: "python", Args: []string{runner.CodeFile, "print(1)", "x"}}
	}))
	for range 2 {
		if record.Status != audit.Succeeded {
			t.Fatalf("%+v", record)
		}
		var points map[string]replay.Point
		record, points = f.again(replay.Request{First: record})
		f.wants(points, map[string]replay.Equal{
			"status": replay.Yes, "exit_code": replay.Yes, "stdout": replay.Yes, "stderr": replay.Yes,
			"command": replay.Yes,
		})
	}
}

// TestDifferences: everything that came out differently is named.
func TestDifferences(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell(`echo x >> n; cat n; cat n >&2; cat n > /workspace/artifacts/n.txt`))
	_, points := f.again(replay.Request{First: first})
	f.wants(points, map[string]replay.Equal{
		"stdout": replay.No, "artifacts/n.txt": replay.No, "exit_code": replay.Yes, "work": replay.Unknown,
		"inputs": replay.Yes,
	})

	// Outputs over the limit that begin the same.
	long := f.exec(shell("echo 1234567890", func(r *runner.Request) { r.Overrides.MaxStdoutBytes = new(int64(4)) }))
	_, points = f.again(replay.Request{First: long})
	f.wants(points, map[string]replay.Equal{"stdout": replay.Unknown, "stderr": replay.Yes})

	// A record of a version without keyed digests.
	old := f.exec(shell("true", env("A", "b"), stdin("x")))
	old.RequestDigest, old.EnvHMACs, old.HMACSalt, old.StdinHMAC, old.StdinBytes = "sha", nil, "", "", 0
	_, points = f.again(replay.Request{First: old, Env: map[string]string{"A": "b"}, Stdin: []byte("x")})
	f.wants(points, map[string]replay.Equal{"env.A": replay.Unknown, "stdin": replay.Unknown})
}

func TestNotReplayable(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("cat /workspace/inputs/in", input("in", "content")))
	changed := func(change func(*audit.Record)) replay.Request {
		r := first
		change(&r)
		return replay.Request{First: r}
	}
	for says, change := range map[string]func(*audit.Record){
		"was damaged":          func(r *audit.Record) { r.Unreadable = map[string]string{"args": "{}"} },
		"is running":           func(r *audit.Record) { r.Status = audit.Running },
		"was refused":          func(r *audit.Record) { r.Status = audit.Rejected },
		"ran in a session":     func(r *audit.Record) { r.SessionID = "another" },
		"ran in a terminal":    func(r *audit.Record) { r.TTYRecord = audit.RecordOutput },
		"change of a file":     func(r *audit.Record) { r.Kind = audit.KindChange },
		"user's sandbox":       func(r *audit.Record) { r.Backend = "remote" },
		"before its command":   func(r *audit.Record) { r.ArtifactsPath, r.StartedAt = "", time.Time{} },
		"is not kept any more": func(r *audit.Record) { r.RequestedBy = "another" },
		"there was no room":    func(r *audit.Record) { r.RequestedBy, r.InputsKept = "another", audit.KeptNoRoom },
		"the settings kept":    func(r *audit.Record) { r.RequestedBy, r.InputsKept = "another", audit.KeptOff },
		"is gone: restore": func(r *audit.Record) {
			r.Inputs[0].Path, r.SkillID, r.SkillDigest = workspace.SkillInputs+"/x.json", "shell.run", "0f"
		},
		"and this installation has another": func(r *audit.Record) {
			r.Inputs[0].Path, r.SkillID, r.SkillDigest = "in", "skill-creator", "0f"
		},
		"cannot read": func(r *audit.Record) { r.PolicySnapshot = json.RawMessage(`{"fields": {}}`) },
	} {
		one := first
		one.Inputs = slices.Clone(first.Inputs)
		change(&one)
		f.refused(fault.NotReplayable, says, replay.Request{First: one})
	}
	rows := func() int {
		list, _, err := f.log.List(t.Context(), audit.Filter{}, nil, 100)
		f.must(err)
		return len(list)
	}
	if n := rows(); n != 1 {
		t.Errorf("%d rows", n)
	}

	// Another image has the name now, and the first one is gone: that is on record.
	old := changed(func(r *audit.Record) { r.ImageID = "sha256:old" })
	if second, points := f.again(old); second.ImageID != "sha256:sha256:old" || points["exit_code"].Equal != replay.Yes { // memengine's id of that reference
		t.Errorf("%+v", second)
	}
	f.images.Fail("sha256:old", fault.New(fault.ImageMissing, "gone"))
	if e := f.refused(fault.NotReplayable, "load it again", old); f.row(e.ExecID).ReplayOf != first.ExecID ||
		f.row(e.ExecID).ErrorReason != audit.ImageMissing {
		t.Errorf("%+v", f.row(e.ExecID))
	}
}

// TestCeiling: a limit that is above today's ceiling is refused, on record.
func TestCeiling(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("true", func(r *runner.Request) { r.Overrides.PIDs = new(int64(1000)) }))
	f.stop()
	f.limits = policy.Limits{PIDs: new(int64(500))}
	f.start()
	e := f.refused(fault.PolicyDenied, "pids", replay.Request{First: first})
	if r := f.row(e.ExecID); r.Status != audit.Rejected || r.ReplayOf != first.ExecID {
		t.Errorf("%+v", r)
	}
}

// TestAlteredInput: a changed copy is named, and nothing runs.
func TestAlteredInput(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("cat /workspace/inputs/in", input("in", "content")))
	var file string
	f.must(filepath.WalkDir(filepath.Join(f.dir, "workspace", "kept-inputs"), func(path string, d os.DirEntry, err error) error {
		if d.Name() == first.Inputs[0].SHA256 {
			file = path
		}
		return err
	}))
	f.must(os.WriteFile(file, []byte("tnetnoc"), 0o600))
	f.refused(fault.ArtifactAltered, `"in"`, replay.Request{First: first})
}

// TestManyInputs: a record whose lists were cut is completed from meta.json, for which the manifest
// vouches.
func TestManyInputs(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	many := func(r *runner.Request) {
		for i := range 1000 {
			r.Inputs = append(r.Inputs, runner.Input{Path: fmt.Sprintf("directory-%03d/%s", i, strings.Repeat("n", 50)), Content: fmt.Append(nil, i%10)})
		}
	}
	first := f.exec(shell("true", many))
	if l := first.LargeLists["inputs"]; l.Kept >= l.Count || first.InputsKept != audit.Kept || f.inputs.Used() != 10*4096 {
		t.Fatalf("%+v, %d bytes", first.LargeLists, f.inputs.Used())
	}
	_, points := f.again(replay.Request{First: first})
	f.wants(points, map[string]replay.Equal{"inputs": replay.Yes, "command": replay.Yes})
	named := map[string]bool{}
	f.must(f.Named(t.Context(), first, func(token, digest string) { named[token+digest] = true }))
	if len(named) != 10 {
		t.Errorf("%d contents are named", len(named))
	}
	meta := filepath.Join(f.dir, "workspace", first.ArtifactsPath, runner.MetaFile)
	f.must(os.Chmod(filepath.Dir(meta), 0o755))
	f.must(os.Remove(meta))
	f.must(os.WriteFile(meta, []byte("{}"), 0o644))
	f.refused(fault.ArtifactAltered, "meta.json", replay.Request{First: first})
	f.must(f.Named(t.Context(), first, func(token, digest string) { t.Error("named, and it cannot be replayed") }))
}

// TestLostExec: an exec whose node died can run again as far as its inputs were kept; its outcome
// is unknown.
func TestLostExec(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	opened := make(chan string, 1)
	go func() {
		_, _ = f.runner.Run(context.Background(), shell("hold", input("in", "content"),
			func(r *runner.Request) { r.OnOpen = func(id string) { opened <- id } }))
	}()
	id := <-opened
	<-f.held
	f.refused(fault.NotReplayable, "is running", replay.Request{First: f.row(id)})
	lost := f.row(id)
	f.stop()
	lost.Status, lost.ErrorReason = audit.Lost, audit.NodeLost // as after a kill
	f.start()
	go func() { <-f.held; f.runner.Cancel(context.Background(), f.newest()) }()
	_, points := f.again(replay.Request{First: lost})
	f.wants(points, map[string]replay.Equal{
		"status": replay.Unknown, "exit_code": replay.Unknown, "stdout": replay.Unknown, "artifacts": replay.Unknown,
		"inputs": replay.Yes,
	})
}

func (f *fixture) newest() string {
	list, _, err := f.log.List(context.Background(), audit.Filter{}, nil, 1)
	if err != nil {
		panic(err)
	}
	return list[0].ExecID
}

// TestSkill: an invoke is replayed as an invoke, with its input, and its output is validated.
func TestSkill(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	skill, err := f.catalog.Now().Get("shell.run")
	f.must(err)
	res, err := f.runner.Run(t.Context(), runner.Request{
		ProjectID: "p", RequestedBy: "token-1", SkillID: "shell.run", Digest: "d",
		Command: runner.Command{Name: "bash", Args: []string{"-lc", `cat $SKILL_INPUT > $SKILL_OUTPUT`}},
		Skill: &runner.Skill{
			Layer: skill.Manifest.Layer(), Folder: invoke.FolderOf(skill), Input: []byte(`{"script": "echo hi"}`), MaxOutput: 1 << 20,
			Accept: func(_ context.Context, output []byte) ([]byte, error) { return output, nil },
		},
	})
	f.must(err)
	first := f.row(res.Record.ExecID)
	second, points := f.again(replay.Request{First: first})
	f.wants(points, map[string]replay.Equal{
		"skill": replay.Yes, "inputs": replay.Yes, "command": replay.Yes, "policy": replay.Yes,
		"artifacts/skill_output.json": replay.Yes,
	})
	if second.SkillDigest != skill.Digest || second.ErrorReason != audit.InvalidOutput { // the skill's own schema refuses it
		t.Errorf("%+v", second)
	}
	f.refused(fault.InvalidRequest, "env.SKILL_INPUT", replay.Request{First: first, Env: map[string]string{"SKILL_INPUT": "/etc/passwd"}})
}

// TestSameReplayUnderOneKey runs once, and a key that was used for another request is refused.
func TestSameReplayUnderOneKey(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("cat", env("A", "b"), stdin("x")))
	q := replay.Request{First: first, Env: map[string]string{"A": "b"}, IdempotencyKey: "key", RequestedBy: "token-1", Reserve: plenty}
	var all sync.WaitGroup
	ids := make([]string, 5)
	for i := range ids {
		all.Go(func() {
			res, err := f.Replay(t.Context(), q)
			if err != nil {
				t.Error(err)
			}
			ids[i] = res.Exec.Record.ExecID
		})
	}
	all.Wait()
	if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 1 {
		t.Errorf("%q", ids)
	}
	q.Env = nil
	f.refused(fault.IdempotencyMismatch, "Idempotency-Key", q)
}

// TestWithoutFiles: what the first exec left is gone, so outputs and artifacts are unknown.
func TestWithoutFiles(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("echo x > /workspace/artifacts/a"))
	f.must(os.RemoveAll(filepath.Join(f.dir, "workspace", first.ArtifactsPath)))
	_, points := f.again(replay.Request{First: first})
	f.wants(points, map[string]replay.Equal{"stdout": replay.Unknown, "stderr": replay.Unknown, "artifacts": replay.Unknown, "exit_code": replay.Yes})
	if !strings.Contains(points["artifacts"].Why, "the first exec") {
		t.Errorf("%+v", points["artifacts"])
	}
}
