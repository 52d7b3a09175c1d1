package replay_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/replay"
	"secbox/runner"
	"secbox/workspace"
)

// TestRepeatNeedsNoInputs: a replay under a key answers what it has answered before, though it
// could not run now.
func TestRepeatNeedsNoInputs(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("cat /workspace/inputs/in; echo x > /workspace/artifacts/a", input("in", "content"),
		func(r *runner.Request) { r.Overrides.PIDs = new(int64(1000)) }))
	q := replay.Request{First: first, RequestedBy: "token-1", IdempotencyKey: "key", Reserve: plenty}
	want, err := f.Replay(t.Context(), q)
	f.must(err)
	f.stop()
	f.must(os.RemoveAll(filepath.Join(f.dir, "workspace", "kept-inputs")))
	f.limits = policy.Limits{PIDs: new(int64(500))}
	f.start()
	f.images.Fail(first.ImageID, fault.New(fault.ImageMissing, "gone"))
	got, err := f.Replay(t.Context(), q)
	f.must(err)
	if got.Exec.Record.ExecID != want.Exec.Record.ExecID || !got.Exec.Replayed || string(got.Exec.Stdout) != "content" ||
		!slices.Equal(got.Comparison, want.Comparison) {
		t.Errorf("%+v", got)
	}
	other := q
	other.Stdin = []byte("x")
	f.refused(fault.IdempotencyMismatch, "Idempotency-Key", other)
	f.refused(fault.NotReplayable, "is not kept any more", replay.Request{First: first, IdempotencyKey: "another"})

	// The same for a skill, whose version is gone.
	invoked := first
	invoked.SkillID, invoked.SkillDigest = "shell.run", "0f"
	invoked.Inputs = []audit.Input{{Path: workspace.SkillInputs + "/x.json"}}
	q.First = invoked
	if got, err = f.Replay(t.Context(), q); err != nil || got.Exec.Record.ExecID != want.Exec.Record.ExecID {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRepeatEndsWithItsClient: a client that hangs up does not wait for the exec under its key, and
// that exec goes on.
func TestRepeatEndsWithItsClient(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("true"))
	first.Args = []string{"-lc", "hold"}
	q := replay.Request{First: first, RequestedBy: "token-1", IdempotencyKey: "key", Reserve: plenty}
	client, hangUp := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	replays := func(ctx context.Context) {
		_, err := f.Replay(ctx, q)
		ends <- err
	}
	go replays(client)
	id := <-f.held
	repeat, leave := context.WithCancel(t.Context())
	go replays(repeat)
	leave()
	if err := <-ends; err == nil {
		t.Error("the repeat has an answer, and the exec runs")
	}
	hangUp()
	if r := f.row(id); r.Status != audit.Running {
		t.Errorf("%+v", r)
	}
	f.must(f.runner.Cancel(t.Context(), id))
	f.must(<-ends)
	if r := f.row(id); r.Status != audit.Canceled {
		t.Errorf("%+v", r)
	}

	// A client that has left before anything runs gets nothing.
	gone := q
	gone.IdempotencyKey, gone.First = "", f.exec(shell("true", input("in", "x")))
	if _, err := f.Replay(client, gone); err == nil {
		t.Error("it ran for no one")
	}
}

// TestMemoryIsCounted: the contents of inputs, and the lists that are read from meta.json and the
// manifests, are counted before they are read.
func TestMemoryIsCounted(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("for i in 1 2 3 4 5 6 7 8 9; do echo $i > /workspace/artifacts/$i; done", func(r *runner.Request) {
		for i := range 500 {
			r.Inputs = append(r.Inputs, runner.Input{
				Path:    fmt.Sprintf("directory-%03d/%s", i, strings.Repeat("n", 50)),
				Content: []byte(strings.Repeat("x", 1000*(i%10))),
			})
		}
	}))
	if l := first.LargeLists["inputs"]; l.Kept >= l.Count {
		t.Fatalf("%+v", first.LargeLists)
	}
	var counted, most int64
	reserve := func(bytes int64) error {
		if counted += bytes; most > 0 && counted > most {
			return fault.New(fault.ServerBusy, "no room")
		}
		return nil
	}
	res, err := f.Replay(t.Context(), replay.Request{First: first, RequestedBy: "token-1", Reserve: reserve})
	f.must(err)
	const contents, text = 500 * 4500, 500 * 130 // bytes; text at least
	if counted < contents+8*text {
		t.Errorf("%d bytes are counted", counted)
	}
	all := counted
	rows := func() int {
		list, _, err := f.log.List(t.Context(), audit.Filter{}, nil, 100)
		f.must(err)
		return len(list)
	}
	before := rows()
	for _, room := range []int64{1, 8 * text, contents} {
		counted, most = 0, room
		f.refused(fault.ServerBusy, "no room", replay.Request{First: first, Reserve: reserve})
	}
	if n := rows(); n != before {
		t.Errorf("%d rows, want %d", n, before)
	}
	counted, most = 0, 1
	for _, p := range f.Compare(t.Context(), first, f.row(res.Exec.Record.ExecID), reserve) {
		if slices.Contains([]string{"stdout", "stderr", "artifacts", "command"}, p.What) && (p.Equal != replay.Unknown || !strings.Contains(p.Why, "no room")) {
			t.Errorf("%+v", p)
		}
	}

	// What a record says of sizes is not believed.
	digest := first.Inputs[1].SHA256
	for _, size := range []int64{-1, 1 << 62} {
		first.LargeLists, first.Inputs = nil, []audit.Input{{Path: "in", SHA256: digest, Size: size}}
		counted, most = 0, all
		if _, err := f.Replay(t.Context(), replay.Request{First: first, RequestedBy: "token-1", Reserve: reserve}); err == nil || counted < 0 {
			t.Errorf("%d: %v, %d counted", size, err, counted)
		}
	}
}

