package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/runner/jobs"
	"secbox/store/internal/row"
	"secbox/store/storetest/planprobe"
)

// waiting is an asynchronous exec of a token that waits.
func waiting(token string, p audit.Priority, change ...func(*audit.Record)) audit.Record {
	r := in(queued(), func(r *audit.Record) {
		r.Async, r.Priority, r.RequestedBy, r.NodeID = true, p, token, ""
	})
	for _, c := range change {
		c(&r)
	}
	return r
}

// roomy are limits that no test reaches.
var roomy = audit.JobLimits{Waiting: 1 << 20, WaitingPerToken: 1 << 20, Bytes: 1 << 40, BytesPerToken: 1 << 40}

func aJob() audit.Job { return audit.Job{ExpiresAt: farAway, Sealed: []byte("\x00sealed\xff")} }

var farAway = time.Date(9000, 1, 2, 3, 4, 5, 6000, time.UTC)

// enqueueOne is Enqueue for one exec.
func enqueueOne(t *testing.T, s audit.Store, r audit.Record, job audit.Job, limits audit.JobLimits) (taken *audit.Record, err error) {
	t.Helper()
	out, err := s.Enqueue(t.Context(), []audit.Waiting{{Record: r, Job: job}}, limits)
	if err != nil {
		return nil, err
	}
	return out[0].Taken, out[0].Err
}

func mustEnqueue(t *testing.T, f Fixture, r audit.Record) audit.Record {
	t.Helper()
	if taken, err := enqueueOne(t, f.Audit(), r, aJob(), roomy); err != nil || taken != nil {
		t.Fatalf("Enqueue(%s) = %+v, %v", r.ExecID, taken, err)
	}
	return r
}

func anyToken(string) bool { return true }

func mustTake(t *testing.T, s jobs.Store, node string) *jobs.Taken {
	t.Helper()
	return mustTakeAfter(t, s, node, "", anyToken)
}

