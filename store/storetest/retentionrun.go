package storetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/retention"
	"secbox/fault"
)

// fakeFiles are artifacts that are only names.
type fakeFiles struct {
	mu     sync.Mutex
	left   map[string]bool // execs with artifacts
	broken map[string]bool // whose artifacts cannot be removed
	unused []string        // projects whose files were removed
	die    func()          // called before the first removal
}

func (f *fakeFiles) RemoveArtifacts(ctx context.Context, _, execID string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.die != nil {
		f.die()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if f.broken[execID] {
		return errBroken
	}
	delete(f.left, execID)
	return nil
}

var errBroken = fault.New(fault.Internal, "broken")

func (f *fakeFiles) Projects(visit func(projectID, userID string) error) error {
	for _, id := range []string{"demo", "other"} {
		if err := visit(id, ""); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeFiles) RemoveUnused(_ context.Context, projectID string, _ time.Time, dry bool) (int64, error) {
	if !dry {
		f.unused = append(f.unused, projectID)
	}
	return 5, nil
}

func (f *fakeFiles) RemoveWorkspace(context.Context, string, time.Time, func(int64) (bool, error)) (int64, bool, error) {
	return 0, false, nil
}

// later is a store whose clock is some days ahead. The clock of its events is not.
type later struct {
	retention.Store
	days int
}

func (s later) State(ctx context.Context) (retention.State, error) {
	state, err := s.Store.State(ctx)
	state.Now, state.ClockAt = state.Now.AddDate(0, 0, s.days), state.ClockAt.AddDate(0, 0, s.days)
	return state, err
}

// retentionRuns: a run removes all that is due, and one that is killed leaves what the next one
// completes.
func retentionRuns(t *testing.T, f Fixture) {
	s := later{f.Retention(), 100}
	keyFile, _ := logKey(t)
	files := &fakeFiles{left: map[string]bool{}, broken: map[string]bool{}}
	runner := func(records, artifacts int64) *retention.Runner {
		return retention.New(retention.Config{
			Store: s, Files: files, Holder: "n1", Logger: discard, RecordDays: records, ArtifactDays: artifacts,
			Spooled: func() []string { return nil },
		})
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	var ids []string
	add := func(days int, change func(*audit.Record)) {
		r := closedExec(t, f, func(r *audit.Record) {
			r.CreatedAt = now.AddDate(0, 0, 100-days)
			r.StartedAt = r.CreatedAt
			change(r)
		})
		ids, files.left[r.ExecID] = append(ids, r.ExecID), true
	}
	for range 40 { // more than a batch
		add(100, unchanged)
	}
	backdated := closedExec(t, f, func(r *audit.Record) { r.CreatedAt = now.AddDate(0, 0, 99) }).ExecID
	files.left[backdated] = true
	add(100, func(r *audit.Record) { r.TaskID = "kept" })
	add(50, unchanged)
	add(1, func(r *audit.Record) { r.ProjectID = "other" })
	long := now.AddDate(-1, 0, 0)
	f.mustSQL(t, "UPDATE sandbox_execs SET created_at = "+f.literal(long)+", started_at = "+f.literal(long)+", ended_at = "+f.literal(long)+
		" WHERE exec_id = '"+backdated+"'")
	old, held, middle, young := ids[:40], ids[40], ids[41], ids[42]
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", keyFile))
	if _, err := s.AddHold(t.Context(), retention.Hold{
		ID: newID(), Kind: retention.HoldTask, Value: "kept",
		Reason: "a trial",
	}); err != nil {
		t.Fatal(err)
	}
	if done, err := runner(0, 0).Once(t.Context(), false); err != nil || done != (retention.Done{}) {
		t.Errorf("without rules: %+v, %v", done, err)
	}

	plans, err := runner(90, 30).DryRun(t.Context())
	if err != nil || len(plans) != 3 || plans[1].Due != 1 || plans[1].Held != 0 || plans[0].Due != 40 || plans[0].Held != 1 ||
		plans[0].Altered != 1 || plans[1].Altered != 0 || plans[0].Bytes <= 40*3 ||
		plans[2].Rule != retention.UnusedInputs || plans[2].Due != 0 {
		t.Errorf("%+v, %v", plans, err)
	}
	if len(files.left) != len(ids)+1 || len(files.unused) != 0 {
		t.Error("a dry run removes files")
	}

	ctx, kill := context.WithCancel(t.Context())
	files.die = kill
	if _, err := runner(90, 30).Once(ctx, false); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that is killed: %v", err)
	}
	files.die = nil
	if state, err := s.State(t.Context()); err != nil || state.Queued == 0 || len(files.left) != len(ids)+1 {
		t.Errorf("after the kill: %+v, %v", state, err)
	}

	files.broken[old[3]] = true
	done, err := runner(90, 30).Once(t.Context(), false)
	if err == nil || fault.From(err).Message != errBroken.Message || done.Records == 0 || done.Artifacts != 1 || done.Held != 1 ||
		done.Altered != 1 || done.Projects != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if left := slices.Sorted(maps.Keys(files.left)); !slices.Equal(left,
		slices.Sorted(slices.Values([]string{old[3], held, young, backdated}))) {
		t.Errorf("artifacts are left of %v", left)
	}
	for _, id := range ids {
		if _, err := f.Audit().Get(t.Context(), id); fault.Is(err, fault.UnknownExec) != slices.Contains(old, id) {
			t.Errorf("%s: %v", id, err)
		}
	}
	tombs, err := s.Tombstones(t.Context(), []string{middle})
	if err != nil || len(tombs) != 1 || tombs[0].Part != retention.Artifacts || tombs[0].Rule != "audit.artifacts_retention_days" ||
		tombs[0].Days != 30 {
		t.Errorf("%+v, %v", tombs, err)
	}

	files.broken = nil
	if done, err = runner(90, 30).Once(t.Context(), false); !fault.Is(err, fault.InvalidProof) || done.Records+done.Artifacts != 0 ||
		files.left[old[3]] {
		t.Errorf("once more: %+v, %v", done, err)
	}
	if state, err := s.State(t.Context()); err != nil || state.Queued != 0 || state.Running || state.Done.Altered != 1 {
		t.Errorf("%+v, %v", state, err)
	}
}

// retentionClockStops: a run refuses a clock that may be wrong, until an operator says that it is
// right.
func retentionClockStops(t *testing.T, f Fixture) {
	files := &fakeFiles{}
	runner := retention.New(retention.Config{
		Store: f.Retention(), Files: files, Holder: "n1", Logger: discard, RecordDays: 1, Spooled: func() []string { return nil },
	})
	once := func(accept bool) error {
		_, err := runner.Once(t.Context(), accept)
		return err
	}
	if err := once(false); err != nil {
		t.Error(err)
	}
	year := "31536000000000"
	if f.Kind() == "postgres" {
		year = "interval '365 days'"
	}
	for _, way := range []string{"-", "+"} { // the clock seems to be ahead, and behind
		f.mustSQL(t, "UPDATE audit_retention SET clock_at = clock_at "+way+" "+year)
		for range 2 {
			if err := once(false); !fault.Is(err, fault.InvalidSettings) {
				t.Errorf("a clock that jumped: %v", err)
			}
		}
		if err := once(true); err != nil {
			t.Errorf("accepted: %v", err)
		}
		if err := once(false); err != nil {
			t.Errorf("after that: %v", err)
		}
	}
	r := record()
	mustOpen(t, f.Audit(), r)
	when := "9e15"
	if f.Kind() == "postgres" {
		when = "now() + interval '1 day'"
	}
	f.mustSQL(t, "INSERT INTO sandbox_exec_events (exec_id, kind, at, node_id, data) VALUES ('x', 'ended', CAST("+when+" AS "+
		map[string]string{"sqlite": "INTEGER", "postgres": "timestamptz"}[f.Kind()]+"), 'n', '{}')")
	if err := once(false); !fault.Is(err, fault.InvalidSettings) {
		t.Errorf("events of the future: %v", err)
	}
}
