package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/engine"
	"secbox/fault"
)

// contract is what every engine promises. Its jobs are written in the few words of shell that
// package memengine knows, too.
var contract = map[string]func(*testing.T, *Fixture){
	"ReportsExit":             reportsExit,
	"StdinOfAnySize":          stdinOfAnySize,
	"CutsAndCountsOutput":     cutsAndCountsOutput,
	"CallsOnStartFirst":       callsOnStartFirst,
	"Deadline":                deadline,
	"CancelKills":             cancelKills,
	"CancelBeforeTheStart":    cancelBeforeTheStart,
	"WritesIntoMounts":        writesIntoMounts,
	"FailedPrepare":           failedPrepare,
	"ExecIDs":                 execIDs,
	"DiscardDropsMounts":      discardDropsMounts,
	"SlotsRunAtTheSameTime":   slotsRunAtTheSameTime,
	"RunReturnsAfterLastByte": runReturnsAfterLastByte,
}

// RunContract checks an engine that has no containers. Each case calls mk for an engine, which it
// closes.
func RunContract(t *testing.T, mk func(t *testing.T) engine.Engine) {
	t.Helper()
	for name, check := range contract {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &Fixture{
				t: t, Engine: mk(t), Image: engine.Image{Ref: Image, ID: "sha256:" + strings.Repeat("0", 64)}, Dir: projectDir(t),
				User: "1000:1000",
			}
			t.Cleanup(f.closeTwice)
			check(t, f)
		})
	}
}

func reportsExit(t *testing.T, f *Fixture) {
	for _, c := range []struct {
		name   string
		job    func(*engine.Job)
		script string
		want   engine.Exit
		stdout string
		stderr string // contained
	}{
		{name: "output on both streams", script: "echo out; echo err >&2", stdout: "out\n", stderr: "err\n"},
		{name: "exit code", script: "exit 42", want: engine.Exit{Code: 42}},
		{name: "the last command's code", script: "false", want: engine.Exit{Code: 1}},
		{name: "signal", script: "kill -TERM $$", want: engine.Exit{Code: 128 + 15, Signal: 15}},
		{name: "environment", script: `echo -n "$K"`, stdout: "v=1", job: func(j *engine.Job) { j.Env = map[string]string{"K": "v=1"} }},
		{
			name: "makes the working directory", script: "pwd", stdout: "/workspace/work/a/b\n",
			job: func(j *engine.Job) { j.Cwd = "/workspace/work/a/b" },
		},
		{name: "command not found", job: func(j *engine.Job) { j.Argv = []string{"no-such-command"} }, want: engine.Exit{Code: 127}},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := Shell(c.script)
			if c.job != nil {
				c.job(&job)
			}
			ran := f.Run(t.Context(), job)
			if ran.Err != nil || ran.Code != c.want.Code || ran.Signal != c.want.Signal || ran.TimedOut || ran.Killed {
				t.Fatalf("%+v, want %+v", ran, c.want)
			}
			if ran.Stdout != c.stdout || !strings.Contains(ran.Stderr, c.stderr) {
				t.Errorf("stdout %q, want %q; stderr %q should have %q", ran.Stdout, c.stdout, ran.Stderr, c.stderr)
			}
			if (ran.StartError != "") != (c.want.Code == 127) {
				t.Errorf("StartError is %q", ran.StartError)
			}
			if ran.StdoutBytes != int64(len(ran.Stdout)) || ran.StderrBytes != int64(len(ran.Stderr)) {
				t.Errorf("%d and %d bytes counted", ran.StdoutBytes, ran.StderrBytes)
			}
		})
	}
}

func stdinOfAnySize(t *testing.T, f *Fixture) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB: many windows
	job := Shell("cat; echo end")
	job.Stdin, job.MaxStdout = bytes.NewReader(big), 2<<20
	if ran := f.Run(t.Context(), job); ran.Err != nil || ran.Stdout != string(big)+"end\n" {
		t.Errorf("%v, %d bytes of %d came back", ran.Err, len(ran.Stdout), len(big))
	}
	job = Shell("exit 5")
	job.Stdin = bytes.NewReader(big)
	if ran := f.Run(t.Context(), job); ran.Err != nil || ran.Code != 5 {
		t.Errorf("a job that does not read: %+v", ran)
	}
	job = Shell("sleep 100")
	job.Stdin, job.Timeout = bytes.NewReader(big), 300*time.Millisecond
	if ran := f.Run(t.Context(), job); ran.Err != nil || !ran.TimedOut {
		t.Errorf("a kill must get through while stdin is stuck: %+v", ran)
	}
	if ran := f.Run(t.Context(), Shell("cat; echo end")); ran.Err != nil || ran.Stdout != "end\n" {
		t.Errorf("an empty stdin must be at its end: %+v", ran)
	}
}

