package machine

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"secbox/sandbox/remote/wire"
)

func (j *journal) test(t *testing.T, id, content string) (*request, decision) {
	t.Helper()
	return j.take(t.Context(), wire.Message{ID: id, Type: wire.TypeStat}, []byte(content))
}

func okay() answer { return singleMessage{wire.TypeOK, nil} }

// TestKeptIDs: of more ids than are kept, the oldest are forgotten, unless their requests are held.
func TestKeptIDs(t *testing.T) {
	t.Parallel()
	j := newJournal()
	held, _ := j.test(t, "held", "x")
	for i := range wire.KeptIDs + 10 {
		r, v := j.test(t, fmt.Sprint(i), "x")
		if v != accepted {
			t.Fatalf("%d: %v", i, v)
		}
		j.finish(r, okay(), func() {})
		j.acknowledge(r.id)
	}
	if len(j.seen) != wire.KeptIDs || len(j.order) != wire.KeptIDs || len(j.held) != 1 {
		t.Errorf("%d and %d ids, %d held", len(j.seen), len(j.order), len(j.held))
	}
	if _, v := j.test(t, "held", "x"); v != known {
		t.Errorf("a running request was forgotten: %v", v)
	}
	if _, v := j.test(t, "held", "y"); v != reused {
		t.Errorf("%v", v)
	}
	if _, v := j.test(t, fmt.Sprint(wire.KeptIDs), "x"); v != reused {
		t.Errorf("a late id was forgotten: %v", v)
	}
	if _, v := j.test(t, "0", "x"); v != accepted {
		t.Errorf("the first id is known still: %v", v)
	}
	j.finish(held, okay(), func() {})
}

// TestHeldResults: unacknowledged results are bounded; late ones make room.
func TestHeldResults(t *testing.T) {
	t.Parallel()
	j := newJournal()
	released := 0
	for i := range wire.MaxHeld {
		r, v := j.test(t, fmt.Sprint(i), "x")
		if v != accepted {
			t.Fatalf("%d: %v", i, v)
		}
		j.finish(r, okay(), func() { released++ })
	}
	if _, v := j.test(t, "more", "x"); v != tooMany {
		t.Errorf("%v", v)
	}
	if n := len(j.heldIDs()); n != wire.MaxHeld {
		t.Errorf("%d ids in the hello", n)
	}
	resumed, unexpected := j.attach([]wire.Expected{{ID: "0"}})
	if resumed != 1 || unexpected != wire.MaxHeld-1 {
		t.Errorf("%d go on, %d do not", resumed, unexpected)
	}
	if _, v := j.test(t, "more", "x"); v != tooMany { // not sent yet
		t.Errorf("%v", v)
	}
	sent := 0
	for j.pop() != nil {
		sent++
	}
	if sent != wire.MaxHeld {
		t.Errorf("%d were sent", sent)
	}
	if _, v := j.test(t, "more", "x"); v != accepted || released != wire.MaxHeld-1 {
		t.Errorf("%v, %d were released", v, released)
	}
}

// TestTurns: requests take turns of one message.
func TestTurns(t *testing.T) {
	t.Parallel()
	j := newJournal()
	k := &outputStore{log: slog.New(slog.DiscardHandler)}
	defer k.close()
	var all []*request
	for _, id := range []string{"a", "b"} {
		r, _ := j.test(t, id, "x")
		out := &output{store: k, limit: 1 << 20, grown: func(int) {}}
		j.setOutput(r, out, &output{store: k, limit: 1, grown: func(int) {}})
		_, _ = out.Write(make([]byte, 3*wire.MaxOutput))
		j.outputReady(r)
		all = append(all, r)
	}
	short, _ := j.test(t, "c", "x")
	j.finish(short, okay(), func() {})
	var order []string
	for f := j.pop(); f != nil; f = j.pop() {
		order = append(order, f.id)
	}
	if got := strings.Join(order, ""); got != "abcabab" {
		t.Errorf("%s", got)
	}
	for _, r := range all {
		j.finish(r, &execAnswer{stdout: r.output[0], stderr: r.output[1]}, func() { r.output[0].drop(); r.output[1].drop() })
	}
	if a, b := j.pop(), j.pop(); a == nil || b == nil || a.typ != wire.TypeExecResult || a.body.(*wire.ExecResult).StdoutAt != 3*wire.MaxOutput {
		t.Errorf("%+v %+v", a, b)
	}
	j.acknowledge("a")
	j.acknowledge("a")
	j.close()
	if k.memory != 0 || k.disk != 0 {
		t.Errorf("%d and %d bytes are kept", k.memory, k.disk)
	}
}

