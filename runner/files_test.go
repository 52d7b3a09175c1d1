package runner_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/fault"
	"secbox/internal/admission"
	"secbox/policy"
	"secbox/runner"
	"secbox/workspace"
)

// output reads the kept part of a stream.
func (f *fixture) output(r audit.Record, stream string) []byte {
	f.t.Helper()
	file, size, err := f.OpenOutput(f.t.Context(), r, stream)
	must(f.t, err)
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil || int64(len(content)) != size {
		f.t.Fatalf("%d bytes of %d, %v", len(content), size, err)
	}
	return content
}

// TestOutputLimits: of each stream a bounded beginning is kept, all of it is counted, and the
// answer repeats the first InlineBytes.
func TestOutputLimits(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	limits := func(stdout, stderr int64) func(*runner.Request) {
		return func(r *runner.Request) {
			r.Overrides = policy.Layer{Limits: policy.Limits{MaxStdoutBytes: &stdout, MaxStderrBytes: &stderr}}
		}
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 10_000) // 160,000 bytes
	stdin := func(r *runner.Request) { r.Command.Stdin = text }
	for name, c := range map[string]struct {
		script         string
		stdout, stderr int64 // limits
		kept           [2]int
		truncated, cut [2]bool
	}{
		"short":           {"echo -n out; echo -n err >&2", 1000, 1000, [2]int{3, 3}, [2]bool{}, [2]bool{}},
		"long":            {"cat", 1 << 20, 1, [2]int{160_000, 0}, [2]bool{}, [2]bool{true, false}},
		"over the limit":  {"cat", 100_000, 1, [2]int{100_000, 0}, [2]bool{true, false}, [2]bool{true, false}},
		"limit is inline": {"cat >&2", 1, 5000, [2]int{0, 5000}, [2]bool{false, true}, [2]bool{}},
		"in a character":  {"echo -n é天; echo -n 天é >&2", 4, 4, [2]int{2, 3}, [2]bool{true, true}, [2]bool{}},
		"at a character":  {"echo -n é天", 5, 1, [2]int{5, 0}, [2]bool{}, [2]bool{}},
		"at the limit":    {"echo -n 12345", 5, 1, [2]int{5, 0}, [2]bool{}, [2]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := f.exec(shell("p", c.script, limits(c.stdout, c.stderr), stdin))
			r := result.Record
			if [2]bool{r.StdoutTruncated, r.StderrTruncated} != c.truncated || [2]bool{result.StdoutCut, result.StderrCut} != c.cut {
				t.Errorf("truncated %v %v, cut %v %v", r.StdoutTruncated, r.StderrTruncated, result.StdoutCut, result.StderrCut)
			}
			stdout, stderr := f.output(r, "stdout"), f.output(r, "stderr")
			if len(stdout) != c.kept[0] || len(stderr) != c.kept[1] {
				t.Errorf("%d and %d bytes are kept", len(stdout), len(stderr))
			}
			if !bytes.Equal(result.Stdout, stdout[:min(len(stdout), runner.InlineBytes)]) ||
				!bytes.Equal(result.Stderr, stderr[:min(len(stderr), runner.InlineBytes)]) {
				t.Errorf("the answer has %d and %d bytes", len(result.Stdout), len(result.Stderr))
			}
			if c.script == "cat" && (r.StdoutBytes != int64(len(text)) || !bytes.Equal(stdout, text[:len(stdout)])) {
				t.Errorf("%d bytes counted", r.StdoutBytes)
			}
		})
	}
}

