package admin_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/internal/quota"
)

// TestLimitsOfTime: after the burst, a client gets a place each part of a minute, and Retry-After
// says when.
func TestLimitsOfTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := admin.NewLimits()
	l.Now = func() time.Time { return now }
	by := admin.Actor{Type: admin.ByToken, ID: "alice"}
	permitted := func(kind admin.Kind) (n int, wait time.Duration) {
		for n < 10_000 {
			if err := l.Permit(by, kind); err != nil {
				if !fault.Is(err, fault.TooManyChanges) {
					t.Fatal(err)
				}
				return n, fault.From(err).RetryAfter
			}
			n++
		}
		return n, 0
	}
	for kind, want := range map[admin.Kind]quota.Rate{
		admin.SignedIn: {Burst: 60, PerMinute: 10}, admin.NodeDrained: {Burst: 60, PerMinute: 10}, admin.BaselinePromoted: {Burst: 600, PerMinute: 60},
		admin.RegistryChanged: {Burst: 600, PerMinute: 60},
	} {
		n, wait := permitted(kind)
		if n != want.Burst || wait != time.Duration(float64(time.Minute)/want.PerMinute) {
			t.Errorf("%s: %d at once, then wait %v", kind, n, wait)
		}
		now = now.Add(wait - time.Nanosecond)
		if n, _ := permitted(kind); n != 0 {
			t.Errorf("%s: %d before Retry-After", kind, n)
		}
		now = now.Add(time.Microsecond)
		if n, _ := permitted(kind); n != 1 {
			t.Errorf("%s: %d after Retry-After", kind, n)
		}
		now = now.Add(time.Hour)
		if n, _ := permitted(kind); n != want.Burst {
			t.Errorf("%s: %d after an hour", kind, n)
		}
	}
}

// TestWhoIsLimited checks that every actor but commands and nodes is limited, for every kind but
// the ends of changes.
func TestWhoIsLimited(t *testing.T) {
	t.Parallel()
	l := admin.NewLimits()
	for _, kind := range append(admin.Kinds(), admin.RegistryChanged) {
		for by, want := range map[admin.ActorType]bool{
			admin.ByToken: true, admin.ByPerson: true, admin.ByUnknown: true, admin.ByCommand: false,
			admin.ByNode: false,
		} {
			limited := false
			for range 2000 {
				limited = limited || !l.Take(admin.Actor{Type: by, ID: string(by)}, kind)
			}
			switch kind {
			case admin.TokenRevoked, admin.SignedOut, admin.BaselineDeleted, admin.HoldRemoved, admin.NodeForgotten,
				admin.ImageRemoved: // as many as there are to end
				want = false
			}
			if limited != want {
				t.Errorf("%s by a %s: limited %v", kind, by, limited)
			}
		}
	}
}

// refusing is a database that does not answer.
type refusing struct{ admin.Store }

func (refusing) Record(context.Context, admin.Event) error {
	return fault.New(fault.DatabaseUnavailable, "the database does not answer")
}

// recording keeps events.
type recording struct {
	admin.Store
	events []admin.Event
}

func (r *recording) Record(_ context.Context, e admin.Event) error {
	r.events = append(r.events, e)
	return nil
}

// TestCountIsKept: a count that the database refuses is written later, and when the node ends.
func TestCountIsKept(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	l := admin.NewLimits()
	l.Now = func() time.Time { return now }
	for range quota.Default.Burst + 5 {
		l.Take(admin.Actor{Type: admin.ByToken, ID: "alice"}, admin.SignedIn)
	}
	quiet := slog.New(slog.DiscardHandler)
	l.Count(t.Context(), refusing{}, quiet)
	ctx, end := context.WithCancel(t.Context())
	end()
	var kept recording
	l.Run(ctx, &kept, quiet)
	if len(kept.events) != 1 || kept.events[0].Kind != admin.ChangesRefused || kept.events[0].Subject != "alice" ||
		kept.events[0].Data != `{"count":5,"first":"2026-11-28T12:00:00Z","kind":"signed_in","last":"2026-11-28T12:00:00Z"}` {
		t.Errorf("%+v", kept.events)
	}
}
