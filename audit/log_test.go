package audit_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// TestDatabaseRefuses is the promise as a whole: no row, no run; a result is kept on disk while the
// database is away, shown truthfully, and written as soon as it is back.
func TestDatabaseRefuses(t *testing.T) {
	t.Parallel()
	for name, make := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := make(t)
			dir := t.TempDir()
			l := newLog(t, db.Audit(), dir)
			r := mustOpen(t, l)
			other := mustOpen(t, l)

			db.refuse()
			begun := time.Now()
			if taken, err := l.Open(t.Context(), running()); !fault.Is(err, fault.DatabaseUnavailable) || taken != nil {
				t.Errorf("Open = %v, %v", taken, err)
			}
			spooledNow, err := l.Close(t.Context(), new(ended(r)))
			if err != nil || !spooledNow {
				t.Fatalf("Close = %v, %v", spooledNow, err)
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("refusing took %v: it is not bounded", took)
			}
			file := filepath.Join(dir, "spool", r.ExecID+".json")
			if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
				t.Errorf("the spool's file: %v, %v", info, err)
			}
			if info, err := os.Stat(filepath.Dir(file)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
				t.Errorf("the spool's folder: %v, %v", info, err)
			}
			if got := spooled(t, dir); !slices.Equal(got, []string{r.ExecID + ".json"}) || l.Unstored().Results != 1 {
				t.Errorf("the spool holds %v, %d", got, l.Unstored().Results)
			}
			if again, err := l.Close(t.Context(), new(ended(r))); err != nil || !again {
				t.Errorf("Close again = %v, %v", again, err)
			}
			db.answer()

			// Before the replay, reads return the end already.
			if got := status(t, db.Audit(), r.ExecID); got != audit.Running {
				t.Fatalf("the database says %s before the replay", got)
			}
			if got := status(t, l, r.ExecID); got != audit.Succeeded {
				t.Errorf("Get says %s", got)
			}
			list, _, err := l.List(t.Context(), audit.Filter{}, nil, 10)
			if err != nil || len(list) != 2 || list[0].Status != audit.Running || list[1].Status != audit.Succeeded {
				t.Errorf("List = %+v, %v", list, err)
			}
			list, _, err = l.List(t.Context(), audit.Filter{Statuses: []audit.Status{audit.Running}}, nil, 10)
			if err != nil || len(list) != 1 || list[0].ExecID != other.ExecID {
				t.Errorf("List of the running = %+v, %v", list, err)
			}

			run(t, l)
			eventually(t, "the spool is empty", func() bool { return l.Unstored().Results == 0 && len(spooled(t, dir)) == 0 })
			got, err := db.Audit().Get(t.Context(), r.ExecID)
			if err != nil || got.Status != audit.Succeeded || got.StdoutBytes != 42 || !got.EndedAt.Equal(ended(r).EndedAt) {
				t.Errorf("the row is %+v, %v", got, err)
			}
			events, err := l.Events(t.Context(), r.ExecID)
			if err != nil || len(events) != 3 || events[2].Kind != audit.EventEnded {
				t.Errorf("events %+v, %v", events, err)
			}
			if got := status(t, l, other.ExecID); got != audit.Running {
				t.Errorf("the other exec is %s", got)
			}
		})
	}
}