// TestOutputOfARunningExec can be read while it comes, and to its end.
func TestOutputOfARunningExec(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1))
	p := f.post(shell("p", "cat; hold; echo more", func(r *runner.Request) { r.Command.Stdin = make([]byte, 2*runner.InlineBytes) }))
	<-f.held
	queued := f.post(shell("q", "true", by("token-2")))
	if got := f.output(f.row(queued.id()), "stdout"); len(got) != 0 {
		t.Errorf("an exec that waits has printed %q", got)
	}
	running := f.row(p.id())
	early, size, err := f.OpenOutput(t.Context(), running, "stdout")
	must(t, err)
	defer early.Close()
	if got := f.output(running, "stdout"); len(got) != 2*runner.InlineBytes || size != int64(len(got)) || len(f.output(running, "stderr")) != 0 {
		t.Errorf("%d bytes so far, %d of a reader", len(got), size)
	}
	if _, err := f.Artifacts(t.Context(), running); !fault.Is(err, fault.ArtifactsPending) {
		t.Errorf("artifacts of a running exec: %v", err)
	}
	f.release <- struct{}{}
	end := p.wants(audit.Succeeded, "").Record
	if got, err := io.ReadAll(early); err != nil || int64(len(got)) != size {
		t.Errorf("a reader that began early: %d bytes of %d, %v", len(got), size, err)
	}
	if got := f.output(end, "stdout"); !bytes.HasSuffix(got, []byte("\x00more\n")) {
		t.Errorf("%d bytes at the end", len(got))
	}
	queued.wants(audit.Succeeded, "")
}

// TestStateDirCannotBeWritten: output that is lost is said to be lost, and the exec goes on.
func TestStateDirCannotBeWritten(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	must(t, os.RemoveAll(filepath.Join(f.cfg.StateDir, "captures")))
	result := f.exec(shell("p", "cat; exit 3", func(r *runner.Request) { r.Command.Stdin = make([]byte, 3*runner.InlineBytes) }))
	if r := result.Record; r.Status != audit.Failed || !r.StdoutTruncated || !strings.Contains(r.Detail, "the state dir could not keep all output") ||
		r.StdoutBytes != 3*runner.InlineBytes {
		t.Errorf("%+v", r)
	}
	must(t, os.MkdirAll(filepath.Join(f.cfg.StateDir, "captures"), 0o700))
}

// TestArtifactLimits: files over the limit are left out, the list says so, and all listed files can
// be read.
func TestArtifactLimits(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	limit := int64(1000)
	result := f.exec(shell("p", "mkdir /workspace/artifacts/d; echo a > /workspace/artifacts/d/a; cat > /workspace/artifacts/b", func(r *runner.Request) {
		r.Overrides.MaxArtifactsBytesTotal, r.Command.Stdin = &limit, make([]byte, 2000)
	}))
	if result.Record.Status != audit.Succeeded || result.Record.ArtifactsBytes != 2 || len(result.Artifacts) != 1 || result.Artifacts[0].Path != "d/a" {
		t.Errorf("%+v, %v", result.Record, result.Artifacts)
	}
	if d := result.Record.Detail; !strings.Contains(d, "max_artifacts_bytes_total=1000, raise") {
		t.Errorf("the answer does not say that artifacts are missing: %q", d)
	}
	left, err := f.Artifacts(t.Context(), result.Record)
	must(t, err)
	defer left.Close()
	if list := left.List(); !list.Truncated || list.TotalBytes != 2 {
		t.Errorf("%+v", list)
	}
	file, item, err := left.Open(t.Context(), "d/a")
	must(t, err)
	defer file.Close()
	if got, err := io.ReadAll(file); string(got) != "a\n" || err != nil || item.Size != 2 {
		t.Errorf("%q %v %+v", got, err, item)
	}
	for _, name := range []string{"b", "d", "stdout.txt", "../p", ""} {
		if _, _, err := left.Open(t.Context(), name); !fault.Is(err, fault.UnknownArtifact) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"stdout.txt", "stderr.txt", runner.ManifestFile, runner.MetaFile} {
		f.published(result.Record, name)
	}
}

// TestAlteredArtifact: evidence that was changed is not read as if it were the exec's.
func TestAlteredArtifact(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	req := shell("p", "echo out; echo a > /workspace/artifacts/a", under("key"))
	r := f.exec(req).Record
	dir := filepath.Join(f.dir, "workspace", filepath.FromSlash(r.ArtifactsPath))
	alter := func(name string) {
		t.Helper()
		path := filepath.Join(dir, name)
		content, err := os.ReadFile(path)
		must(t, err)
		content[0] ^= 1
		must(t, os.WriteFile(path+".new", content, 0o644))
		must(t, os.Rename(path+".new", path))
	}
	alter("a")
	left, err := f.Artifacts(t.Context(), r)
	must(t, err)
	defer left.Close()
	if _, _, err := left.Open(t.Context(), "a"); !fault.Is(err, fault.ArtifactAltered) {
		t.Errorf("an artifact: %v", err)
	}
	alter("stdout.txt")
	if _, _, err := f.OpenOutput(t.Context(), r, "stdout"); !fault.Is(err, fault.ArtifactAltered) {
		t.Errorf("the output: %v", err)
	}
	if e := f.refused(fault.ArtifactAltered, req); e.ExecID != r.ExecID {
		t.Errorf("a replay: %+v", e)
	}
	alter(runner.ManifestFile)
	if _, err := f.Artifacts(t.Context(), r); !fault.Is(err, fault.ArtifactAltered) {
		t.Errorf("the manifest: %v", err)
	}
}

