package audit_test

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"secbox/audit"
)

func TestStats(t *testing.T) {
	t.Parallel()
	l, err := audit.NewLog(audit.Config{
		Store: openDatabase(t, "", t.TempDir()).Audit(), Dir: filepath.Join(t.TempDir(), "spool"), Logger: discard,
		StatsRows: 22,
	})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now().UTC().Truncate(time.Microsecond)
	at := 0
	add := func(status audit.Status, reason audit.Reason, token, skill, backend string, ms int64) {
		r := running()
		r.CreatedAt, r.Status, r.ErrorReason, r.RequestedBy, r.SkillID, r.Backend, r.DurationMS = start.Add(time.Duration(at)*time.Second), status, reason,
			token, skill, backend, ms
		at++
		if _, err := l.Open(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	add(audit.Rejected, audit.PolicyDenied, "t1", "", "", 0)
	for ms := range 20 {
		add(audit.Succeeded, "", "t1", "a.b", "docker", int64(20-ms))
	}
	add(audit.Timeout, audit.ReasonTimeout, "t2", "", "remote", 60_000)

	s, err := l.Stats(t.Context(), start, start.Add(time.Hour), "")
	if err != nil || !s.Complete || s.Counted != 22 || s.Ended != 21 || s.P50MS != 11 || s.P95MS != 20 ||
		!maps.Equal(s.ByStatus, map[audit.Status]int{audit.Rejected: 1, audit.Succeeded: 20, audit.Timeout: 1}) ||
		!maps.Equal(s.ByReason, map[audit.Reason]int{audit.PolicyDenied: 1, audit.ReasonTimeout: 1}) ||
		!maps.Equal(s.ByToken, map[string]int{"t1": 21, "t2": 1}) || !maps.Equal(s.BySkill, map[string]int{"a.b": 20}) ||
		!maps.Equal(s.ByBackend, map[string]int{"docker": 20, "remote": 1}) {
		t.Errorf("%+v, %v", s, err)
	}

	add(audit.Running, "", "t2", "", "docker", 0) // one more than the bound: the oldest is left out
	s, err = l.Stats(t.Context(), start, start.Add(time.Hour), "")
	if err != nil || s.Complete || s.Counted != 22 || s.Ended != 21 || s.ByStatus[audit.Rejected] != 0 || s.ByToken["t1"] != 20 {
		t.Errorf("beyond the bound: %+v, %v", s, err)
	}
	s, err = l.Stats(t.Context(), start, start.Add(time.Hour), "t2")
	if err != nil || s.Complete || s.Counted != 2 || s.P50MS != 60_000 || !maps.Equal(s.ByToken, map[string]int{"t2": 2}) {
		t.Errorf("one token: %+v, %v", s, err)
	}
	if s, err = l.Stats(t.Context(), start.Add(time.Hour), start.Add(2*time.Hour), ""); err != nil || !s.Complete || s.Counted+s.Ended != 0 {
		t.Errorf("nothing: %+v, %v", s, err)
	}
}
