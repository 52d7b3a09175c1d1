package follow_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
	"secbox/runner/follow"
)

// node is a runner and a history with one exec.
type node struct {
	mu      sync.Mutex
	changed chan struct{} // closed by each change
	here    chan struct{} // closed when the exec is here
	now     runner.Progress
	rec     audit.Record
	out     [2][]byte
	stored  bool  // OpenOutput reads what was stored
	altered error // of OpenOutput
	gone    error // of Newer
	opened  int
	reads   int // of the row
}

func newNode(status audit.Status) *node {
	return &node{changed: make(chan struct{}), here: make(chan struct{}), rec: audit.Record{ExecID: "1", Status: status}}
}

func (n *node) change(what func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	what()
	close(n.changed)
	n.changed = make(chan struct{})
}

// count returns how often output was opened and the row read.
func (n *node) count() (opened, reads int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.opened, n.reads
}

func (n *node) record() audit.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rec
}

func (n *node) start() {
	n.change(func() {
		n.rec.Status, n.now = audit.Running, runner.Progress{Here: true, Started: true}
		close(n.here)
	})
}

func (n *node) print(stdout, stderr string) {
	n.change(func() {
		n.out[0], n.out[1] = append(n.out[0], stdout...), append(n.out[1], stderr...)
		n.now.Stdout, n.now.Stderr = int64(len(n.out[0])), int64(len(n.out[1]))
	})
}

func (n *node) end(status audit.Status) {
	n.change(func() { n.rec.Status, n.now, n.stored = status, runner.Progress{}, true })
}

func (n *node) Follow(ctx context.Context, _ string, seen runner.Progress) (runner.Progress, error) {
	for {
		n.mu.Lock()
		now, changed := n.now, n.changed
		n.mu.Unlock()
		if now != seen || !now.Here {
			return now, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return now, ctx.Err()
		case <-changed:
		}
	}
}

func (n *node) Await(string) (<-chan struct{}, func()) { return n.here, func() {} }

func (n *node) OpenOutput(_ context.Context, rec audit.Record, stream string) (io.ReadSeekCloser, int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opened++
	text := n.out[map[string]int{"stdout": 0, "stderr": 1}[stream]]
	if n.stored != rec.Status.Final() {
		text = nil
	}
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(text), io.NopCloser(nil)}, int64(len(text)), n.altered
}

func (n *node) Newer(context.Context, audit.Record) (audit.Record, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reads++
	return n.rec, n.gone
}

// reader is a caller that reads both streams to the end.
type reader struct {
	t *testing.T
	w *follow.Watch
	follow.Offsets
	got      [2]string
	statuses []audit.Status
}

func newReader(t *testing.T, e *follow.Execs, rec audit.Record, from follow.Offsets) *reader {
	r := &reader{t: t, w: e.Watch(rec), Offsets: from}
	t.Cleanup(r.w.Close)
	return r
}

// until reads until the condition holds.
func (r *reader) until(enough func(follow.State) bool) error {
	r.t.Helper()
	for {
		state := r.w.State()
		if n := len(r.statuses); n == 0 || r.statuses[n-1] != state.Record.Status {
			r.statuses = append(r.statuses, state.Record.Status)
		}
		for i := range r.got {
			for err := error(nil); err == nil; {
				var n int
				p := make([]byte, 1000)
				n, err = r.w.Read(r.t.Context(), i, p, r.Offsets[i])
				r.got[i] += string(p[:n])
				r.Offsets[i] += int64(n)
				if err != nil && !errors.Is(err, io.EOF) {
					return err
				}
			}
		}
		if enough(state) {
			return nil
		}
		select {
		case <-r.w.Changed():
		case <-r.t.Context().Done():
			r.t.Fatal("the test ended")
		}
	}
}

func (r *reader) reads(stdout, stderr string) {
	r.t.Helper()
	if err := r.until(func(follow.State) bool { return len(r.got[0]) >= len(stdout) && len(r.got[1]) >= len(stderr) }); err != nil {
		r.t.Fatal(err)
	}
	if r.got != [2]string{stdout, stderr} {
		r.t.Fatalf("got %d and %d bytes, want %d and %d", len(r.got[0]), len(r.got[1]), len(stdout), len(stderr))
	}
}

func ended(s follow.State) bool { return s.Ended }