// TestReplaysAtOnceAndInChains: replays of one exec do not disturb each other, and the record of a
// replay does not grow with those before it.
func TestReplaysAtOnceAndInChains(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("cat /workspace/inputs/in; cat", input("in", "content"), stdin("x"), env("A", "b")))
	q := replay.Request{First: first, RequestedBy: "token-1", Env: map[string]string{"A": "b"}, Stdin: []byte("x"), Reserve: plenty}
	var all sync.WaitGroup
	ids := make([]string, 6)
	for i := range ids {
		all.Go(func() {
			res, err := f.Replay(t.Context(), q)
			if err != nil || string(res.Exec.Stdout) != "contentx" {
				t.Errorf("%q, %v", res.Exec.Stdout, err)
			}
			ids[i] = res.Exec.Record.ExecID
		})
	}
	all.Wait()
	if slices.Sort(ids); len(slices.Compact(ids)) != len(ids) {
		t.Errorf("%q", ids)
	}
	last := f.row(ids[0])
	for range 5 {
		next, points := f.again(replay.Request{First: last, Env: q.Env, Stdin: q.Stdin})
		f.wants(points, map[string]replay.Equal{"stdout": replay.Yes, "inputs": replay.Yes, "env.A": replay.Yes, "stdin": replay.Yes, "policy": replay.Yes})
		if next.ReplayOf != last.ExecID || len(next.PolicySnapshot) != len(last.PolicySnapshot) || next.HMACSalt != first.HMACSalt {
			t.Errorf("%+v", next)
		}
		last = next
	}
}

// TestReplayOfWhatDidNotEndByItself: a canceled exec can run again, and one that was canceled while
// it waited cannot.
func TestReplayOfWhatDidNotEndByItself(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	results := make(chan audit.Record, 1)
	go func() {
		res, err := f.runner.Run(context.Background(), shell("hold", input("in", "content")))
		if err != nil {
			t.Error(err)
		}
		results <- res.Record
	}()
	id := <-f.held
	f.must(f.runner.Cancel(t.Context(), id))
	<-results
	canceled := f.row(id)
	go func() { f.runner.Cancel(context.Background(), <-f.held) }()
	_, points := f.again(replay.Request{First: canceled})
	f.wants(points, map[string]replay.Equal{"status": replay.Yes, "inputs": replay.Yes, "stdout": replay.Yes})

	waited := canceled
	waited.ArtifactsPath, waited.StartedAt = "", time.Time{}
	f.refused(fault.NotReplayable, "before its command", replay.Request{First: waited})

	// A record of a version that kept no inputs and no keyed digests.
	old := f.exec(shell("cat /workspace/inputs/in", input("in", "another"), env("A", "b")))
	old.RequestedBy, old.InputsKept, old.HMACSalt, old.EnvHMACs, old.RequestDigest = "then", "", "", nil, "sha"
	f.refused(fault.NotReplayable, "is not kept any more", replay.Request{First: old})
	old.Inputs = nil
	_, points = f.again(replay.Request{First: old, Env: map[string]string{"A": "b"}})
	f.wants(points, map[string]replay.Equal{"env.A": replay.Unknown, "inputs": replay.Yes})
}

// TestInputsThatCannotBeKept: a store that cannot be written stops no exec, and the record and the
// refusal of a replay say why.
func TestInputsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	kept := filepath.Join(f.dir, "workspace", "kept-inputs")
	f.exec(shell("true", input("in", "content")))
	tokens, err := os.ReadDir(kept)
	f.must(err)
	if len(tokens) != 1 {
		t.Fatalf("%v", tokens)
	}
	token := filepath.Join(kept, tokens[0].Name())
	f.must(os.RemoveAll(token))
	f.must(os.WriteFile(token, nil, 0o600)) // no directory can be made there, like on a full disk
	first := f.exec(shell("cat /workspace/inputs/in", input("in", "another")))
	if first.Status != audit.Succeeded || first.InputsKept != audit.KeptFailed {
		t.Errorf("%+v", first)
	}
	f.must(os.Remove(token))
	f.refused(fault.NotReplayable, "its inputs could not be written", replay.Request{First: first})
	if again := f.exec(shell("cat /workspace/inputs/in", input("in", "another"))); again.InputsKept != audit.Kept {
		t.Errorf("%+v", again)
	}
}
