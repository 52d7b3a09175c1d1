package storetest

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"secbox/audit"
	"secbox/cluster/nodes"
	"secbox/fault"
	"secbox/skills"
)

func immutableEvents(t *testing.T, f Fixture) {
	s := f.Audit()
	r := record()
	mustOpen(t, s, r)
	before := mustEvents(t, s, r.ExecID)
	if count, err := f.SQL("SELECT count(*) FROM sandbox_exec_events"); err != nil || count != "2" {
		t.Fatalf("the administrator's way in does not work: %q, %v", count, err)
	}
	statements := []string{
		"UPDATE sandbox_exec_events SET kind = 'ended'",
		"UPDATE sandbox_exec_events SET data = '{}' WHERE seq = 1",
		"DELETE FROM sandbox_exec_events",
		"DELETE FROM sandbox_exec_events WHERE exec_id = '" + r.ExecID + "'",
	}
	switch f.Kind() {
	case "postgres":
		statements = append(statements, "TRUNCATE sandbox_exec_events", "TRUNCATE sandbox_exec_events CASCADE")
	case "sqlite":
		statements = append(statements,
			"INSERT OR REPLACE INTO sandbox_exec_events (seq, exec_id, kind, at, node_id, data) VALUES (1, 'x', 'ended', 0, '', '{}')",
			"UPDATE OR REPLACE sandbox_exec_events SET kind = 'x'")
	}
	for _, statement := range statements {
		if _, err := f.SQL(statement); err == nil {
			t.Errorf("%s was not refused", statement)
		}
	}
	after := mustEvents(t, s, r.ExecID)
	if len(before) != 2 || len(after) != 2 || string(before[0].Data) != string(after[0].Data) || before[1].Kind != after[1].Kind {
		t.Errorf("events changed:\n%v\n%v", before, after)
	}
}

func installationID(t *testing.T, f Fixture) {
	id, err := f.Audit().InstallationID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id) {
		t.Errorf("%q is no random UUID", id)
	}
	again, err := f.Reopen(t).Audit().InstallationID(t.Context())
	if err != nil || again != id {
		t.Errorf("opened again it is %q, %v; it was %q", again, err, id)
	}
	second := "INSERT INTO installation (only_row, id) VALUES (2, 'x')"
	if f.Kind() == "postgres" {
		second = "INSERT INTO installation (only_row, id) VALUES (false, 'x')"
	}
	if _, err := f.SQL(second); err == nil {
		t.Error("a second id was taken")
	}
}

func ping(t *testing.T, f Fixture) {
	s := f.Audit()
	before, err := s.InstallationID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := s.InstallationID(t.Context()); err != nil || after != before {
		t.Errorf("%q became %q, %v", before, after, err)
	}
	mustOpen(t, s, record()) // the probe holds no lock
}

func canceled(t *testing.T, f Fixture) {
	s := f.Audit()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := record()
	for name, call := range map[string]func() error{
		"Open":     func() error { _, err := s.Open(ctx, r); return err },
		"Close":    func() error { _, err := s.Close(ctx, ended(r)); return err },
		"Get":      func() error { _, err := s.Get(ctx, r.ExecID); return err },
		"List":     func() error { _, _, err := s.List(ctx, audit.Filter{}, nil, 1); return err },
		"Outlines": func() error { return s.Outlines(ctx, base, base, 1, func(audit.Outline) {}) },
		"Hours":    func() error { return s.Hours(ctx, base, base, "", func(audit.HourCount) {}) },
		"Ping":     func() error { return s.Ping(ctx) },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	late, cancelLate := context.WithTimeout(t.Context(), -time.Second)
	defer cancelLate()
	if _, err := s.Close(late, ended(r)); !fault.Is(err, fault.DatabaseUnavailable) {
		t.Errorf("out of time: %v", err)
	}
	mustOpen(t, s, r)
}

func closed(t *testing.T, f Fixture) {
	db := f.Reopen(t)
	for range 2 {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := record()
	for name, call := range map[string]func() error{
		"Open":     func() error { _, err := db.Audit().Open(t.Context(), r); return err },
		"Start":    func() error { _, err := db.Audit().Start(t.Context(), r); return err },
		"Close":    func() error { _, err := db.Audit().Close(t.Context(), ended(r)); return err },
		"Get":      func() error { _, err := db.Audit().Get(t.Context(), r.ExecID); return err },
		"List":     func() error { _, _, err := db.Audit().List(t.Context(), audit.Filter{}, nil, 1); return err },
		"Outlines": func() error { return db.Audit().Outlines(t.Context(), base, base, 1, func(audit.Outline) {}) },
		"Hours":    func() error { return db.Audit().Hours(t.Context(), base, base, "", func(audit.HourCount) {}) },
		"Events":   func() error { _, err := db.Audit().Events(t.Context(), r.ExecID); return err },
		"LoseOpen": func() error { _, err := db.Audit().LoseOpen(t.Context(), "n1", nil); return err },
		"Join": func() error {
			_, err := db.Nodes().Join(t.Context(), nodes.Node{NodeID: "n", StartedAt: base}, time.Minute)
			return err
		},
		"Ping":    func() error { return db.Audit().Ping(t.Context()) },
		"Tokens":  func() error { _, err := db.Tokens().List(t.Context()); return err },
		"Names":   func() error { _, err := db.Tokens().Names(t.Context(), []string{"x"}); return err },
		"Skills":  func() error { _, err := db.Skills().List(t.Context(), "a", "", "", 1); return err },
		"Set":     func() error { _, err := db.Skills().Set(t.Context(), baseline("s"), nil, version(1)); return err },
		"Remove":  func() error { return db.Skills().Remove(t.Context(), baseline("s"), version(1)) },
		"Pin":     func() error { _, err := db.Skills().Pin(t.Context(), "a", "u"); return err },
		"Digests": func() error { _, err := db.Skills().Digests(t.Context(), "a", skills.Version{}, 1); return err },
	} {
		if err := call(); !fault.Is(err, fault.DatabaseUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	mustOpen(t, f.Audit(), r) // the other one is not touched
}
