package storetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
)

func queued() audit.Record {
	return in(record(), func(r *audit.Record) {
		r.Status, r.StartedAt, r.ImageID, r.NodeID = audit.Queued, time.Time{}, "", ""
	})
}

func start(t *testing.T, f Fixture) {
	s := f.Audit()
	r := queued()
	mustOpen(t, s, r)
	going := in(r, func(r *audit.Record) {
		r.Status, r.StartedAt, r.NodeID, r.ImageID, r.Warm, r.Attached, r.Detail = audit.Running, base.Add(time.Second), "n7", "sha256:bb",
			true, true, "from the queue"
	})
	// Start must set only the fields that are new at the start.
	ok, err := s.Start(t.Context(), in(going, func(r *audit.Record) { r.ProjectID, r.Cmd, r.StdoutBytes = "other", "other", 99 }))
	if err != nil || !ok {
		t.Fatalf("Start = %v, %v", ok, err)
	}
	same(t, "row", mustGet(t, s, r.ExecID), going)
	events := mustEvents(t, s, r.ExecID)
	if got := kinds(t, s, r.ExecID); !slices.Equal(got, []audit.EventKind{audit.EventCreated, audit.EventStarted}) {
		t.Fatalf("events %v", got)
	}
	same(t, "created", inEvent(t, events[0]), r)
	same(t, "started", inEvent(t, events[1]), going)
	if events[1].NodeID != "n7" {
		t.Errorf("the event's node is %q", events[1].NodeID)
	}

	canceled := in(queued(), func(r *audit.Record) {})
	mustOpen(t, s, canceled)
	if _, err := s.Close(t.Context(), in(ended(canceled), func(r *audit.Record) { r.Status = audit.Canceled })); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]audit.Record{"running": going, "ended": canceled, "unknown": queued()} {
		before := len(mustEvents(t, s, r.ExecID))
		if got, err := s.Status(t.Context(), r.ExecID); name != "unknown" && (err != nil || got != mustGet(t, s, r.ExecID).Status) {
			t.Errorf("Status of a %s one = %s, %v", name, got, err)
		}
		r.Detail = "must not be written"
		if ok, err := s.Start(t.Context(), r); err != nil || ok {
			t.Errorf("Start of a %s one = %v, %v", name, ok, err)
		}
		if after := len(mustEvents(t, s, r.ExecID)); after != before {
			t.Errorf("Start of a %s one wrote an event", name)
		}
	}
	if got := mustGet(t, s, r.ExecID).Detail; got != "from the queue" {
		t.Errorf("a start that was refused wrote %q", got)
	}
}

func startRace(t *testing.T, f Fixture) {
	s := f.Audit()
	r := queued()
	mustOpen(t, s, r)
	var wins atomic.Int64
	var winner atomic.Value
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			mine := in(r, func(r *audit.Record) { r.NodeID, r.StartedAt = fmt.Sprint("n", i), base })
			ok, err := s.Start(t.Context(), mine)
			if err != nil {
				t.Error(err)
			}
			if ok {
				wins.Add(1)
				winner.Store(mine.NodeID)
			}
		})
	}
	all.Wait()
	if wins.Load() != 1 {
		t.Fatalf("%d starts won", wins.Load())
	}
	if got := mustGet(t, s, r.ExecID).NodeID; got != winner.Load() {
		t.Errorf("the row says %q, the winner was %q", got, winner.Load())
	}
	if got := len(mustEvents(t, s, r.ExecID)); got != 2 {
		t.Errorf("%d events", got)
	}
}