func mustTakeAfter(t *testing.T, s jobs.Store, node, after string, mayRun func(string) bool) *jobs.Taken {
	t.Helper()
	taken, err := s.Take(t.Context(), node, after, mayRun)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// wantJobs fails unless the database has so many jobs, and so many of them wait.
func wantJobs(t *testing.T, f Fixture, what string, all, waiting int) {
	t.Helper()
	if got, err := f.SQL("SELECT count(*) FROM sandbox_exec_jobs"); err != nil || got != fmt.Sprint(all) {
		t.Errorf("%s: %s jobs, %v; want %d", what, got, err, all)
	}
	if n, _, err := f.Jobs().Waiting(t.Context()); err != nil || n != waiting {
		t.Errorf("%s: %d jobs wait, %v; want %d", what, n, err, waiting)
	}
}

func jobRoundTrip(t *testing.T, f Fixture) {
	r := mustEnqueue(t, f, waiting("tok", audit.High))
	same(t, "row", mustGet(t, f.Audit(), r.ExecID), r)
	if got := kinds(t, f.Audit(), r.ExecID); !slices.Equal(got, []audit.EventKind{audit.EventCreated}) {
		t.Errorf("events %v", got)
	}
	if n, oldest, err := f.Jobs().Waiting(t.Context()); err != nil || n != 1 || !oldest.Equal(r.CreatedAt) {
		t.Errorf("%d wait since %v, %v", n, oldest, err)
	}
	taken := mustTake(t, f.Jobs(), "n1")
	if taken == nil || taken.ExecID != r.ExecID || taken.RequestedBy != "tok" || !taken.ExpiresAt.Equal(farAway) ||
		!bytes.Equal(taken.Sealed, aJob().Sealed) {
		t.Fatalf("%+v", taken)
	}
	if again := mustTake(t, f.Jobs(), "n2"); again != nil {
		t.Errorf("taken twice: %+v", again)
	}
	if n, oldest, err := f.Jobs().Waiting(t.Context()); err != nil || n != 0 || !oldest.IsZero() {
		t.Errorf("%d wait since %v, %v", n, oldest, err)
	}
	same(t, "a taken one waits still", mustGet(t, f.Audit(), r.ExecID), r)

	r.NodeID, r.StartedAt, r.ImageID = "n1", base.Add(time.Second), "sha256:bb"
	if ok, err := f.Audit().Start(t.Context(), r); err != nil || !ok {
		t.Fatal(ok, err)
	}
	r.Status = audit.Running
	same(t, "started", mustGet(t, f.Audit(), r.ExecID), r)
	wantJobs(t, f, "started", 1, 0)
	r = ended(r)
	if _, err := f.Audit().Close(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	same(t, "ended", mustGet(t, f.Audit(), r.ExecID), r)
	wantJobs(t, f, "ended", 0, 0)

	// An id that exists, a key that is taken, and a record that is wrong make no job.
	keyed := mustEnqueue(t, f, waiting("tok", audit.Low, func(r *audit.Record) { r.IdempotencyKey = "key" }))
	if _, err := enqueueOne(t, f.Audit(), r, aJob(), roomy); !fault.Is(err, fault.Internal) {
		t.Errorf("an id that exists: %v", err)
	}
	holder, err := enqueueOne(t, f.Audit(), waiting("tok", audit.Low, func(r *audit.Record) { r.IdempotencyKey = "key" }), aJob(),
		audit.JobLimits{})
	if err != nil || holder == nil {
		t.Fatalf("a key that is taken, beside full limits: %+v, %v", holder, err)
	}
	same(t, "holder", *holder, keyed)
	if _, err := enqueueOne(t, f.Audit(), waiting("tok", audit.Low, func(r *audit.Record) { r.Status = "odd" }), aJob(),
		roomy); !fault.Is(err, fault.Internal) {
		t.Errorf("an odd status: %v", err)
	}
	wantJobs(t, f, "of refused ones", 1, 1)
}

func jobOrder(t *testing.T, f Fixture) {
	older := func(r *audit.Record) { r.CreatedAt = base.Add(-time.Hour) }
	lowB := mustEnqueue(t, f, waiting("b", audit.Low, older))
	normalB := mustEnqueue(t, f, waiting("b", audit.Normal))
	olderB := mustEnqueue(t, f, waiting("b", audit.Normal, older))
	highC := mustEnqueue(t, f, waiting("c", audit.High))
	lowA := mustEnqueue(t, f, waiting("a", audit.Low))
	lowC := mustEnqueue(t, f, waiting("c", audit.Low, older))

	s := f.Jobs()
	if none := mustTakeAfter(t, s, "n1", "", func(string) bool { return false }); none != nil {
		t.Fatalf("no token may run: %+v", none)
	}
	var got []string
	last, notB := "", func(token string) bool { return token != "b" }
	for _, mayRun := range []func(string) bool{anyToken, anyToken, anyToken, anyToken, notB, anyToken, anyToken} {
		if taken := mustTakeAfter(t, s, "n1", last, mayRun); taken != nil {
			got, last = append(got, taken.ExecID), taken.RequestedBy
		}
	}
	// In turns; of a token by priority and age.
	if want := []string{lowA.ExecID, olderB.ExecID, highC.ExecID, normalB.ExecID, lowC.ExecID, lowB.ExecID}; !slices.Equal(got, want) {
		t.Errorf("taken %v, want %v", got, want)
	}
}

func jobRace(t *testing.T, f Fixture) {
	const n = 24
	want := map[string]bool{}
	for i := range n {
		want[mustEnqueue(t, f, waiting(fmt.Sprint("token-", i%3), audit.Normal)).ExecID] = true
	}
	var mu sync.Mutex
	var got []string
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for range 4 * n {
				taken, err := f.Jobs().Take(t.Context(), fmt.Sprint("n", i), "", anyToken)
				if err != nil {
					t.Error(err)
				}
				if taken == nil {
					if left, _, err := f.Jobs().Waiting(t.Context()); err != nil || left == 0 {
						return
					}
					continue // others were faster
				}
				mu.Lock()
				got = append(got, taken.ExecID)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(got)
	if len(got) != n || len(slices.Compact(slices.Clone(got))) != n {
		t.Errorf("%d of %d jobs were taken: %v", len(got), n, got)
	}
}

func jobLimits(t *testing.T, f Fixture) {
	limits := audit.JobLimits{Waiting: 3, WaitingPerToken: 2, Bytes: 100, BytesPerToken: 100}
	enqueue := func(token string, size int) error {
		_, err := enqueueOne(t, f.Audit(), waiting(token, audit.Normal), audit.Job{ExpiresAt: farAway, Sealed: make([]byte, size)},
			limits)
		return err
	}
	refused := func(what string, err error, setting string) {
		t.Helper()
		if !fault.Is(err, fault.QueueFull) || !strings.Contains(err.Error(), setting) || fault.From(err).RetryAfter == 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	accepted := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	accepted(enqueue("a", 20))
	accepted(enqueue("a", 20))
	refused("a third of a token", enqueue("a", 1), "sandbox.max_queued_per_token")
	accepted(enqueue("b", 20))
	refused("a fourth", enqueue("c", 1), "sandbox.max_queued_async ")
	if rows, err := f.SQL("SELECT count(*) FROM sandbox_execs"); err != nil || rows != "3" {
		t.Errorf("%s rows, %v: a refused one left something", rows, err)
	}
	if err := enqueue("d", 101); !fault.Is(err, fault.BodyTooLarge) || fault.From(err).RetryAfter != 0 {
		t.Errorf("one that is too large alone: %v", err)
	}
	// One that was taken waits no longer, and takes its bytes all the same.
	mustTake(t, f.Jobs(), "n1")
	refused("too large", enqueue("a", 41), "setting sandbox.max_queued_async_mb allows")
	limits.BytesPerToken = 79
	refused("too large for the token", enqueue("a", 40), "of this token")
	limits.BytesPerToken = 80
	accepted(enqueue("a", 40))
}

// jobBatch: execs that are stored together have outcomes of their own, and none is stored when one
// cannot be.
func jobBatch(t *testing.T, f Fixture) {
	keyed := func(key string) func(*audit.Record) { return func(r *audit.Record) { r.IdempotencyKey = key } }
	batch := func(records ...audit.Record) []audit.Waiting {
		var all []audit.Waiting
		for _, r := range records {
			all = append(all, audit.Waiting{Record: r, Job: audit.Job{ExpiresAt: farAway, Sealed: []byte("12")}})
		}
		return all
	}
	holder := mustEnqueue(t, f, waiting("a", audit.Normal, keyed("k/1")))
	limits := audit.JobLimits{Waiting: 9, WaitingPerToken: 3, Bytes: 100, BytesPerToken: 100}
	first := batch(waiting("a", audit.Normal, keyed("k/0")), waiting("a", audit.Normal, keyed("k/1")), waiting("a", audit.Low),
		waiting("a", audit.Low), waiting("a", audit.Normal, keyed("k/1")))
	out, err := f.Audit().Enqueue(t.Context(), first, limits)
	if err != nil || len(out) != len(first) {
		t.Fatalf("%+v, %v", out, err)
	}
	for i, e := range out {
		switch taken := i == 1 || i == 4; {
		case taken && (e.Taken == nil || e.Taken.ExecID != holder.ExecID || e.Err != nil),
			i == 3 && !fault.Is(e.Err, fault.QueueFull),
			!taken && i != 3 && !e.Stored():
			t.Errorf("exec %d: %+v", i, e)
		}
	}
	wantJobs(t, f, "of a batch with a full queue", 3, 3)
	if task, err := f.Audit().Task(t.Context(), first[0].Record.TaskID, "", 9); err != nil || task.Statuses[audit.Queued] != 3 {
		t.Errorf("%+v, %v", task, err)
	}

	again := waiting("a", audit.Normal)
	if out, err := f.Audit().Enqueue(t.Context(), batch(again, first[2].Record), roomy); !fault.Is(err, fault.Internal) {
		t.Errorf("an id that exists: %+v, %v", out, err)
	}
	if _, err := f.Audit().Get(t.Context(), again.ExecID); !fault.Is(err, fault.UnknownExec) {
		t.Errorf("beside an exec that cannot be stored: %v", err)
	}
	if out, err := f.Audit().Enqueue(t.Context(), nil, limits); err != nil || len(out) != 0 {
		t.Errorf("no execs: %+v, %v", out, err)
	}
}

// taskCounts: of a task the execs of a token count, and not its changes of files and sessions.
func taskCounts(t *testing.T, f Fixture) {
	add := func(by string, status audit.Status, more ...func(*audit.Record)) audit.Record {
		r := in(record(), func(r *audit.Record) { r.TaskID, r.RequestedBy, r.Status = "many", by, status })
		for _, change := range more {
			change(&r)
		}
		mustOpen(t, f.Audit(), r)
		return r
	}
	add("a", audit.Running)
	newest := add("a", audit.Queued)
	add("b", audit.Running)
	add("a", audit.Running, func(r *audit.Record) { r.SessionID = r.ExecID })
	add("a", audit.Running, func(r *audit.Record) { r.SessionID = newest.ExecID })
	add("a", audit.Running, func(r *audit.Record) { r.TaskID = "" })
	for by, want := range map[string]map[audit.Status]int{
		"a": {audit.Running: 2, audit.Queued: 1}, "": {audit.Running: 3, audit.Queued: 1}, "c": {},
	} {
		got, err := f.Audit().Task(t.Context(), "many", by, 9)
		if err != nil || !maps.Equal(got.Statuses, want) || (got.Unended == "") != (by == "c") {
			t.Errorf("%s: %+v, %v", by, got, err)
		}
	}
	if got, err := f.Audit().Task(t.Context(), "many", "", 1); err != nil || len(got.Statuses) != 1 {
		t.Errorf("the newest one: %+v, %v", got, err)
	}
}

func jobEnds(t *testing.T, f Fixture) {
	s := f.Audit()
	canceled := mustEnqueue(t, f, waiting("a", audit.Normal))
	end := in(canceled, func(r *audit.Record) {
		r.Status, r.ErrorReason, r.EndedAt = audit.Canceled, audit.ReasonCanceled, base.Add(time.Second)
	})
	if _, err := s.Close(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	same(t, "canceled", mustGet(t, s, canceled.ExecID), end)
	wantJobs(t, f, "canceled", 0, 0)
	started := in(canceled, func(r *audit.Record) { r.NodeID = "n1" })
	if ok, err := s.Start(t.Context(), started); ok || err != nil {
		t.Errorf("a canceled one starts: %v, %v", ok, err)
	}

	// One that a node runs is ended by that node only.
	running := mustEnqueue(t, f, waiting("a", audit.Normal))
	mustTake(t, f.Jobs(), "n1")
	running.NodeID, running.StartedAt = "n1", base.Add(time.Second)
	if ok, err := s.Start(t.Context(), running); !ok || err != nil {
		t.Fatal(ok, err)
	}
	running.Status = audit.Running
	for _, node := range []string{"", "n2"} {
		if _, err := s.Close(t.Context(), in(ended(running), func(r *audit.Record) { r.NodeID = node })); err != nil {
			t.Errorf("the node %q is too late, which is no error: %v", node, err)
		}
	}
	same(t, "still running", mustGet(t, s, running.ExecID), running)
	wantJobs(t, f, "still running", 1, 0)

	// A node that is lost loses what it ran, not what waits.
	left := mustEnqueue(t, f, waiting("a", audit.Normal))
	if lost, err := s.LoseOpen(t.Context(), "n1", nil); err != nil || !slices.Equal(lost, []string{running.ExecID}) {
		t.Errorf("lost %v, %v", lost, err)
	}
	same(t, "waits", mustGet(t, s, left.ExecID), left)
	wantJobs(t, f, "lost", 1, 1)
	for _, late := range []struct {
		node string
		want audit.Status
	}{{"n2", audit.Lost}, {"n1", ended(running).Status}} {
		if _, err := s.Close(t.Context(), in(ended(running), func(r *audit.Record) { r.NodeID = late.node })); err != nil {
			t.Error(err)
		}
		if got := mustGet(t, s, running.ExecID).Status; got != late.want {
			t.Errorf("after the result of node %s: %s, want %s", late.node, got, late.want)
		}
	}
}

func jobReturned(t *testing.T, f Fixture) {
	s := f.Jobs()
	var execs []audit.Record
	for i := range 4 {
		execs = append(execs, mustEnqueue(t, f, waiting("a", audit.Normal,
			func(r *audit.Record) { r.CreatedAt = base.Add(time.Duration(i) * time.Second) })))
		node := "n1"
		if i == 3 {
			node = "n2"
		}
		mustTake(t, s, node)
	}
	execs[0].NodeID = "n1"
	if ok, err := f.Audit().Start(t.Context(), execs[0]); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for id, node := range map[string]string{execs[0].ExecID: "n1", execs[1].ExecID: "n2", "unknown": "n1"} {
		if err := s.Return(t.Context(), node, id); err != nil {
			t.Error(err)
		}
	}
	wantJobs(t, f, "nothing to return", 4, 0)
	if err := s.Return(t.Context(), "n1", execs[1].ExecID); err != nil {
		t.Error(err)
	}
	wantJobs(t, f, "one is returned", 4, 1)
	for _, c := range []struct {
		except []string
		want   int
	}{{[]string{"unknown", execs[2].ExecID}, 0}, {[]string{execs[0].ExecID}, 1}, {nil, 0}} {
		if n, err := s.ReturnAll(t.Context(), "n1", c.except); err != nil || n != c.want {
			t.Errorf("%d were returned but for %v, %v", n, c.except, err)
		}
	}
	wantJobs(t, f, "those of a node are returned", 4, 2)
	mustTake(t, s, "n1")
	if n, err := s.ReturnAll(t.Context(), "n1", nil); err != nil || n != 1 {
		t.Errorf("%d were returned, %v", n, err)
	}
	wantJobs(t, f, "one of them is returned again", 4, 2)
	if taken := mustTake(t, s, "n3"); taken == nil || taken.ExecID != execs[1].ExecID {
		t.Errorf("%+v, want the oldest, %s", taken, execs[1].ExecID)
	}
}

func jobExpires(t *testing.T, f Fixture) {
	s := f.Jobs()
	enqueue := func(expires time.Time) string {
		r := waiting("a", audit.Normal)
		if _, err := enqueueOne(t, f.Audit(), r, audit.Job{ExpiresAt: expires, Sealed: []byte{1}}, roomy); err != nil {
			t.Fatal(err)
		}
		return r.ExecID
	}
	second, oldest, third := enqueue(base.Add(time.Second)), enqueue(base), enqueue(base.Add(time.Hour))
	enqueue(farAway)
	got, err := s.TakeExpired(t.Context(), "n1", 2)
	slices.Sort(got)
	want := []string{second, oldest}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if got, err := s.TakeExpired(t.Context(), "n2", 10); err != nil || !slices.Equal(got, []string{third}) {
		t.Errorf("%v, %v; want %s", got, err, third)
	}
	if got, err := s.TakeExpired(t.Context(), "n2", 10); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	wantJobs(t, f, "expired", 4, 1)
}

// jobPlans: of ten thousand jobs of a thousand tokens, the next one is found as quickly as of ten.
func jobPlans(t *testing.T, f Fixture) {
	numbers, at, sealed := "SELECT generate_series(1, 10000) AS n", "timestamptz '2026-01-01' + n * interval '1 second'", "'123'::bytea"
	if f.Kind() == "sqlite" {
		numbers, at = "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 10000) SELECT n FROM s",
			"1767225600000000 + n * 1000000"
		sealed = "x'010203'"
	}
	if _, err := f.SQL("INSERT INTO sandbox_exec_jobs (exec_id, rank, requested_by, queued_at, expires_at, size, sealed)" +
		" SELECT 'e' || n, n % 3, 'token-' || (n % 1000), " + at + ", " + at + ", 3, " + sealed + " FROM (" + numbers +
		") AS numbers"); err != nil {
		t.Fatal(err)
	}
	tokens, err := planprobe.Explained(t.Context(), f.Database, row.JobTokens, []any{"token-77"})
	if err != nil {
		t.Fatal(err)
	}
	next, err := planprobe.Explained(t.Context(), f.Database, row.NextJob, []any{"token-3"})
	if err != nil {
		t.Fatal(err)
	}
	expired, err := planprobe.Of(t.Context(), f.Database, func() error {
		_, err := f.Jobs().TakeExpired(t.Context(), "n1", 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	returned, err := planprobe.Of(t.Context(), f.Database, func() error {
		_, err := f.Jobs().ReturnAll(t.Context(), "n1", []string{"e1", "e2"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		plan  planprobe.Plan
		index string
	}{
		{tokens, "sandbox_exec_jobs_turns"},
		{next, "sandbox_exec_jobs_turns"},
		{expired, "sandbox_exec_jobs_expiry"},
		{returned, "sandbox_exec_jobs_taken"},
	} {
		if p := c.plan; p.Sorts || p.Scans || !slices.Contains(p.Indexes, c.index) || p.Buffers > planprobe.MaxJobBuffers {
			t.Errorf("jobs are not found by the index %s:\n%s", c.index, p.Text)
		}
	}
	wantJobs(t, f, "filled", 10_000, 10_000)
	if taken := mustTakeAfter(t, f.Jobs(), "n1", "token-998", anyToken); taken == nil || taken.RequestedBy != "token-999" ||
		taken.ExecID != "e999" {
		t.Errorf("%+v", taken)
	}
}