func cutsAndCountsOutput(t *testing.T, f *Fixture) {
	job := Shell("cat; exit 3")
	job.Stdin, job.MaxStdout = bytes.NewReader(make([]byte, 300_000)), 1000
	if ran := f.Run(t.Context(), job); ran.Err != nil || ran.Code != 3 || len(ran.Stdout) != 1000 || ran.StdoutBytes != 300_000 ||
		ran.StderrBytes != 0 {
		t.Errorf("stdout: kept %d bytes, %+v", len(ran.Stdout), ran.Exit)
	}
	job = Shell("cat >&2")
	job.Stdin, job.MaxStderr = bytes.NewReader(make([]byte, 300_000)), 70_000
	if ran := f.Run(t.Context(), job); ran.Err != nil || len(ran.Stderr) != 70_000 || ran.StderrBytes != 300_000 || ran.StdoutBytes != 0 {
		t.Errorf("stderr: kept %d bytes, %+v", len(ran.Stderr), ran.Exit)
	}
	job = Shell("echo x")
	job.MaxStdout = 0
	if ran := f.Run(t.Context(), job); ran.Err != nil || ran.Stdout != "" || ran.StdoutBytes != 2 {
		t.Errorf("nothing kept: %+v", ran)
	}
}

// orderWriter notes whether output arrived before start.
type orderWriter struct{ started, early bool }

func (w *orderWriter) Write(p []byte) (int, error) {
	w.early = w.early || !w.started
	return len(p), nil
}

func callsOnStartFirst(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	calls, order := 0, &orderWriter{}
	job := Shell("echo out")
	job.OnStart = func() { calls++; order.started = true }
	if _, err := slot.Run(t.Context(), job, order, &bytes.Buffer{}); err != nil || calls != 1 || order.early {
		t.Errorf("called %d times, output before it: %v, %v", calls, order.early, err)
	}
}

func deadline(t *testing.T, f *Fixture) {
	ran := f.runToDeadline("echo started; sleep 100; echo never")
	if ran.Err != nil || !ran.TimedOut || ran.Killed || ran.Code != 137 || ran.Signal != 9 || ran.Stdout != "started\n" {
		t.Errorf("%+v", ran)
	}
}

func cancelKills(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := NewSignal("started")
	go func() {
		<-started.Seen
		cancel()
	}()
	exit, err := slot.Run(ctx, Shell("echo started; sleep 100"), started, &bytes.Buffer{})
	if err != nil || !exit.Killed || exit.TimedOut || exit.Code != 137 {
		t.Fatalf("%+v %v", exit, err)
	}
}

func cancelBeforeTheStart(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	job := Shell("echo x > /workspace/work/ran")
	started := false
	job.OnStart = func() { started = true }
	exit, err := slot.Run(ctx, job, &bytes.Buffer{}, &bytes.Buffer{})
	var lost *engine.RunError
	if err == nil && !exit.Killed || err != nil && (!errors.As(err, &lost) || lost.Started) {
		t.Fatalf("%+v %v", exit, err)
	}
	if _, statErr := os.Stat(filepath.Join(f.Dir, "work/ran")); err != nil && (statErr == nil || started) {
		t.Error("the job ran although Run said that it had not")
	}
}