// TestNeverRanHasNoFiles: an exec that did not run has an empty list and no output.
func TestNeverRanHasNoFiles(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	huge := int64(1 << 40)
	e := f.refused(fault.PolicyDenied, shell("p", "true", func(r *runner.Request) { r.Overrides.MemoryMB = &huge }))
	r := f.row(e.ExecID)
	left, err := f.Artifacts(t.Context(), r)
	must(t, err)
	defer left.Close()
	if list := left.List(); len(list.Items) != 0 || len(f.output(r, "stdout")) != 0 {
		t.Errorf("%+v", list)
	}
	if _, _, err := f.OpenPublished(t.Context(), r, runner.MetaFile); !fault.Is(err, fault.UnknownArtifact) {
		t.Errorf("meta.json: %v", err)
	}
}

// TestInputsInUse: the inputs of a running exec do not change until it ends.
func TestInputsInUse(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	holder := f.post(shell("p", "hold; cat /workspace/inputs/d/in.txt", input("d/in.txt", "first"), input("free.txt", "x")))
	<-f.held
	shared := f.exec(shell("p", "cat /workspace/inputs/d/in.txt /workspace/inputs/own.txt", input("./d//in.txt", "first"), input("own.txt", "y")))
	if string(shared.Stdout) != "firsty" {
		t.Errorf("the same content is shared: %q", shared.Stdout)
	}
	for name, c := range map[string]struct {
		path string
		code fault.Code
	}{
		"other content": {"d/in.txt", fault.InputInUse}, "in other case": {"D/IN.txt", fault.InputInUse},
		"a directory": {"d", fault.InputConflict}, "below a file": {"d/in.txt/x", fault.InputConflict},
	} {
		e := f.refused(c.code, shell("p", "true", input("new.txt", "new"), input(c.path, "second")))
		if len(e.Fields) != 1 || e.Fields[0].Field != "inputs[1].path" {
			t.Errorf("%s: %+v", name, e)
		}
		if r := f.row(e.ExecID); r.Status != audit.Rejected || r.ErrorReason != audit.InputRefused || r.Detail != e.Message || r.ArtifactsPath != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if _, err := os.Stat(f.path("p", "inputs", "new.txt")); err == nil {
		t.Error("a part of a refused request's inputs was written")
	}
	f.release <- struct{}{}
	if got := holder.wants(audit.Succeeded, ""); string(got.Stdout) != "first" {
		t.Errorf("the holder read %q", got.Stdout)
	}
	for _, req := range []runner.Request{
		shell("p", "cat /workspace/inputs/d/in.txt", input("d/in.txt", "second")), shell("p", "cat /workspace/inputs/d/in.txt"),
	} {
		if got := f.exec(req); string(got.Stdout) != "second" {
			t.Errorf("afterwards: %q", got.Stdout)
		}
	}
	if dirs := f.artifactDirs("p"); len(dirs) != 4 {
		t.Errorf("artifacts of %v", dirs)
	}
}

// TestManyExecsShareAProject: each has its own input and its own artifacts.
func TestManyExecsShareAProject(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(8, 100), each(admission.Share{AtOnce: 8, Queue: 100}))
	var all []*pending
	for i := range 40 {
		name := fmt.Sprintf("in-%d", i)
		all = append(all, f.post(shell("p", "cat /workspace/inputs/"+name+" > /workspace/artifacts/out; cat /workspace/inputs/"+name, input(name, name))))
	}
	for i, p := range all {
		if got := p.wants(audit.Succeeded, ""); string(got.Stdout) != fmt.Sprintf("in-%d", i) || len(got.Artifacts) != 1 {
			t.Errorf("%d: %q, %v", i, got.Stdout, got.Artifacts)
		}
	}
}

