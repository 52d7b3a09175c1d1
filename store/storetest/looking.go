package storetest

import (
	"slices"
	"testing"

	"secbox/audit"
	"secbox/store/storetest/planprobe"
)

// looking: lists with conditions that few or no records have together end after a bounded number of
// them, and have all records in the end.
func looking(t *testing.T, f Fixture) {
	const n = 3000
	if err := planprobe.Fill(t.Context(), f.Database, n); err != nil {
		t.Fatal(err)
	}
	all := slices.Collect(planprobe.Execs(n))
	slices.Reverse(all)
	s, one := f.Audit(), all[n/2]
	for name, c := range map[string]struct {
		filter audit.Filter
		wants  func(audit.Record) bool
	}{
		"two conditions": {
			audit.Filter{ProjectID: one.ProjectID, AgentID: one.AgentID},
			func(r audit.Record) bool { return r.ProjectID == one.ProjectID && r.AgentID == one.AgentID },
		},
		"a status and a token": {
			audit.Filter{Statuses: []audit.Status{audit.Timeout}, RequestedBy: one.RequestedBy},
			func(r audit.Record) bool { return r.Status == audit.Timeout && r.RequestedBy == one.RequestedBy },
		},
		"statuses and a token": {
			audit.Filter{Statuses: []audit.Status{audit.Timeout, audit.Succeeded}, RequestedBy: one.RequestedBy, Kind: audit.KindChange},
			func(r audit.Record) bool {
				return r.Status != audit.Failed && r.RequestedBy == one.RequestedBy && r.Kind == audit.KindChange
			},
		},
		"what excludes each other": {
			audit.Filter{Statuses: []audit.Status{audit.Succeeded}, ExitCodeNot: new(0), Kind: audit.KindExec},
			func(audit.Record) bool { return false },
		},
		"an exit code": {
			audit.Filter{ExitCodeNot: new(1), Kind: audit.KindExec},
			func(r audit.Record) bool { return *r.ExitCode != 1 && r.Kind != audit.KindChange },
		},
		"no condition with an index": {
			audit.Filter{Backend: audit.BackendDocker, Kind: audit.KindExec, Users: []string{one.UserID}},
			func(r audit.Record) bool {
				return r.Backend == audit.BackendDocker && r.UserID == one.UserID && r.Kind != audit.KindChange
			},
		},
		"kept inputs of a user": {
			audit.Filter{InputsKept: true, UserID: one.UserID},
			func(r audit.Record) bool { return r.InputsKept == audit.Kept && r.UserID == one.UserID },
		},
	} {
		var want []string
		for _, r := range all {
			if c.wants(r) {
				want = append(want, r.ExecID)
			}
		}
		for _, limit := range []int{7, 50} {
			if got := pages(t, s, c.filter, limit); !slices.Equal(got, want) {
				t.Errorf("%s, pages of %d: %d records, want %d", name, limit, len(got), len(want))
			}
		}
	}

	// A page of one record looks at 200.
	none := audit.Filter{Backend: audit.BackendDocker, Users: []string{"none"}}
	page, next, err := s.List(t.Context(), none, nil, 1)
	if err != nil || len(page) > 0 || next == nil || !next.CreatedAt.Equal(all[200].CreatedAt) {
		t.Errorf("the first page goes on after %v: %v", next, err)
	}
	none.OldestFirst = true
	page, next, err = s.List(t.Context(), none, &audit.Cursor{CreatedAt: one.CreatedAt, ExecID: one.ExecID}, 1)
	if err != nil || len(page) > 0 || next == nil || !next.CreatedAt.Equal(all[n/2-200].CreatedAt) {
		t.Errorf("oldest first, it goes on after %v: %v", next, err)
	}

	commands := audit.Filter{OnlyCommands: true, Kind: audit.KindExec}
	rows, _, err := s.List(t.Context(), commands, nil, 1)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	newest := all[slices.IndexFunc(all, func(r audit.Record) bool { return r.Kind != audit.KindChange })]
	if got := rows[0]; got.ExecID != newest.ExecID || got.Cmd != newest.Cmd || !slices.Equal(got.Args, newest.Args) ||
		got.CreatedAt.IsZero() || got.ProjectID != newest.ProjectID || got.UserID != newest.UserID || got.TaskID != newest.TaskID ||
		got.ErrorReason != newest.ErrorReason || got.Detail != newest.Detail || got.Status != "" || got.PolicySnapshot != nil {
		t.Errorf("only commands: %+v", got)
	}
}
