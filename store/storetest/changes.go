package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/audit"
)

// changes: the events of all execs come once and in order, from any place on, in pages that are
// bounded.
func changes(t *testing.T, f Fixture) {
	s := f.Audit()
	read := func(after int64, limit int) audit.Changes {
		t.Helper()
		c, err := s.Changes(t.Context(), after, limit)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := read(0, 0); c.Newest != 0 || len(c.Events) != 0 || c.Oldest > c.Next || (c.Next > 0) != (f.Kind() == "postgres") {
		t.Errorf("an empty database has %+v", c)
	}
	waits, runs := in(record(), func(r *audit.Record) { r.Status = audit.Queued }), record()
	mustOpen(t, s, waits)
	mustOpen(t, s, runs)
	if started, err := s.Start(t.Context(), waits); err != nil || !started {
		t.Fatal(started, err)
	}
	runs.Status, runs.EndedAt = audit.Succeeded, base.Add(time.Second)
	if _, err := s.Close(t.Context(), runs); err != nil {
		t.Fatal(err)
	}
	want := []string{
		waits.ExecID + " created queued", runs.ExecID + " created running", runs.ExecID + " started running",
		waits.ExecID + " started running", runs.ExecID + " ended succeeded",
	}
	for _, limit := range []int{1, 2, 5, 100} {
		var got []string
		at := int64(0)
		for {
			c := read(at, limit)
			if len(c.Events) > limit {
				t.Fatalf("%d events, at most %d were asked for", len(c.Events), limit)
			}
			if len(c.Events) == 0 {
				break
			}
			for _, e := range c.Events {
				if e.Seq <= at || e.At.IsZero() {
					t.Errorf("%+v comes after %d", e, at)
				}
				at = e.Seq
				_, rest, _ := strings.Cut(string(e.Data), `"status":"`)
				status, _, _ := strings.Cut(rest, `"`)
				got = append(got, e.ExecID+" "+string(e.Kind)+" "+status)
			}
			if c.Newest != at {
				t.Errorf("the newest of a page is %d, want %d", c.Newest, at)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %q", limit, got)
		}
		if newest := read(0, 0).Newest; newest != at {
			t.Errorf("the newest is %d, want %d", newest, at)
		}
	}
	large := in(record(), func(r *audit.Record) { r.PolicySnapshot = []byte(`{"x":"` + strings.Repeat("y", 1<<20) + `"}`) })
	at := read(0, 0).Newest
	for range 4 {
		large.ExecID = record().ExecID
		mustOpen(t, s, large)
	}
	if c := read(at, 100); len(c.Events) < 1 || len(c.Events) > 6 {
		t.Errorf("a page of large events has %d of 8", len(c.Events))
	}
}
