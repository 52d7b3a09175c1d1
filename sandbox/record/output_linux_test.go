package record_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/runner/output"
	"secbox/sandbox"
)

// shown returns what is shown of a stream; false if there is nothing to read.
func (f *fixture) shown(execID, stream string) (string, bool) {
	f.t.Helper()
	out, size := f.OpenOutput(execID, stream)
	if out == nil {
		return "", false
	}
	defer out.Close()
	content, err := io.ReadAll(out)
	if err != nil || int64(len(content)) != size {
		f.t.Fatalf("%s: %d of %d bytes, %v", stream, len(content), size, err)
	}
	return string(content), true
}

// TestCutOutputEndsWithAWholeCharacter: what the answer has, and what is shown, of each stream.
func TestCutOutputEndsWithAWholeCharacter(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	for _, c := range []struct {
		limit          int64
		stdout, stderr string
	}{{1, "", ""}, {4, "é", "天"}, {5, "é天", "天é"}} {
		spec := sandbox.ExecSpec{User: user, Shell: true, Command: "printf é天; printf 天é >&2", MaxStdout: c.limit, MaxStderr: c.limit}
		res, err := f.Exec(t.Context(), spec)
		if err != nil || res.Stdout != c.stdout || res.Stderr != c.stderr || res.StdoutBytes != 5 {
			t.Errorf("limit %d: %+v, %v", c.limit, res, err)
			continue
		}
		if row, err := f.log.Get(t.Context(), res.ExecID); err != nil || row.StdoutTruncated != (c.limit < 5) || row.StderrTruncated != row.StdoutTruncated {
			t.Errorf("limit %d: %+v, %v", c.limit, row, err)
		}
	}
}

// TestOutputIsShownWhileACommandRuns: to those who follow it, up to its last byte, and not longer.
func TestOutputIsShownWhileACommandRuns(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	for _, streamed := range []bool{false, true} {
		id, ended := uuid.Must(uuid.NewV7()).String(), make(chan *sandbox.ExecResult)
		release := filepath.Join(f.dir, "go"+id)
		spec := sandbox.ExecSpec{
			ExecID: id, User: user, Shell: true,
			Command: "echo ab; until [ -e go" + id + " ]; do sleep 0.01; done; echo -n c; echo -n warn >&2",
		}
		var stdout, stderr bytes.Buffer
		go func() {
			var res *sandbox.ExecResult
			var err error
			if streamed {
				res, err = f.ExecTo(t.Context(), spec, &stdout, &stderr)
			} else {
				res, err = f.Exec(t.Context(), spec)
			}
			if err != nil {
				t.Error(err)
			}
			ended <- res
		}()
		var seen output.Progress
		for !seen.Here { // the command has not begun
			seen, _ = f.Follow(t.Context(), id, seen)
		}
		for seen.Stdout < 3 {
			next, err := f.Follow(t.Context(), id, seen)
			if err != nil || !next.Here {
				t.Fatalf("%+v follows %+v, %v", next, seen, err)
			}
			seen = next
		}
		if got, _ := f.shown(id, "stdout"); got != "ab\n" {
			t.Errorf("while it runs: %q", got)
		}
		if row, err := f.log.Get(t.Context(), id); err != nil || row.Status != audit.Running || !seen.Started {
			t.Errorf("the row is %s, %+v, %v", row.Status, seen, err)
		}
		if err := os.WriteFile(release, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for seen != (output.Progress{}) {
			next, err := f.Follow(t.Context(), id, seen)
			if err != nil {
				t.Fatal(err)
			}
			seen = next
		}
		if row, err := f.log.Get(t.Context(), id); err != nil || row.Status != audit.Succeeded {
			t.Errorf("when it is no longer here, its row is %s, %v", row.Status, err)
		}
		if got, ok := f.shown(id, "stdout"); ok && got != "ab\nc" { // it may be gone on a slow machine
			t.Errorf("at its end: %q", got)
		}
		res := <-ended
		if streamed {
			res.Stdout, res.Stderr = stdout.String(), stderr.String()
		}
		if res.Stdout != "ab\nc" || res.Stderr != "warn" {
			t.Errorf("the caller got %q and %q", res.Stdout, res.Stderr)
		}
	}
}

// TestShownOutputIsBounded: only the beginning of each stream is shown, and the caller gets all of
// it. What no one followed is gone at once.
func TestShownOutputIsBounded(t *testing.T) {
	t.Parallel()
	f := setUp(t, onSQLite(t))
	const size = 3 * output.InlineBytes
	id, ended := uuid.Must(uuid.NewV7()).String(), make(chan *sandbox.ExecResult)
	all := &gate{passed: make(chan struct{}), open: make(chan struct{}), after: size}
	go func() {
		res, err := f.ExecTo(t.Context(), sandbox.ExecSpec{ExecID: id, User: user, Command: "head", Args: []string{"-c", "196608", "/dev/zero"}}, all,
			io.Discard)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	<-all.passed
	if got, _ := f.shown(id, "stdout"); got != strings.Repeat("\x00", output.InlineBytes) {
		t.Errorf("%d bytes are shown", len(got))
	}
	close(all.open)
	if res := <-ended; res == nil || res.StdoutBytes != size || all.n != size {
		t.Errorf("the caller got %d bytes, %+v", all.n, res)
	}
	if _, ok := f.shown(id, "stdout"); ok {
		t.Error("it is shown after its end")
	}
	quiet := uuid.Must(uuid.NewV7()).String()
	if _, err := f.ExecTo(t.Context(), sandbox.ExecSpec{ExecID: quiet, User: user, Command: "echo", Args: []string{"hi"}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.shown(quiet, "stdout"); ok {
		t.Error("the output of an ended command is shown")
	}
}

// gate counts bytes. When it has enough of them it tells so, and waits.
type gate struct {
	passed, open chan struct{}
	n, after     int
}

func (g *gate) Write(p []byte) (int, error) {
	if g.n += len(p); g.n == g.after {
		close(g.passed)
		<-g.open
	}
	return len(p), nil
}