// TestAfterAKill: a node starts with results in its spool, and with open rows that no process will
// end.
func TestAfterAKill(t *testing.T) {
	t.Parallel()
	for name, make := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := make(t)
			dir := t.TempDir()
			killed := newLog(t, db.Audit(), dir) // never runs, so never replays
			spooledOne, openOne, doneOne := mustOpen(t, killed), mustOpen(t, killed), mustOpen(t, killed)
			foreign := running()
			foreign.NodeID = "n2"
			if _, err := killed.Open(t.Context(), foreign); err != nil {
				t.Fatal(err)
			}
			if ok, err := killed.Close(t.Context(), new(ended(doneOne))); ok || err != nil {
				t.Fatalf("Close = %v, %v", ok, err)
			}
			db.refuse()
			if ok, err := killed.Close(t.Context(), new(ended(spooledOne))); !ok || err != nil {
				t.Fatalf("Close = %v, %v", ok, err)
			}
			half := filepath.Join(dir, "spool", openOne.ExecID+".tmp")
			if err := os.WriteFile(half, []byte(`{"exec_id": "`), 0o600); err != nil {
				t.Fatal(err)
			}

			next := newLog(t, db.Audit(), dir)
			if lost, err := next.Recover(t.Context()); !fault.Is(err, fault.DatabaseUnavailable) || len(lost) != 0 {
				t.Errorf("Recover without the database = %v, %v", lost, err)
			}
			db.answer()
			lost, err := next.Recover(t.Context())
			if err != nil || !slices.Equal(lost, []string{openOne.ExecID}) {
				t.Fatalf("Recover = %v, %v; want %s", lost, err, openOne.ExecID)
			}
			for id, want := range map[string]audit.Status{
				spooledOne.ExecID: audit.Succeeded, openOne.ExecID: audit.Lost, doneOne.ExecID: audit.Succeeded, foreign.ExecID: audit.Running,
			} {
				if got := status(t, db.Audit(), id); got != want {
					t.Errorf("%s is %s, want %s", id, got, want)
				}
			}
			if files := spooled(t, dir); len(files) != 0 {
				t.Errorf("left in the spool: %v", files)
			}
			if again, err := next.Recover(t.Context()); err != nil || len(again) != 0 {
				t.Errorf("Recover again = %v, %v", again, err)
			}

			// A result that comes after lost corrects it, and both stay visible.
			if ok, err := next.Close(t.Context(), new(ended(openOne))); ok || err != nil {
				t.Fatalf("Close = %v, %v", ok, err)
			}
			events, err := next.Events(t.Context(), openOne.ExecID)
			if err != nil || len(events) != 4 || events[3].Kind != audit.EventCorrected || status(t, db.Audit(), openOne.ExecID) != audit.Succeeded {
				t.Errorf("events %+v, %v", events, err)
			}
		})
	}
}

