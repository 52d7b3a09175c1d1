package console_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"secbox/api/content"
	"secbox/api/visible"
	"secbox/audit/admin"
	"secbox/audit/export"
	"secbox/audit/report"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/fault"
	"secbox/health"
)

// fakeAudit is the audit log of a fakeApp.
type fakeAudit struct {
	state      translog.State
	lost       error
	checkpoint string
	events     []admin.Event    // newest first
	holds      []retention.Hold // oldest first
	holdErr    error
	report     retention.Report
	exports    []export.Query
	unproven   *report.Unproven // nil: no report can be made
}

func (f *fakeApp) State(context.Context) (translog.State, error) { return f.audit.state, f.audit.lost }

func (f *fakeApp) Checkpoint(context.Context) (string, error) {
	if f.audit.state.Size == 0 {
		return "", fault.New(fault.NotLogged, "the transparency log is empty yet")
	}
	return f.audit.checkpoint, nil
}

func (f *fakeApp) ProveAdmin(_ context.Context, seq int64) ([]byte, error) {
	if !slices.ContainsFunc(f.audit.events, func(e admin.Event) bool { return e.Seq == seq }) {
		return nil, fault.New(fault.UnknownEvent, "there is no event %d", seq)
	}
	return []byte("{}"), nil
}

func (d openDoor) Export(w http.ResponseWriter, r *http.Request, q export.Query) error {
	return content.ServeStream(w, r, q.Format.ContentType(), q.Format.FileName(), func() error {
		if q.Filter.ProjectID == "fails" {
			return fault.New(fault.ServerBusy, "the database is busy; try again in a second")
		}
		d.app.audit.exports = append(d.app.audit.exports, q)
		_, err := io.WriteString(w, "{}\n")
		return err
	})
}

type fakeAdminEvents struct{ *fakeApp }

