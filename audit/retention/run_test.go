package retention_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"secbox/audit/retention"
	"secbox/fault"
)

const day = 24 * time.Hour

// installation is a database and files with a runner.
type installation struct {
	t    *testing.T
	db   *database
	disk *files
	log  bytes.Buffer
	cfg  retention.Config
}

// inBubble calls test with an installation and a clock of its own.
func inBubble(t *testing.T, test func(*installation)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := &installation{t: t, db: &database{tombs: map[string][]retention.Part{}}, disk: &files{unused: map[string]int64{}}}
		in.cfg = retention.Config{
			Store: in.db, Files: in.disk, Holder: "n1", RecordDays: 30, Spooled: func() []string { return nil },
			Logger: slog.New(slog.NewTextHandler(&in.log, nil)),
		}
		test(in)
	})
}

// add adds an exec of some age, and returns its id.
func (in *installation) add(age time.Duration, change func(*exec)) string {
	x := exec{id: fmt.Sprintf("exec%06d", len(in.db.execs)), created: time.Now().Add(-age), project: "demo"}
	if change != nil {
		change(&x)
	}
	in.db.execs = append(in.db.execs, x)
	slices.SortFunc(in.db.execs, func(a, b exec) int { return a.created.Compare(b.created) })
	return x.id
}

func (in *installation) once(accept bool) (retention.Done, error) {
	return retention.New(in.cfg).Once(in.t.Context(), accept)
}

func (in *installation) mustOnce() retention.Done {
	in.t.Helper()
	done, err := in.once(false)
	if err != nil {
		in.t.Fatal(err)
	}
	return done
}

// TestRules: which part of an exec goes by which rule.
func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		records, artifacts int64
		want               string // the parts that are gone of execs of 100, 50 and 5 days
		done               retention.Done
	}{
		"none":             {0, 0, "[] [] []", retention.Done{}},
		"records":          {90, 0, "[record] [] []", retention.Done{Records: 1}},
		"artifacts":        {0, 30, "[artifacts] [artifacts] []", retention.Done{Artifacts: 2, Projects: 1}},
		"both":             {90, 30, "[record] [artifacts] []", retention.Done{Records: 1, Artifacts: 1, Projects: 1}},
		"artifacts longer": {30, 90, "[record] [record] []", retention.Done{Records: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(in *installation) {
				in.cfg.RecordDays, in.cfg.ArtifactDays = c.records, c.artifacts
				ids := []string{in.add(100*day, nil), in.add(50*day, nil), in.add(5*day, func(x *exec) { x.project = "young" })}
				in.disk.unused = map[string]int64{"demo": 9, "young": 9, "empty": 0}
				done := in.mustOnce()
				got := fmt.Sprint(in.db.tombs[ids[0]], in.db.tombs[ids[1]], in.db.tombs[ids[2]])
				if c.records == 90 && c.artifacts == 0 || name == "artifacts longer" { // the project's last exec is younger than the last rule
					c.done.Projects = done.Projects
				}
				if got != c.want || done != c.done || in.disk.unused["young"] != 9 {
					in.t.Errorf("%v, %+v, %v", got, done, in.disk.unused)
				}
				if again := in.mustOnce(); again.Records+again.Artifacts != 0 {
					in.t.Errorf("once more: %+v", again)
				}
			})
		})
	}
}

// TestWhatStays: no exec that is open, held, lost, not logged or spooled is removed, nor does one
// of them stop the others.
func TestWhatStays(t *testing.T) {
	inBubble(t, func(in *installation) {
		in.cfg.ArtifactDays = 20
		var stay []string
		for _, v := range []retention.Verdict{retention.Open, retention.Held, retention.Unsettled, retention.Unlogged, retention.Young} {
			stay = append(stay, in.add(100*day, func(x *exec) { x.verdict = v }))
		}
		spooled := in.add(100*day, nil)
		in.cfg.Spooled = func() []string { return []string{spooled} }
		goes := in.add(99*day, nil)
		runner := retention.New(in.cfg)
		for _, want := range []retention.Done{{Records: 1, Held: 1}, {Held: 1}} {
			if done, err := runner.Once(in.t.Context(), false); err != nil || done != want {
				in.t.Errorf("%+v, %v", done, err)
			}
		}
		for _, id := range append(stay, spooled) {
			if len(in.db.tombs[id]) > 0 {
				in.t.Errorf("%s is removed", id)
			}
		}
		if !slices.Equal(in.disk.gone, []string{goes}) {
			in.t.Errorf("artifacts are gone of %v", in.disk.gone)
		}
		in.cfg.Spooled = func() []string { return nil } // its end has arrived
		if done := in.mustOnce(); done.Records != 1 || len(in.db.tombs[spooled]) != 1 {
			in.t.Errorf("%+v", done)
		}
	})
}