// TestFollow: callers that begin anywhere get each byte once, and the end after all of it; they
// share one reader.
func TestFollow(t *testing.T) {
	t.Parallel()
	n := newNode(audit.Queued)
	e := follow.New(n, n)
	first := newReader(t, e, n.record(), follow.Offsets{})
	n.start()
	n.print("one", "bad")
	first.reads("one", "bad")
	long := strings.Repeat("0123456789", 10_000)
	second := newReader(t, e, n.record(), follow.Offsets{2, 3})
	n.print(long, "")
	late := newReader(t, e, n.record(), follow.Offsets{})
	if watchers := late.w.State().Watchers; watchers != 3 {
		t.Errorf("%d callers", watchers)
	}
	late.reads("one"+long, "bad")
	n.print("two", "")
	n.end(audit.Failed)
	for i, want := range map[*reader][2]string{first: {"one" + long + "two", "bad"}, second: {"e" + long + "two", ""}, late: {"one" + long + "two", "bad"}} {
		if err := i.until(ended); err != nil || i.got != want {
			t.Errorf("got %d and %d bytes, %v", len(i.got[0]), len(i.got[1]), err)
		}
	}
	if s := first.statuses; len(s) != 3 || s[0] != audit.Queued || s[1] != audit.Running || s[2] != audit.Failed {
		t.Errorf("the states are %v", s)
	}
	if _, reads := n.count(); reads > 8 {
		t.Errorf("the row was read %d times", reads)
	}
	after := newReader(t, e, n.record(), follow.Offsets{4, 0})
	if err := after.until(ended); err != nil || after.got != [2]string{(long + "two")[1:], "bad"} || after.Offsets != first.Offsets {
		t.Errorf("after the end: %v, %v", err, after.Offsets)
	}
	before, _ := n.count()
	if _, err := after.w.Read(t.Context(), 0, make([]byte, 1), after.Offsets[0]); !errors.Is(err, io.EOF) {
		t.Errorf("read again: %v", err)
	}
	if opened, _ := n.count(); opened != before {
		t.Errorf("opened %d times more", opened-before)
	}
	if _, err := after.w.Read(t.Context(), 0, make([]byte, 1), 1<<62); !errors.Is(err, io.EOF) {
		t.Errorf("far beyond the end: %v", err)
	}
}

// TestFollowLostOutput: a caller learns that output which was written cannot be read any longer.
func TestFollowLostOutput(t *testing.T) {
	t.Parallel()
	n := newNode(audit.Running)
	n.start()
	e := follow.New(n, n)
	quick, slow := newReader(t, e, n.record(), follow.Offsets{}), newReader(t, e, n.record(), follow.Offsets{})
	text := strings.Repeat("x", 100_000)
	n.print(text, "")
	quick.reads(text, "")
	n.change(func() { n.out[0] = nil })
	n.end(audit.Errored)
	if err := quick.until(ended); err != nil || len(quick.got[0]) != len(text) {
		t.Errorf("one who has all: %v", err)
	}
	if err := slow.until(ended); !fault.Is(err, fault.UnknownArtifact) {
		t.Errorf("one who is behind: %v", err)
	}
	n = newNode(audit.Running)
	n.start()
	e = follow.New(n, n)
	r := newReader(t, e, n.record(), follow.Offsets{})
	n.print("a", "")
	r.reads("a", "")
	n.change(func() { n.altered = fault.New(fault.ArtifactAltered, "altered") })
	n.end(audit.Succeeded)
	if err := r.until(ended); !fault.Is(err, fault.ArtifactAltered) {
		t.Errorf("an altered file: %v", err)
	}
}

// TestFollowGone: a caller learns that the record was removed. A caller that leaves stops the
// reader, though the job goes on.
func TestFollowGone(t *testing.T) {
	t.Parallel()
	n := newNode(audit.Queued)
	n.gone = fault.New(fault.UnknownExec, "gone")
	e := follow.New(n, n)
	r := newReader(t, e, n.record(), follow.Offsets{})
	if err := r.until(func(s follow.State) bool { return s.Gone != nil }); err != nil {
		t.Error(err)
	}
	n = newNode(audit.Running)
	n.start()
	e = follow.New(n, n)
	first, second := e.Watch(n.record()), e.Watch(n.record())
	first.Close()
	n.print("a", "")
	<-second.Changed()
	second.Close() // waits for the reader
	before, _ := n.count()
	n.print("b", "")
	third := newReader(t, e, n.record(), follow.Offsets{})
	third.reads("ab", "")
	if opened, _ := n.count(); opened == before {
		t.Error("another reader has opened nothing")
	}
}

// TestNote: something is recorded once while an exec is followed, and again if that failed.
func TestNote(t *testing.T) {
	t.Parallel()
	for _, status := range []audit.Status{audit.Running, audit.Succeeded} {
		n := newNode(status)
		w := follow.New(n, n).Watch(n.rec)
		calls, failed := 0, errors.New("failed")
		record := func() error {
			if calls++; calls == 1 {
				return failed
			}
			return nil
		}
		for i, want := range []error{failed, nil, nil} {
			if err := w.Note("a", record); !errors.Is(err, want) {
				t.Errorf("%s: call %d: %v", status, i, err)
			}
		}
		if err := w.Note("b", record); err != nil || calls != 3 {
			t.Errorf("%s: %d calls, %v", status, calls, err)
		}
		w.Close()
	}
}

func FuzzOffsets(f *testing.F) {
	for _, seed := range []string{"", "0-0", "120-7", "-1-0", "1-2-3", "00-1", "+1-1", "9223372036854775807-0", "9223372036854775808-0", "1-", "-", "１-0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, ok := follow.ParseOffsets(text)
		if ok && (o[0] < 0 || o[1] < 0 || o.String() != text) || !ok && o != (follow.Offsets{}) {
			t.Fatalf("%q became %v, %v", text, o, ok)
		}
	})
}
