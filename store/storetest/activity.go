package storetest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"secbox/audit"
)

func hours(t *testing.T, f Fixture) {
	s := f.Audit()
	hour := base.UTC().Truncate(time.Hour)
	add := func(at time.Time, token string, status audit.Status, reason audit.Reason, kind audit.Kind) {
		mustOpen(t, s, in(record(), func(r *audit.Record) {
			r.CreatedAt, r.RequestedBy, r.Status, r.ErrorReason, r.Kind = at, token, status, reason, kind
		}))
	}
	add(hour, "t1", audit.Succeeded, "", "")
	add(hour.Add(time.Hour-time.Microsecond), "t1", audit.Succeeded, "", "")
	add(hour.Add(time.Minute), "t2 ü", audit.Rejected, audit.PolicyDenied, "")
	add(hour.Add(time.Minute), "t1", audit.Succeeded, "", audit.KindChange)
	add(hour.Add(time.Hour), "t1", audit.Timeout, audit.ReasonTimeout, "")
	first := audit.HourCount{Hour: hour, Status: audit.Succeeded, Execs: 2}
	refused := audit.HourCount{Hour: hour, Status: audit.Rejected, ErrorReason: audit.PolicyDenied, Execs: 1}
	later := audit.HourCount{Hour: hour.Add(time.Hour), Status: audit.Timeout, ErrorReason: audit.ReasonTimeout, Execs: 1}
	for _, c := range []struct {
		name         string
		since, until time.Time
		token        string
		want         []audit.HourCount
	}{
		{"all", hour, hour.Add(5 * time.Hour), "", []audit.HourCount{refused, first, later}},
		{"until is exclusive", hour, hour.Add(time.Hour), "", []audit.HourCount{refused, first}},
		{"of a token", hour, hour.Add(5 * time.Hour), "t2 ü", []audit.HourCount{refused}},
		{"of another token", hour, hour.Add(5 * time.Hour), "none", nil},
		{"the wrong way round", hour.Add(time.Hour), hour, "", nil},
	} {
		var got []audit.HourCount
		err := s.Hours(t.Context(), c.since, c.until, c.token, func(h audit.HourCount) {
			h.Hour = h.Hour.UTC()
			got = append(got, h)
		})
		slices.SortFunc(got, func(a, b audit.HourCount) int {
			return cmp.Or(a.Hour.Compare(b.Hour), cmp.Compare(a.Status, b.Status))
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

func slowest(t *testing.T, f Fixture) {
	s := f.Audit()
	add := func(after time.Duration, token string, ms int64) string {
		r := in(record(), func(r *audit.Record) {
			r.CreatedAt, r.RequestedBy, r.DurationMS, r.Status, r.SkillID = base.Add(after), token, ms, audit.Succeeded, "a.b"
		})
		mustOpen(t, s, r)
		return r.ExecID
	}
	oldest := add(0, "t1", 900)
	middle := add(time.Second, "t2", 5)
	newest := add(2*time.Second, "t1", 70)
	for _, c := range []struct {
		name        string
		token       string
		most, limit int
		want        []string
	}{
		{"all", "", 10, 5, []string{oldest, newest, middle}},
		{"a limit", "", 10, 1, []string{oldest}},
		{"of the newest", "", 2, 5, []string{newest, middle}},
		{"of a token", "t2", 10, 5, []string{middle}},
	} {
		rows, err := s.Slowest(t.Context(), base, base.Add(time.Hour), c.token, c.most, c.limit)
		var got []string
		for _, r := range rows {
			got = append(got, r.ExecID)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
		}
	}
	rows, err := s.Slowest(t.Context(), base, base.Add(time.Hour), "t2", 1, 1)
	if err != nil || len(rows) != 1 || !rows[0].CreatedAt.Equal(base.Add(time.Second)) || rows[0].Status != audit.Succeeded ||
		rows[0].SkillID != "a.b" || rows[0].DurationMS != 5 {
		t.Errorf("%+v, %v", rows, err)
	}
}
