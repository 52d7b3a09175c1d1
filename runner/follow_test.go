package runner_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/engine"
	"secbox/engine/memengine"
	"secbox/runner"
)

// TestFollow: a follower learns of the wait, the start, each output and the end of an exec, and
// reads the output while it runs.
func TestFollow(t *testing.T) {
	t.Parallel()
	f := setUp(t, slots(1, 1))
	first := f.post(shell("p", "hold"))
	<-f.held
	p := f.post(shell("q", "echo -n ab; hold; echo -n c; echo -n warn >&2; hold"))
	var seen runner.Progress
	follow := func(want runner.Progress) {
		t.Helper()
		for seen != want { // what is printed in two pieces may be seen in two
			next, err := f.Follow(t.Context(), p.id(), seen)
			if err != nil || next == seen || next.Stdout > want.Stdout || next.Stderr > want.Stderr || seen.Here && !next.Here && want.Here {
				t.Fatalf("%+v follows %+v, %v; want %+v", next, seen, err, want)
			}
			seen = next
		}
	}
	follow(runner.Progress{Here: true})
	f.release <- struct{}{}
	first.wants(audit.Succeeded, "")
	<-f.held
	follow(runner.Progress{Here: true, Started: true, Stdout: 2})

	// A follower that leaves does not disturb others.
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := f.Follow(gone, p.id(), seen); !errors.Is(err, context.Canceled) {
		t.Errorf("after its client left: %v", err)
	}
	followed := make(chan runner.Progress)
	go func() {
		next, _ := f.Follow(t.Context(), p.id(), seen)
		followed <- next
	}()
	f.release <- struct{}{}
	if next := <-followed; next.Stdout < 3 {
		t.Errorf("woken by %+v", next)
	}
	<-f.held
	follow(runner.Progress{Here: true, Started: true, Stdout: 3, Stderr: 4})
	row := f.row(p.id())
	for stream, want := range map[string]string{"stdout": "abc", "stderr": "warn"} {
		out, size, err := f.OpenOutput(t.Context(), row, stream)
		must(t, err)
		_, err = out.Seek(1, io.SeekStart)
		must(t, err)
		if rest, err := io.ReadAll(out); string(rest) != want[1:] || size != int64(len(want)) || err != nil {
			t.Errorf("%s while it runs: %q of %d, %v", stream, rest, size, err)
		}
		must(t, out.Close())
	}
	f.release <- struct{}{}
	follow(runner.Progress{})
	if row := f.row(p.id()); row.Status != audit.Succeeded {
		t.Errorf("when the exec is no longer here its row is %s", row.Status)
	}
	p.wants(audit.Succeeded, "")
}

// TestFollowersSeeTheSameOutput: many followers read the same bytes while a job writes more than is
// kept in memory.
func TestFollowersSeeTheSameOutput(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("0123456789abcde\n", 2000)
	began, release := make(chan struct{}), make(chan struct{})
	f := setUp(t, run(func(_ context.Context, c *memengine.Container) (engine.Exit, error) {
		began <- struct{}{}
		<-release
		for range 10 {
			_, _ = io.WriteString(c.Stdout, line)
		}
		<-release
		return engine.Exit{}, nil
	}))
	p := f.post(shell("p", "print"))
	<-began
	row := f.row(p.id())
	want := strings.Repeat(line, 10)
	read := make(chan string)
	for range 20 {
		go func() {
			var got []byte
			var seen runner.Progress
			var err error
			for len(got) < len(want) && err == nil {
				if seen, err = f.Follow(t.Context(), row.ExecID, seen); err != nil {
					break
				}
				var out io.ReadSeekCloser
				if out, _, err = f.OpenOutput(t.Context(), row, "stdout"); err != nil {
					break
				}
				_, _ = out.Seek(int64(len(got)), io.SeekStart)
				var more []byte
				more, err = io.ReadAll(out)
				got = append(got, more...)
				_ = out.Close()
			}
			read <- string(got)
		}()
	}
	release <- struct{}{}
	for range 20 {
		if got := <-read; got != want {
			t.Errorf("%d bytes, want %d", len(got), len(want))
		}
	}
	release <- struct{}{}
	p.wants(audit.Succeeded, "")
}
