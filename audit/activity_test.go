package audit_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"secbox/audit"
)

// hourStore has one exec in each hour, and records what was asked.
type hourStore struct {
	audit.Store
	asked []int // hours of each query
}

func (s *hourStore) Hours(_ context.Context, since, until time.Time, _ string, each func(audit.HourCount)) error {
	s.asked = append(s.asked, int(until.Sub(since)/time.Hour))
	for h := since; h.Before(until); h = h.Add(time.Hour) {
		each(audit.HourCount{Hour: h, Status: audit.Succeeded, Execs: 1})
	}
	return nil
}

// TestActivityAsksForNewestHours checks that hours that are over are not asked at each call, and that all are asked again in the end.
func TestActivityAsksForNewestHours(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 10, 30, 0, 0, time.UTC)
	store := &hourStore{}
	a := audit.NewActivity(store, func() time.Time { return now })
	for _, step := range []struct {
		name  string
		later time.Duration
		token string
		asked []int
	}{
		{"first", 0, "", []int{24, 24, 2}},
		{"at once", 0, "", nil},
		{"later", 5 * time.Second, "", []int{2}},
		{"expired", 10 * time.Minute, "", []int{24, 2}},
		{"the others", 10 * time.Second, "", []int{2, 24}},
		{"a token", 0, "t", []int{24, 24, 2}},
		{"a new hour", 20 * time.Minute, "", nil},
	} {
		now = now.Add(step.later)
		store.asked = nil
		counts, err := a.Hours(t.Context(), 50, step.token)
		if err != nil || len(counts) != 50 || !counts[0].Hour.Equal(now.Truncate(time.Hour)) {
			t.Fatalf("%s: %d counts, %v", step.name, len(counts), err)
		}
		if step.asked != nil && !slices.Equal(store.asked, step.asked) {
			t.Errorf("%s: asked for %v hours, want %v", step.name, store.asked, step.asked)
		}
	}
	for i := range 100 { // many tokens
		if _, err := a.Hours(t.Context(), 1, string(rune('a'+i))); err != nil {
			t.Fatal(err)
		}
	}
	store.asked = nil
	if _, err := a.Hours(t.Context(), 50, ""); err != nil || len(store.asked) != 3 {
		t.Errorf("what was not used for longest is still kept: %v, %v", store.asked, err)
	}
}