func (f fakeAdminEvents) List(_ context.Context, filter admin.Filter, after *admin.Cursor, limit int) ([]admin.Event, error) {
	var out []admin.Event
	for _, e := range f.audit.events {
		if (filter.Kind == "" || e.Kind == filter.Kind) && (filter.Actor == "" || e.Actor.ID == filter.Actor) &&
			(filter.ActorName == "" || e.Actor.Name == filter.ActorName) && (filter.Subject == "" ||
			e.Subject == filter.Subject) &&
			(after == nil || e.Seq < after.Seq) && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, nil
}

// holds are the pages' own code over a list in memory.
func (f *fakeApp) holds() visible.Holds { return visible.Holds{Store: fakeHoldStore{f}} }

type fakeHoldStore struct{ *fakeApp }

func (f fakeHoldStore) Holds(_ context.Context, after retention.HoldCursor, limit int) ([]retention.Hold, error) {
	rest := slices.DeleteFunc(slices.Clone(f.audit.holds), func(h retention.Hold) bool {
		return cmp.Or(h.AddedAt.Compare(after.AddedAt), strings.Compare(h.ID, after.ID)) <= 0
	})
	return rest[:min(limit, len(rest))], nil
}

func (f fakeHoldStore) AddHold(_ context.Context, h retention.Hold) (retention.Hold, error) {
	if f.audit.holdErr != nil {
		return retention.Hold{}, f.audit.holdErr
	}
	if slices.ContainsFunc(f.audit.events, func(e admin.Event) bool { return e.Kind == admin.HoldAdded && e.Subject == h.ID }) {
		return retention.Hold{}, errors.New("UNIQUE constraint failed: audit_holds.id")
	}
	h.AddedAt = clock
	f.audit.holds = append(f.audit.holds, h)
	f.audit.events = slices.Insert(f.audit.events, 0, event(100+len(f.audit.events), admin.HoldAdded, h.ID, "{}"))
	return h, nil
}

// HoldsOn returns the holds on execs and projects.
func (f fakeHoldStore) HoldsOn(_ context.Context, exec retention.HoldSubject, limit int) ([]retention.Hold, error) {
	on := slices.DeleteFunc(slices.Clone(f.audit.holds), func(h retention.Hold) bool {
		return (h.Kind != retention.HoldExec || h.Value != exec.ExecID) && (h.Kind != retention.HoldProject || h.Value != exec.ProjectID)
	})
	return on[:min(limit, len(on))], nil
}

// Covered tells that each hold names as many execs as there are.
func (f fakeHoldStore) Covered(_ context.Context, holds []retention.Hold, most int) ([]int, error) {
	return slices.Repeat([]int{min(len(f.records), most)}, len(holds)), nil
}

func (f fakeHoldStore) RemoveHold(_ context.Context, id, _ string) (retention.Hold, error) {
	for i, h := range f.audit.holds {
		if h.ID == id {
			f.audit.holds = slices.Delete(f.audit.holds, i, i+1)
			return h, nil
		}
	}
	return retention.Hold{}, fault.New(fault.UnknownHold, "there is no hold %q, or it was removed before", id)
}

func (d openDoor) ExportReport(w http.ResponseWriter, r *http.Request, span report.Span) error {
	return content.ServeStream(w, r, "application/x-ndjson", "audit-report.jsonl", func() error {
		_, err := io.WriteString(w, "since "+span.Since.Format(time.RFC3339)+"\n")
		return err
	})
}

// fakeReports reports about the records and events of a fakeApp.
type fakeReports struct{ *fakeApp }

func (f fakeReports) Read(_ context.Context, span report.Span, most int) (report.Answer, error) {
	if f.audit.unproven == nil {
		return report.Answer{}, fault.New(fault.DatabaseUnavailable, "the database does not answer")
	}
	b := report.NewBuilder(report.Span{Since: time.Time{}, Until: span.Until.AddDate(1, 0, 0)})
	for _, r := range f.records[:min(most, len(f.records))] {
		b.Exec(report.ExecOf(r))
	}
	for _, e := range f.audit.events {
		b.Event(e)
	}
	b.Event(event(50, admin.WorkspaceRemoved, "ag~ann", `{"rule":"sandbox.workspace_ttl_hours","hours":9}`))
	a := report.Answer{
		Report: b.Report(), CountedSince: clock, EventsSince: clock, Unproven: *f.audit.unproven, Compared: 64,
		Denied: map[string]int64{"timeout_ms": 1}, Exports: 1,
	}
	a.Report.Span = span
	return a, nil
}

type fakeRetention struct{ *fakeApp }

func (f fakeRetention) Report(context.Context) (retention.Report, error) {
	return f.audit.report, nil
}

// event returns an administrative event.
func event(n int, kind admin.Kind, subject, data string) admin.Event {
	return admin.Event{
		Seq: int64(n), At: clock.Add(time.Duration(n) * time.Second), NodeID: "node",
		Actor: admin.Actor{Type: admin.ByToken, ID: "t1", Name: "Ada"}, Kind: kind, Subject: subject, Data: data,
	}
}

// fullAudit gives the application something on every page of the audit log.
func (f *fakeApp) fullAudit() {
	f.report.AuditLog = health.AuditLog{
		Entries: 1200, BehindEvents: 3, BehindMS: 400, AnchorDir: "/mnt/anchor", AnchoredEntries: 1180,
		Witnesses: []health.AuditWitness{
			{Name: "example.com/w1", Entries: 1199, Root: "1vHbWEWqzQ1+fPBzkvQvVvWWPm2aPWBGuFW0b9m6q4s=", CosignedAt: clock, Since: clock.Add(-time.Hour)},
			{Name: "example.com/w2", Problem: "does not answer", ProblemFor: time.Hour},
			{Name: "example.com/w3"},
		},
	}
	f.audit.state = translog.State{Size: 1200, SignedAt: clock, VerifierKey: "secbox/test+12345678+AbCd", Holder: "node"}
	f.audit.checkpoint = "secbox/test\n1200\nAAAA\n\n— secbox/test YWJj\n— example.com/w1 YWJj\n"
	f.audit.report = retention.Report{
		State: retention.State{
			BeganAt: clock, EndedAt: clock.Add(time.Minute), Done: retention.Done{Records: 12, Artifacts: 3, Held: 1}, Queued: 2,
			Holds: 52,
		},
		Enabled: true, RecordDays: 365, ArtifactDays: 30, Next: clock.Add(time.Hour), Problem: "an exec is not as the transparency log says",
	}
	removed := `{"part":"record","days":30,"entries":{"` + execID(1) + `":[1,2],"` + execID(2) + `":[3]}}`
	f.audit.events = []admin.Event{
		event(99, admin.HoldRemoved, execID(9), `{"kind":"project","value":"old"}`),
		event(98, admin.RetentionRun, "ended", `{"records":12,"artifacts":3,"projects":0,"held":1}`),
		event(97, admin.ExecsRemoved, "audit.retention_days", removed),
		event(96, admin.Export, "csv", `{"state":"complete","parameters":{"project_id":"demo","since":"7d"},"records":5,"not_logged":0,"bytes":900,"sha256":"`+
			strings.Repeat("ab", 32)+`"}`),
		event(95, admin.Download, execID(2), `{"what":"artifact","path":"`+strings.Repeat("long/", 40)+`"}`),
		event(94, admin.NodeStarted, "node", `{"version":"test","settings_changed":["addr","audit.anchor_dir"]}`),
		event(93, admin.TokenCreated, "t1", `{"name":"Ada"}`),
	}
	damaged := event(92, "", "", "{}")
	damaged.Unreadable = map[string]string{"subject": "NULL", "data": "[1]"}
	f.audit.events = append(f.audit.events, damaged)
	for n := range 15 {
		f.audit.events = append(f.audit.events, event(75-n, admin.HoldRemoved, execID(60+n), fmt.Sprintf(`{"kind":"task","value":"released-%d"}`, n)))
	}
	for n := 60; n > 0; n-- {
		f.audit.events = append(f.audit.events, event(n, admin.SignedIn, "t1", `{"address":"127.0.0.1"}`))
	}
	f.audit.unproven = &report.Unproven{
		NotLogged: 3, Altered: 1, Differences: []report.Difference{{ExecID: execID(2), What: "exit_code", Expected: "3", Found: "0"}},
	}
	for n := range 52 {
		f.audit.holds = append(f.audit.holds, retention.Hold{
			ID: execID(n + 1), Kind: retention.HoldKinds[n%4], Value: fmt.Sprint("value-", n+1), Reason: "case 2026-17",
			AddedAt: clock.Add(time.Duration(n) * time.Second), AddedBy: "t",
		})
	}
}

// hostileAudit makes every text of the audit log s.
func (f *fakeApp) hostileAudit(s string) {
	f.report.AuditLog.AnchorDir, f.report.AuditLog.AnchorProblem, f.report.AuditLog.Halted = s, s, s
	f.report.AuditLog.Witnesses = []health.AuditWitness{{Name: s, Problem: s}}
	f.report.Problems = append(f.report.Problems, health.Problem{Check: "audit_log", Reason: s, Remedy: s})
	f.audit.state.VerifierKey, f.audit.state.Holder = s, s
	f.audit.checkpoint = s + "\n\n— " + s + " YWJj\n"
	f.audit.report.Problem, f.audit.report.Holder, f.audit.report.Running = s, s, true
	encoded, _ := json.Marshal(s)
	text := string(encoded)
	for i := range f.audit.events {
		e := &f.audit.events[i]
		e.NodeID, e.Subject, e.Actor = s, s, admin.Actor{Type: admin.ActorType(s), ID: s, Name: s}
		e.Data = `{"what":` + text + `,"list":[` + text + `],"deep":{` + text + `:{` + text + `:` + text + `}},"entries":{` + text + `:[1]}}`
		e.Unreadable = map[string]string{s: s}
	}
	f.audit.unproven = &report.Unproven{Altered: 1, Differences: []report.Difference{{ExecID: s, What: s, Expected: s, Found: s}}}
	for i := range f.audit.holds {
		h := &f.audit.holds[i]
		h.Value, h.Reason, h.AddedBy = s, s, s
	}
}
