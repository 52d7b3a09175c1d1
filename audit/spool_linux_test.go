package audit

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"secbox/fault"
)

// absent is a store that does not answer until back is set.
type absent struct {
	Store
	back   atomic.Bool
	closed atomic.Int64
	order  []string // the exec ids it took
}

func (s *absent) Close(_ context.Context, r Record) (Status, error) {
	if s.back.Load() {
		s.closed.Add(1)
		s.order = append(s.order, r.ExecID)
		return r.Status, nil
	}
	return "", fault.New(fault.DatabaseUnavailable, "not there")
}

// TestFullStateDir writes to /dev/full, which says what a full disk says.
func TestFullStateDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	s := &absent{}
	l, err := NewLog(Config{Store: s, Dir: dir, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	toDisk := l.spool.create
	l.spool.create = func(string) (*os.File, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) }

	r := Record{ExecID: "0195-1", Status: Failed, CreatedAt: time.Now(), EndedAt: time.Now()}
	for range 2 {
		if ok, err := l.Close(t.Context(), &r); ok || !fault.Is(err, fault.DiskFull) {
			t.Fatalf("Close = %v, %v", ok, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left in the spool: %v, %v", entries, err)
	}

	// The result is kept in memory, and goes to the disk as soon as there is room,
	l.spool.create = toDisk
	if err := l.replay(t.Context()); !fault.Is(err, fault.DatabaseUnavailable) {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "0195-1.json" {
		t.Errorf("in the spool: %v, %v", entries, err)
	}
	// and to the database as soon as that is there.
	s.back.Store(true)
	l.tryNow()
	if err := l.replay(t.Context()); err != nil || s.closed.Load() != 1 || l.Unstored().Results != 0 {
		t.Errorf("replay: %v; %d written, %d wait", err, s.closed.Load(), l.Unstored().Results)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left in the spool: %v, %v", entries, err)
	}

	// Straight from memory to the database.
	s.back.Store(false)
	l.spool.create = func(string) (*os.File, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) }
	if _, err := l.Close(t.Context(), &r); !fault.Is(err, fault.DiskFull) {
		t.Fatal(err)
	}
	s.back.Store(true)
	l.tryNow()
	if err := l.replay(t.Context()); err != nil || s.closed.Load() != 2 || l.Unstored().Results != 0 {
		t.Errorf("replay: %v; %d written, %d wait", err, s.closed.Load(), l.Unstored().Results)
	}
}

// TestMissingStateDir: when neither the database nor the disk accepts a result, the error names the
// state dir.
func TestMissingStateDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	l, err := NewLog(Config{Store: &absent{}, Dir: dir, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	r := Record{ExecID: "0195-1", Status: Failed, CreatedAt: time.Now(), EndedAt: time.Now()}
	if ok, err := l.Close(t.Context(), &r); ok || !fault.Is(err, fault.Internal) {
		t.Errorf("Close = %v, %v", ok, err)
	}
	if _, err := NewLog(Config{Store: &absent{}, Dir: "/dev/null/spool"}); err == nil {
		t.Error("a spool under a file was made")
	}
}

func TestReplayOrder(t *testing.T) {
	t.Parallel()
	s := &absent{}
	config := Config{Store: s, Dir: filepath.Join(t.TempDir(), "spool"), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	l, err := NewLog(config)
	if err != nil {
		t.Fatal(err)
	}
	base := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, id := range []string{"c", "a", "d", "b", "e"} { // by end: b, d, a, c, e
		end := base.Add([]time.Duration{4, 3, 2, 1, 4}[i] * time.Hour)
		if ok, err := l.Close(t.Context(), &Record{ExecID: id, Status: Failed, CreatedAt: base, EndedAt: end}); !ok || err != nil {
			t.Fatalf("Close = %v, %v", ok, err)
		}
	}
	if l, err = NewLog(config); err != nil { // as after a restart
		t.Fatal(err)
	}
	s.back.Store(true)
	l.tryNow()
	if err := l.replay(t.Context()); err != nil || !slices.Equal(s.order, []string{"b", "d", "a", "c", "e"}) {
		t.Errorf("written in the order %v, %v", s.order, err)
	}
}

// FuzzSpooled: a record that is accepted from the spool can be ended, and has the file's name.
func FuzzSpooled(f *testing.F) {
	f.Add("a.json", []byte(`{"exec_id": "a", "status": "failed", "ended_at": "2026-01-01T00:00:00Z"}`))
	f.Add("a.json", []byte(`{"exec_id": "../a", "status": "failed", "ended_at": "2026-01-01T00:00:00Z"}`))
	f.Add("a.json", []byte(`{"EXEC_ID": "a", "status": "lost", "exit_code": 1e99}`))
	f.Add("../a.json", []byte(`{"exec_id": "../a", "status": "failed", "ended_at": "2026-01-01T00:00:00Z", "args": null}`))
	f.Add("", []byte("null"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		r, err := parseSpooled(name, data)
		if err != nil {
			return
		}
		if name != r.ExecID+".json" || filepath.Base(name) != name || !r.Status.Final() || !r.Status.Valid() || r.EndedAt.IsZero() {
			t.Errorf("%q: took %+v", name, r)
		}
	})
}