// TestBatches: transactions are small, at most 200 execs go in a second, and the lease is never
// free meanwhile.
func TestBatches(t *testing.T) {
	inBubble(t, func(in *installation) {
		for i := range 2000 {
			in.add(100*day+time.Duration(i), nil)
		}
		began := time.Now()
		done := in.mustOnce()
		if took := time.Since(began); done.Records != 2000 || took < 10*time.Second || took > time.Minute || in.db.largest != 16 || in.db.lapsed {
			in.t.Errorf("%+v in %v, in batches of %d, lapsed %v", done, took, in.db.largest, in.db.lapsed)
		}
	})
}

// TestLeaseIsRenewed: files that take long do not let another run begin.
func TestLeaseIsRenewed(t *testing.T) {
	inBubble(t, func(in *installation) {
		in.add(100*day, nil)
		in.disk.unused["slow"] = 1
		in.disk.remove = func(ctx context.Context, _ string) error {
			for range 4 { // it does not heed the context
				time.Sleep(5 * time.Minute)
				if begun, err := in.db.Begin(ctx, "other", retention.Lease, 0); begun || err != nil {
					in.t.Errorf("another run began: %v", err)
				}
			}
			return nil
		}
		if in.mustOnce(); in.db.lapsed {
			in.t.Error("the lease had lapsed")
		}
	})
}