func TestSpoolWithForeignFiles(t *testing.T) {
	t.Parallel()
	db := openDatabase(t, "", t.TempDir())
	dir := t.TempDir()
	l := newLog(t, db.Audit(), dir)
	open := mustOpen(t, l)
	files := map[string]string{
		"garbage.json":           "{",
		"empty.json":             "",
		"list.json":              "[]",
		"another.json":           `{"exec_id": "not-another", "status": "failed", "ended_at": "2026-01-01T00:00:00Z"}`,
		open.ExecID + ".json":    `{"exec_id": "` + open.ExecID + `", "status": "running"}`,
		"odd.json":               `{"exec_id": "odd", "status": "finished", "ended_at": "2026-01-01T00:00:00Z"}`,
		"no-end.json":            `{"exec_id": "no-end", "status": "failed"}`,
		"gone.json":              `{"exec_id": "gone", "status": "failed", "created_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:00Z"}`,
		"later-version.json.txt": "not ours",
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, "spool", name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "spool", "link.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "spool", "folder.json"), 0o700); err != nil {
		t.Fatal(err)
	}

	// A record that an older version set aside, and one of a crash between the file and its name.
	aside, crashed := mustOpen(t, l), mustOpen(t, l)
	for name, r := range map[string]audit.Record{aside.ExecID + ".bad": aside, crashed.ExecID + ".tmp": crashed} {
		content, err := json.Marshal(ended(r))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "spool", name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	next := newLog(t, db.Audit(), dir)
	lost, err := next.Recover(t.Context())
	if err != nil || len(lost) != 0 {
		t.Fatalf("Recover = %v, %v: a row was ended as lost although its file may hold the result", lost, err)
	}
	for r, want := range map[string]audit.Status{open.ExecID: audit.Running, aside.ExecID: audit.Succeeded, crashed.ExecID: audit.Succeeded} {
		if got := status(t, db.Audit(), r); got != want {
			t.Errorf("%s is %s, want %s", r, got, want)
		}
	}
	delete(files, "later-version.json.txt")
	want := append(slices.Sorted(maps.Keys(files)), "folder.json", "later-version.json.txt", "link.json")
	slices.Sort(want)
	if got := spooled(t, dir); !slices.Equal(got, want) {
		t.Errorf("the spool holds\n%v, want\n%v", got, want)
	}
	// The exec of gone.json is not in the database: its result stays, too.
	u := next.Unstored()
	if u.Results != 1 || u.Refused != 1 || u.ExecID != "gone" || u.Reason == "" || u.Damaged != len(want)-2 {
		t.Errorf("unstored: %+v", u)
	}
	if got, err := next.Get(t.Context(), "gone"); err != nil || got.Status != audit.Failed {
		t.Errorf("the result without a row: %+v, %v", got, err)
	}
}

func TestCanceledCallerDoesNotStopClose(t *testing.T) {
	t.Parallel()
	db := openDatabase(t, "", t.TempDir())
	l := newLog(t, db.Audit(), t.TempDir())
	r := mustOpen(t, l)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, err := l.Close(gone, new(ended(r))); ok || err != nil {
		t.Fatalf("Close = %v, %v", ok, err)
	}
	if got := status(t, db.Audit(), r.ExecID); got != audit.Succeeded {
		t.Errorf("the row is %s", got)
	}
}

func TestCloseNeedsFinalStatus(t *testing.T) {
	t.Parallel()
	db := openDatabase(t, "", t.TempDir())
	dir := t.TempDir()
	l := newLog(t, db.Audit(), dir)
	r := mustOpen(t, l)
	for name, change := range map[string]func(*audit.Record){
		"running":                func(r *audit.Record) { r.Status = audit.Running },
		"an odd status":          func(r *audit.Record) { r.Status = "x" },
		"no time":                func(r *audit.Record) { r.EndedAt = time.Time{} },
		"an id that is a path":   func(r *audit.Record) { r.ExecID = "../../etc/x" },
		"an id with a NUL":       func(r *audit.Record) { r.ExecID = "a\x00b" },
		"an id with a backslash": func(r *audit.Record) { r.ExecID = `a\b` },
		"an id with a dot":       func(r *audit.Record) { r.ExecID = "a.b" },
		"no id":                  func(r *audit.Record) { r.ExecID = "" },
	} {
		wrong := ended(r)
		change(&wrong)
		if ok, err := l.Close(t.Context(), &wrong); ok || !fault.Is(err, fault.Internal) {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	if files := spooled(t, dir); len(files) != 0 {
		t.Errorf("left in the spool: %v", files)
	}
}

// counted counts the records that are read.
type counted struct {
	audit.Store
	gets int
}

func (s *counted) Get(ctx context.Context, execID string) (audit.Record, error) {
	s.gets++
	return s.Store.Get(ctx, execID)
}

// TestNewer: a row is read again only if its status has changed.
func TestNewer(t *testing.T) {
	t.Parallel()
	s := &counted{Store: openDatabase(t, "", t.TempDir()).Audit()}
	l := newLog(t, s, t.TempDir())
	r := mustOpen(t, l)
	newer := func(wantStatus audit.Status, wantGets int) {
		t.Helper()
		if got, err := l.Newer(t.Context(), r); err != nil || got.Status != wantStatus || s.gets != wantGets {
			t.Errorf("%s, %v; %d rows were read", got.Status, err, s.gets)
		}
	}
	newer(audit.Running, 0)
	if _, err := s.Close(t.Context(), ended(r)); err != nil {
		t.Fatal(err)
	}
	newer(audit.Succeeded, 1)
	if _, err := l.Newer(t.Context(), running()); !fault.Is(err, fault.UnknownExec) {
		t.Errorf("Newer of an unknown one: %v", err)
	}
}

// lossy writes the opening and loses the answer, as a connection does that breaks after the commit.
type lossy struct{ audit.Store }

func (s lossy) Open(ctx context.Context, r audit.Record) (*audit.Record, error) {
	taken, err := s.Store.Open(ctx, r)
	if err == nil && taken == nil {
		err = fault.New(fault.DatabaseUnavailable, "the connection broke")
	}
	return taken, err
}

// TestOpenWithLostAnswer: nothing runs, so the row must not stay open until the node's next start.
func TestOpenWithLostAnswer(t *testing.T) {
	t.Parallel()
	db := openDatabase(t, "", t.TempDir())
	l := newLog(t, lossy{db.Audit()}, t.TempDir())

	// The same request comes again before Run has looked.
	r := running()
	r.IdempotencyKey = "k"
	if _, err := l.Open(t.Context(), r); !fault.Is(err, fault.DatabaseUnavailable) {
		t.Fatal(err)
	}
	again := running()
	again.IdempotencyKey = "k"
	taken, err := l.Open(t.Context(), again)
	if err != nil || taken == nil || taken.ExecID != r.ExecID || taken.Status != audit.Errored || taken.ErrorReason != audit.StartFailed {
		t.Fatalf("the second Open = %+v, %v", taken, err)
	}

	second := running()
	if _, err := l.Open(t.Context(), second); !fault.Is(err, fault.DatabaseUnavailable) {
		t.Fatal(err)
	}
	run(t, l)
	eventually(t, "the row in doubt is ended", func() bool { return status(t, db.Audit(), second.ExecID) == audit.Errored })
}