func writesIntoMounts(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	if mounts := slot.Mounts(); !slices.Equal(mounts, f.mounts()) {
		t.Errorf("mounts are %+v", mounts)
	}
	var stdout bytes.Buffer
	exit, err := slot.Run(t.Context(), Shell("echo w > /workspace/work/w; echo a > /workspace/artifacts/a; cat /workspace/work/w"), &stdout,
		&bytes.Buffer{})
	if err != nil || exit.Code != 0 || stdout.String() != "w\n" {
		t.Fatalf("%+v %v %q", exit, err, stdout.String())
	}
	for name, want := range map[string]string{"work/w": "w\n", "artifacts/a": "a\n"} {
		if got, err := os.ReadFile(filepath.Join(f.Dir, name)); string(got) != want {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if ran := f.Run(t.Context(), Shell("echo x > /workspace/inputs/x")); ran.Err != nil || ran.Code != 1 ||
		!strings.Contains(strings.ToLower(ran.Stderr), "read-only") && !strings.Contains(ran.Stderr, "Permission denied") { // of a copy
		t.Errorf("inputs: %+v", ran)
	}
}

// Refusal is the error of Prepare for an exec that cannot be prepared, by Acquire or by Run.
func Refusal(ctx context.Context, e engine.Engine, spec engine.Spec) error {
	slot, err := e.Acquire(ctx, spec)
	if err != nil {
		return err
	}
	_, err = slot.Run(ctx, Shell("true"), io.Discard, io.Discard)
	if lost, ok := errors.AsType[*engine.RunError](err); ok && (lost.Started || !lost.Dead) {
		return fmt.Errorf("it may have run: %w", lost)
	}
	return err
}

func failedPrepare(t *testing.T, f *Fixture) {
	spec := f.Spec()
	spec.Prepare = func(context.Context, string) (engine.MountSet, error) {
		return engine.MountSet{}, fault.New(fault.ProjectNameConflict, "no")
	}
	if err := Refusal(t.Context(), f.Engine, spec); !fault.Is(err, fault.ProjectNameConflict) {
		t.Fatalf("got %v", err)
	}
}

func execIDs(t *testing.T, f *Fixture) {
	seen := map[string]bool{}
	for _, preset := range []string{"", "01890000-0000-7000-8000-abcdef000000", ""} {
		spec := f.Spec()
		spec.ExecID = preset
		prepared := map[string]bool{}
		prepare := spec.Prepare
		var mu sync.Mutex
		spec.Prepare = func(ctx context.Context, execID string) (engine.MountSet, error) {
			mu.Lock()
			defer mu.Unlock()
			prepared[execID] = true
			return prepare(ctx, execID)
		}
		slot, err := f.Engine.Acquire(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		id := slot.ExecID()
		slot.Discard()
		mu.Lock()
		if id == "" || seen[id] || preset != "" && (id != preset || !prepared[id]) {
			t.Errorf("the slot's id is %q, prepared were %v", id, prepared)
		}
		mu.Unlock()
		seen[id] = true
	}
}

// discardDropsMounts: containers that a Docker engine leaves are found at the fixture's end.
func discardDropsMounts(t *testing.T, f *Fixture) {
	var mu sync.Mutex
	drops := map[string]int{}
	spec := f.Spec()
	spec.Prepare = func(_ context.Context, execID string) (engine.MountSet, error) {
		set := MountSet(f.mounts()...)
		set.Drop = func() {
			mu.Lock()
			defer mu.Unlock()
			drops[execID]++
		}
		return set, nil
	}
	slot, err := f.Engine.Acquire(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	discarded := slot.ExecID()
	slot.Discard()
	ran, err := f.Engine.Acquire(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ran.Run(t.Context(), Shell("true"), &bytes.Buffer{}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Engine.Close(); err != nil { // waits for the background work of Discard
		t.Fatal(err)
	}
	if drops[discarded] != 1 || drops[ran.ExecID()] != 0 {
		t.Errorf("dropped %d times after Discard, %d times after Run", drops[discarded], drops[ran.ExecID()])
	}
}

func slotsRunAtTheSameTime(t *testing.T, f *Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		slot, err := f.Engine.Acquire(t.Context(), f.Spec())
		if err != nil {
			t.Fatal(err)
		}
		started := NewSignal("started")
		all.Go(func() {
			if exit, err := slot.Run(ctx, Shell("echo started; sleep 100"), started, &bytes.Buffer{}); err != nil || !exit.Killed {
				t.Errorf("%+v %v", exit, err)
			}
		})
		<-started.Seen
	}
	cancel()
	all.Wait()
}

// lastWriter must not be written to after the end.
type lastWriter struct {
	mu   sync.Mutex
	over bool
	late bool
	n    int
}

func (w *lastWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = w.late || w.over
	w.n += len(p)
	return 0, errors.New("a writer's error stops nothing")
}

func runReturnsAfterLastByte(t *testing.T, f *Fixture) {
	slot, err := f.Engine.Acquire(t.Context(), f.Spec())
	if err != nil {
		t.Fatal(err)
	}
	job, out := Shell("cat; exit 6"), &lastWriter{}
	const size = 500_000
	job.Stdin = bytes.NewReader(make([]byte, size))
	exit, err := slot.Run(t.Context(), job, out, &bytes.Buffer{})
	out.mu.Lock()
	out.over = true
	out.mu.Unlock()
	if err != nil || exit.Code != 6 || out.n != size {
		t.Errorf("%+v, %v, %d bytes", exit, err, out.n)
	}
	if err := f.Engine.Close(); err != nil {
		t.Fatal(err)
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.late {
		t.Error("output arrived after Run had returned")
	}
}