// TestLateHolderStops: a run that was suspended for longer than its lease removes nothing after
// another one has begun.
func TestLateHolderStops(t *testing.T) {
	inBubble(t, func(in *installation) {
		for i := range 100 {
			in.add(100*day+time.Duration(i), nil)
		}
		in.disk.remove = func(ctx context.Context, execID string) error {
			if len(in.disk.gone) == 3 {
				in.db.mu.Lock()
				in.db.holder, in.db.until = "other", time.Now().Add(time.Hour)
				in.db.mu.Unlock()
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		done, err := in.once(false)
		if !errors.Is(err, retention.ErrLeaseLost) || done.Records != 16 || len(in.disk.gone) != 3 || in.db.holder != "other" {
			in.t.Errorf("%+v, %v, %d, held by %s", done, err, len(in.disk.gone), in.db.holder)
		}
		in.db.holder, in.disk.remove = "", nil
		if done := in.mustOnce(); done.Records != 84 || len(in.disk.gone) != 100+3 || len(in.db.queue) != 0 {
			in.t.Errorf("the next run: %+v, %d", done, len(in.disk.gone))
		}
	})
}

// TestDatabaseAway: a run ends before its lease does if it cannot renew it.
func TestDatabaseAway(t *testing.T) {
	inBubble(t, func(in *installation) {
		for i := range 400 {
			in.add(100*day+time.Duration(i), nil)
		}
		in.disk.remove = func(context.Context, string) error {
			time.Sleep(time.Second / 10)
			return nil
		}
		away := fault.New(fault.DatabaseUnavailable, "away")
		in.db.renew = func() error { return away }
		began := time.Now()
		done, err := in.once(false)
		if took := time.Since(began); !errors.Is(err, away) || took > retention.Lease || done.Records == 400 {
			in.t.Errorf("%+v, %v, after %v", done, err, took)
		}
	})
}

// TestClockThatJumps: no clock that is years ahead removes anything, until an operator says that it
// is right.
func TestClockThatJumps(t *testing.T) {
	inBubble(t, func(in *installation) {
		in.add(day, nil)
		in.db.newest = time.Now()
		in.mustOnce()
		for _, ahead := range []time.Duration{10 * 365 * day, 8 * day, -day} {
			in.db.skew = ahead
			for range 3 { // nor by trying again
				if done, err := in.once(false); !fault.Is(err, fault.InvalidSettings) || done != (retention.Done{}) || len(in.db.tombs) > 0 {
					in.t.Errorf("%v ahead: %+v, %v", ahead, done, err)
				}
			}
		}
		in.db.skew = 0
		in.mustOnce()
		in.db.skew = 40 * day
		if done, err := in.once(true); err != nil || done.Records != 1 {
			in.t.Errorf("an accepted clock: %+v, %v", done, err)
		}
	})
}

// TestAltered: an exec that is not as the log says stays, is counted, and is logged once, and the
// others go.
func TestAltered(t *testing.T) {
	inBubble(t, func(in *installation) {
		in.cfg.ArtifactDays = 20
		altered := in.add(100*day, func(x *exec) { x.altered = "its row is not as its events say" })
		in.add(99*day, nil)
		plans, err := retention.New(in.cfg).DryRun(in.t.Context())
		if err != nil || plans[0].Due != 1 || plans[0].Altered != 1 || len(in.db.tombs) > 0 {
			in.t.Errorf("%+v, %v", plans, err)
		}
		runner := retention.New(in.cfg)
		go runner.Run(in.t.Context())
		time.Sleep(3 * time.Hour)
		report, err := runner.Report(in.t.Context())
		if err != nil || report.Totals.Records != 1 || report.Done.Altered != 1 || !strings.Contains(report.Problem, "core-api audit verify") {
			in.t.Errorf("%+v, %v", report, err)
		}
		if told := strings.Count(in.log.String(), altered); told != 1 {
			in.t.Errorf("logged %d times: %s", told, &in.log)
		}
	})
}

// TestFilesAreTriedAgain: artifacts that cannot be removed stay queued, and neither they nor slow
// ones stop a run.
func TestFilesAreTriedAgain(t *testing.T) {
	inBubble(t, func(in *installation) {
		slow, broken := in.add(102*day, nil), in.add(101*day, nil)
		for i := range 50 {
			in.add(100*day+time.Duration(i), nil)
		}
		mounted := fault.New(fault.ProjectDamaged, "something is mounted")
		in.disk.remove = func(ctx context.Context, execID string) error {
			switch execID {
			case slow:
				<-ctx.Done()
				return ctx.Err()
			case broken:
				return mounted
			}
			return nil
		}
		done, err := in.once(false)
		if !errors.Is(err, mounted) || done.Records != 52 || len(in.db.queue) != 2 || !strings.Contains(in.log.String(), broken) {
			in.t.Errorf("%+v, %v, %v", done, err, in.db.queue)
		}
		in.disk.remove = nil
		in.cfg.RecordDays = 0 // what was begun is completed although no rule is left
		if done := in.mustOnce(); done != (retention.Done{}) || len(in.db.queue) != 0 || len(in.disk.gone) != 52 {
			in.t.Errorf("%+v, %v", done, in.db.queue)
		}
	})
}

// TestUnusedWorkspaces: a workspace goes once its removal is on record, and not while an exec of it
// is young or held, nor when a hold comes during the run.
func TestUnusedWorkspaces(t *testing.T) {
	inBubble(t, func(in *installation) {
		in.db.refuse, in.db.held = errors.New("the database does not answer"), "a~held-now"
		in.cfg.RecordDays, in.cfg.WorkspaceHours = 0, 48
		in.disk.idle = map[string]int64{"a~old": 7, "a~young": 8, "a~held": 9, "a~held-now": 1}
		in.add(3*day, func(x *exec) { x.project = "a~old" })
		in.add(day, func(x *exec) { x.project = "a~young" })
		in.add(3*day, func(x *exec) { x.project, x.verdict = "a~held", retention.Held })
		plans, err := retention.New(in.cfg).DryRun(in.t.Context())
		if err != nil || len(plans) != 1 || plans[0].Rule != retention.UnusedWorkspaces || plans[0].Hours != 48 || plans[0].Due != 2 || plans[0].Bytes != 8 {
			in.t.Errorf("%+v, %v", plans, err)
		}
		if done, err := in.once(false); err == nil || done.Projects != 0 || len(in.disk.idle) != 4 {
			in.t.Errorf("without a record: %+v, %v, and %v are left", done, err, in.disk.idle)
		}
		in.db.refuse = nil
		done := in.mustOnce()
		want := []retention.Workspace{{ProjectID: "a~old", UserID: "user", Hours: 48, Bytes: 7}}
		for i := range in.db.recorded {
			in.db.recorded[i].Before = time.Time{}
		}
		if _, is := in.disk.idle["a~old"]; is || done.Projects != 1 || len(in.disk.idle) != 3 || !slices.Equal(in.db.recorded, want) {
			in.t.Errorf("%+v, %+v, and %v are left", done, in.db.recorded, in.disk.idle)
		}
	})
}