// TestPolicyNarrowsMounts: directories that the policy takes away are not mounted.
func TestPolicyNarrowsMounts(t *testing.T) {
	t.Parallel()
	f := setUp(t, run(func(_ context.Context, c *memengine.Container) (engine.Exit, error) {
		for _, m := range c.Mounts {
			fmt.Fprintf(c.Stdout, "%s %v\n", m.Target, m.ReadOnly)
		}
		return engine.Exit{}, nil
	}))
	for want, layer := range map[string]policy.Layer{
		"/workspace/inputs true\n/workspace/work false\n/workspace/artifacts false\n": {},
		"/workspace/inputs true\n/workspace/work true\n/workspace/artifacts true\n":   {FSWrite: []string{}},
		"/workspace/work false\n": {FSRead: []string{policy.PatternWork}, FSWrite: []string{policy.PatternWork}},
	} {
		got := f.exec(shell("p", "true", func(r *runner.Request) { r.Overrides = layer }))
		if string(got.Stdout) != want {
			t.Errorf("%+v: %q, want %q", layer, got.Stdout, want)
		}
	}
}

// TestUnusedDirectoriesAreRemoved: a directory for artifacts that an earlier process had made ahead
// of its exec is removed at the next start, unless there is something in it.
func TestUnusedDirectoriesAreRemoved(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ran := f.exec(shell("p", "echo a > /workspace/artifacts/a")).Record
	f.shutDown(time.Minute)
	const unused, used, torn = "01890000-0000-7000-8000-0000000000aa", "01890000-0000-7000-8000-0000000000bb", "01890000-0000-7000-8000-0000000000cc"
	for id, project := range map[string]string{unused: "p", used: "p", torn: ""} {
		must(t, os.Mkdir(f.path("p", "artifacts", id), 0o755))
		must(t, os.WriteFile(filepath.Join(f.cfg.StateDir, "allotted", id), []byte(project), 0o600))
	}
	must(t, os.WriteFile(f.path("p", "artifacts", used, "x"), nil, 0o600))
	f.boot()
	got := strings.Join(f.artifactDirs("p"), " ")
	if strings.Contains(got, unused) || !strings.Contains(got, used) || !strings.Contains(got, ran.ExecID) {
		t.Errorf("artifacts of %s", got)
	}
	f.exec(shell("p", "true"))
}

// TestManifestsCountAsMemory: what a request reads of artifacts counts as its memory, also when it
// repeats another one by its Idempotency-Key.
func TestManifestsCountAsMemory(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	req := shell("p", "echo a > /workspace/artifacts/a", under("key"))
	r := f.exec(req).Record
	var held int64
	ctx := runner.Counted(t.Context(), func(bytes int64) error {
		held += bytes
		return nil
	})
	left, err := f.Artifacts(ctx, r)
	must(t, err)
	if held == 0 {
		t.Error("an open manifest does not count")
	}
	must(t, left.Close())
	if held != 0 {
		t.Errorf("%d bytes are held after Close", held)
	}
	if result, err := f.Run(ctx, req); err != nil || !result.Replayed || len(result.Artifacts) != 1 || held == 0 {
		t.Errorf("a repeated request holds %d bytes: %+v, %v", held, result, err)
	}
	full := runner.Counted(t.Context(), func(bytes int64) error { return fault.New(fault.ServerBusy, "full") })
	if _, err := f.Run(full, req); !fault.Is(err, fault.ServerBusy) {
		t.Errorf("a repeated request without memory: %v", err)
	}
}

// TestDetailNamesTheLimitOfArtifacts: an exec whose artifacts are too deep is not told to raise the
// bytes.
func TestDetailNamesTheLimitOfArtifacts(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	r := f.exec(shell("p", "mkdir /workspace/artifacts"+strings.Repeat("/d", workspace.MaxDepth+1))).Record
	if !strings.Contains(r.Detail, "at most 64 directories below each other are kept") || strings.Contains(r.Detail, "max_artifacts_bytes_total") {
		t.Errorf("%q", r.Detail)
	}
}