func closing(t *testing.T, f Fixture) {
	s := f.Audit()
	r := record()
	mustOpen(t, s, r)
	want := ended(r)
	want.ImageID, want.Warm, want.Attached, want.ArtifactsPath = "sha256:cc", true, true, "projects/demo/artifacts/y"
	given := in(want, func(r *audit.Record) { // all that is settled at the opening
		r.ProjectID, r.TaskID, r.ConversationID, r.AgentID, r.UserID, r.SkillID, r.SkillDigest = "x", "x", "x", "x", "x", "x", "x"
		r.Image, r.Cmd, r.Args, r.Cwd, r.EnvKeys, r.Inputs, r.PolicySnapshot = "x", "x", nil, "x", nil, nil, nil
		r.CreatedAt, r.Backend, r.Runner, r.RequestedBy, r.RequestDigest, r.IdempotencyKey, r.SettingsDigest = base.Add(time.Hour), "x",
			"x", "x", "x", "x", "x"
	})
	if _, err := s.Close(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	same(t, "row", mustGet(t, s, r.ExecID), want)
	events := mustEvents(t, s, r.ExecID)
	if got := kinds(t, s, r.ExecID); !slices.Equal(got, []audit.EventKind{audit.EventCreated, audit.EventStarted, audit.EventEnded}) {
		t.Fatalf("events %v", got)
	}
	same(t, "created", inEvent(t, events[0]), r)
	same(t, "ended", inEvent(t, events[2]), want)

	// Straight from queued, with no exit code.
	q := queued()
	mustOpen(t, s, q)
	q.Status, q.ErrorReason, q.EndedAt = audit.Canceled, audit.ReasonCanceled, base.Add(time.Second)
	if _, err := s.Close(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	same(t, "canceled while queued", mustGet(t, s, q.ExecID), q)
}

func closingGivesTheKeyUp(t *testing.T, f Fixture) {
	s := f.Audit()
	keyed := func() audit.Record { return in(record(), func(r *audit.Record) { r.IdempotencyKey = "again" }) }
	r := keyed()
	mustOpen(t, s, r)
	want := in(ended(r), func(r *audit.Record) { r.Status, r.IdempotencyKey = audit.Errored, "" })
	if _, err := s.Close(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	same(t, "row", mustGet(t, s, r.ExecID), want)
	events := mustEvents(t, s, r.ExecID)
	same(t, "created", inEvent(t, events[0]), r)
	mustOpen(t, s, keyed())
}

func closingTwice(t *testing.T, f Fixture) {
	s := f.Audit()
	r := record()
	mustOpen(t, s, r)
	first := ended(r)
	for range 3 {
		if _, err := s.Close(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	other := in(first, func(r *audit.Record) {
		r.Status, r.EndedAt, r.Detail = audit.Timeout, r.EndedAt.Add(time.Second), "later"
	})
	lost := in(first, func(r *audit.Record) { r.Status, r.Detail = audit.Lost, "lost" })
	for _, later := range []audit.Record{other, lost} {
		if _, err := s.Close(t.Context(), later); err != nil {
			t.Fatalf("another ending is no error, it is too late: %v", err)
		}
	}
	same(t, "the first ending", mustGet(t, s, r.ExecID), first)
	if got := len(mustEvents(t, s, r.ExecID)); got != 3 {
		t.Errorf("%d events", got)
	}

	rejected := in(ended(record()), func(r *audit.Record) { r.Status = audit.Rejected })
	mustOpen(t, s, rejected)
	if _, err := s.Close(t.Context(), ended(rejected)); err != nil {
		t.Fatal(err)
	}
	same(t, "final at birth", mustGet(t, s, rejected.ExecID), rejected)
}

func closingRace(t *testing.T, f Fixture) {
	s := f.Audit()
	for range 5 {
		r := record()
		mustOpen(t, s, r)
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				mine := in(ended(r), func(r *audit.Record) { r.Detail, r.StdoutBytes = fmt.Sprint("ending ", i), int64(i) })
				if _, err := s.Close(t.Context(), mine); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		events := mustEvents(t, s, r.ExecID)
		if len(events) != 3 {
			t.Fatalf("%d events", len(events))
		}
		got := mustGet(t, s, r.ExecID)
		if got.Detail != fmt.Sprint("ending ", got.StdoutBytes) {
			t.Errorf("two endings are mixed: %q with %d bytes", got.Detail, got.StdoutBytes)
		}
		same(t, "event and row", inEvent(t, events[2]), got)
	}
}

func correction(t *testing.T, f Fixture) {
	s := f.Audit()
	for _, backend := range []string{"docker", audit.BackendRemote} {
		r := in(record(), func(r *audit.Record) { r.Backend = backend })
		mustOpen(t, s, r)
		if lost, err := s.LoseOpen(t.Context(), "n1", nil); err != nil || !slices.Equal(lost, []string{r.ExecID}) {
			t.Fatalf("LoseOpen = %v, %v", lost, err)
		}
		asLost := mustGet(t, s, r.ExecID)
		for _, late := range []audit.Record{
			in(ended(r), func(r *audit.Record) { r.Status = audit.Lost }),
			in(ended(r), func(r *audit.Record) { r.NodeID = "n2" }),
		} {
			if status, err := s.Close(t.Context(), late); err != nil || status != audit.Lost {
				t.Fatal(status, err)
			}
		}
		same(t, "lost twice, and by another node", mustGet(t, s, r.ExecID), asLost)

		want := ended(r)
		for range 2 {
			if status, err := s.Close(t.Context(), want); err != nil || status != want.Status {
				t.Fatal(status, err)
			}
		}
		same(t, "corrected", mustGet(t, s, r.ExecID), want)
		events := mustEvents(t, s, r.ExecID)
		if got := kinds(t, s, r.ExecID); !slices.Equal(got, []audit.EventKind{
			audit.EventCreated, audit.EventStarted, audit.EventEnded, audit.EventCorrected,
		}) {
			t.Fatalf("events %v", got)
		}
		same(t, "the lost state stays visible", inEvent(t, events[2]), asLost)
		same(t, "corrected event", inEvent(t, events[3]), want)
	}
}

func closingRefused(t *testing.T, f Fixture) {
	s := f.Audit()
	r := record()
	mustOpen(t, s, r)
	for name, c := range map[string]struct {
		change func(*audit.Record)
		code   fault.Code
	}{
		"still running": {func(r *audit.Record) { r.Status = audit.Running }, fault.Internal},
		"odd status":    {func(r *audit.Record) { r.Status = "done" }, fault.Internal},
		"no end":        {func(r *audit.Record) { r.EndedAt = time.Time{} }, fault.Internal},
		"unknown":       {func(r *audit.Record) { r.ExecID = newID() }, fault.UnknownExec},
	} {
		if _, err := s.Close(t.Context(), in(ended(r), c.change)); !fault.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	same(t, "untouched", mustGet(t, s, r.ExecID), r)
}

func losing(t *testing.T, f Fixture) {
	s := f.Audit()
	running := record()
	waiting := in(queued(), func(r *audit.Record) { r.NodeID = "n1"; r.CreatedAt = base.Add(-time.Hour) })
	spooled := record()
	others := in(record(), func(r *audit.Record) { r.NodeID = "n2" })
	done := in(ended(record()), func(r *audit.Record) {})
	for _, r := range []audit.Record{running, waiting, spooled, others, done} {
		mustOpen(t, s, r)
	}
	lost, err := s.LoseOpen(t.Context(), "n1", []string{spooled.ExecID, "unknown"})
	if err != nil || !slices.Equal(lost, []string{waiting.ExecID, running.ExecID}) {
		t.Fatalf("LoseOpen = %v, %v; want %v", lost, err, []string{waiting.ExecID, running.ExecID})
	}
	for _, r := range []audit.Record{spooled, others, done} {
		same(t, "left alone", mustGet(t, s, r.ExecID), r)
	}
	for _, r := range []audit.Record{running, waiting} {
		got := mustGet(t, s, r.ExecID)
		if got.Status != audit.Lost || got.ErrorReason != audit.NodeLost || got.Detail == "" || got.ExitCode != nil ||
			got.EndedAt.IsZero() {
			t.Errorf("lost: %+v", got)
		}
		duration := int64(0)
		if !got.StartedAt.IsZero() {
			duration = got.EndedAt.Sub(got.StartedAt).Milliseconds()
		}
		if got.DurationMS != duration {
			t.Errorf("duration %d, want %d", got.DurationMS, duration)
		}
		events := mustEvents(t, s, r.ExecID)
		last := events[len(events)-1]
		if last.Kind != audit.EventEnded {
			t.Errorf("last event %s", last.Kind)
		}
		same(t, "ended event", inEvent(t, last), got)
	}
	if again, err := s.LoseOpen(t.Context(), "n1", []string{spooled.ExecID}); err != nil || again == nil || len(again) != 0 {
		t.Errorf("again: %#v, %v", again, err)
	}
	if rest, err := s.LoseOpen(t.Context(), "n1", nil); err != nil || !slices.Equal(rest, []string{spooled.ExecID}) {
		t.Errorf("without exceptions: %v, %v", rest, err)
	}
}

func losingRace(t *testing.T, f Fixture) {
	s := f.Audit()
	for range 10 {
		r := record()
		mustOpen(t, s, r)
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := s.LoseOpen(t.Context(), r.NodeID, nil); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if _, err := s.Close(t.Context(), ended(r)); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		got := mustGet(t, s, r.ExecID)
		same(t, "the result", got, ended(r))
		all := kinds(t, s, r.ExecID) // the result came first, or it corrects the loss
		if last := all[len(all)-1]; len(all) == 3 && last != audit.EventEnded || len(all) == 4 && last != audit.EventCorrected ||
			len(all) > 4 {
			t.Fatalf("events %v", all)
		}
		same(t, "the last event", inEvent(t, mustEvents(t, s, r.ExecID)[len(all)-1]), got)
	}
}

func losingWithSkew(t *testing.T, f Fixture) {
	s := f.Audit()
	future := time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)
	r := in(record(), func(r *audit.Record) { r.CreatedAt, r.StartedAt = future, future.Add(time.Second) })
	mustOpen(t, s, r)
	if _, err := s.LoseOpen(t.Context(), r.NodeID, nil); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, s, r.ExecID); got.EndedAt != r.StartedAt || got.DurationMS != 0 {
		t.Errorf("ended %v after %d ms, started %v", got.EndedAt, got.DurationMS, got.StartedAt)
	}
}

func unknownExec(t *testing.T, f Fixture) {
	s := f.Audit()
	_, err := s.Get(t.Context(), "0195-none")
	if !fault.Is(err, fault.UnknownExec) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.Status(t.Context(), "0195-none"); !fault.Is(err, fault.UnknownExec) {
		t.Errorf("Status: %v", err)
	}
	if ok, err := s.Start(t.Context(), record()); ok || err != nil {
		t.Errorf("Start: %v, %v", ok, err)
	}
}