// TestOutputIsKept: output is in memory up to the bound, then in files that are unlinked, on
// Windows when the output is dropped.
func TestOutputIsKept(t *testing.T) {
	t.Parallel()
	k := &outputStore{log: slog.New(slog.DiscardHandler)}
	content := make([]byte, memoryPerStream/2+1)
	for i := range content {
		content[i] = byte(i % 251)
	}
	var all []*output
	for range 2 * memoryForOutput / len(content) {
		o := &output{store: k, limit: int64(3 * len(content) / 2), grown: func(int) {}}
		for range 2 {
			_, _ = o.Write(content)
		}
		all = append(all, o)
	}
	if k.memory > memoryForOutput || k.disk == 0 {
		t.Errorf("%d bytes in memory, %d on the disk", k.memory, k.disk)
	}
	files := func() {
		t.Helper()
		if left, err := os.ReadDir(k.dir); err != nil || len(left) != 0 {
			t.Errorf("%d files, %v", len(left), err)
		}
	}
	if runtime.GOOS != "windows" {
		files()
	}
	for i, o := range all {
		total, kept, lost := o.sizes()
		if total != int64(2*len(content)) || kept != o.limit || lost {
			t.Errorf("%d: %d bytes of %d", i, kept, total)
		}
		piece := o.read(int64(len(content))-2, 4)
		if want := []byte{content[len(content)-2], content[len(content)-1], 0, 1}; string(piece) != string(want) {
			t.Errorf("%d: %v, not %v", i, piece, want)
		}
		if o.read(kept, 10) != nil || o.read(-1, 10) != nil {
			t.Error("there is something beyond the end")
		}
		o.drop()
		o.drop()
		if _, _ = o.Write(content); o.read(0, 1) != nil {
			t.Error("something is kept after all")
		}
	}
	files()
	dir := k.dir
	k.close()
	if _, err := os.Stat(dir); !os.IsNotExist(err) || k.memory != 0 || k.disk != 0 {
		t.Errorf("%v, %d, %d", err, k.memory, k.disk)
	}
}

// TestOutputOnFullDisk: output that cannot be kept is counted, and the command does not notice.
func TestOutputOnFullDisk(t *testing.T) {
	t.Parallel()
	k := &outputStore{log: slog.New(slog.DiscardHandler), dir: "no\x00directory"}
	o := &output{store: k, limit: 4 * memoryPerStream, grown: func(int) {}}
	small := []byte("small")
	_, _ = o.Write(small)
	for range 3 {
		if n, err := o.Write(make([]byte, memoryPerStream)); n != memoryPerStream || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	total, kept, lost := o.sizes()
	if !lost || kept != int64(len(small)) || total != kept+3*memoryPerStream || string(o.read(0, 100)) != "small" {
		t.Errorf("%d of %d, %v", kept, total, lost)
	}
	a := &execAnswer{stdout: o, stderr: &output{store: k}}
	_, body, _ := a.message(0, [2]int64{})
	if e := body.(*wire.ExecResult); !strings.Contains(e.Detail, "missing") || e.Stdout != "small" || e.StdoutBytes != total {
		t.Errorf("%+v", e)
	}
	o.drop()
	if k.memory != 0 {
		t.Errorf("%d bytes are kept", k.memory)
	}
}

// TestOutputDirectoryIsRemoved: a runner survives the system's clean-up of directories for
// temporary files.
func TestOutputDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	k := &outputStore{log: slog.New(slog.DiscardHandler)}
	defer k.close()
	for range 2 {
		f, err := k.file()
		if err != nil {
			t.Fatal(err)
		}
		discard(f)
		if err := os.RemoveAll(k.dir); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for attempt := range 2000 {
		most := longestPause
		if attempt < 7 {
			most = min(most, firstPause<<attempt)
		}
		if got := backoff(attempt); got < most/2 || got >= most {
			t.Errorf("%d: %s", attempt, got)
		}
	}
}

// TestRefusalLogRate: the number of logged refusals per second is bounded.
func TestRefusalLogRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := &refusals{log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 3 {
			for range refusalsPerSecond + 7 {
				r.warn("refused", "why", "a reason")
			}
			time.Sleep(time.Second)
		}
		r.warn("refused")
		if refused, more := strings.Count(log.String(), "msg=refused"), strings.Count(log.String(), "times=7"); refused != 3*refusalsPerSecond+1 || more != 3 {
			t.Errorf("%d lines, and %d times that there were more", refused, more)
		}
	})
}
