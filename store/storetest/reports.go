package storetest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/export"
	"secbox/audit/report"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/fault"
)

// reportFixture is a log that grows at chosen times.
type reportFixture struct {
	Fixture
	t       *testing.T
	file    string // of the log's key
	key     string
	now     time.Time
	reports export.Reports
}

// logAt puts all events into the log at a time before now.
func (f reportFixture) logAt(ago time.Duration) {
	f.t.Helper()
	logAll(f.t, translog.NewSequencer(translog.SequencerConfig{
		Store: f.TransparencyLog(), Origin: origin, Holder: "n1", Logger: discard,
		Key: func(bool) (translog.Key, error) { return translog.ReadKey(f.file, origin) },
		Now: func() time.Time { return f.now.Add(-ago) },
	}))
}

// created returns a change of a record that was created at a time before now.
func (f reportFixture) created(ago time.Duration) func(*audit.Record) {
	return func(r *audit.Record) { r.CreatedAt, r.StartedAt = f.now.Add(-ago), f.now.Add(-ago) }
}

func (f reportFixture) span(since, until time.Duration) report.Span {
	return report.Span{Since: f.now.Add(-since), Until: f.now.Add(-until)}
}

// bundle returns a bundle and what it proves.
func (f reportFixture) bundle(span report.Span) ([]byte, report.Result) {
	f.t.Helper()
	var out bytes.Buffer
	ctx := admin.By(f.t.Context(), admin.Caller("tok", "Alice"))
	if err := f.reports.WriteBundle(ctx, &out, span); err != nil {
		f.t.Fatal(err)
	}
	got, err := report.CheckBundle(bytes.NewReader(out.Bytes()), f.key)
	if err != nil {
		f.t.Fatalf("%v\n%s", err, out.Bytes())
	}
	return out.Bytes(), got
}

// same checks that the page's report and the bundle's are equal, but for what only a bundle can
// have.
func (f reportFixture) same(span report.Span) report.Result {
	f.t.Helper()
	answer, err := f.reports.Read(f.t.Context(), span, 100)
	if err != nil || !answer.Complete {
		f.t.Fatalf("%+v, %v", answer, err)
	}
	_, got := f.bundle(span)
	page, bundle := answer.Report, got.Report
	page.Gaps, bundle.Gaps = report.Gaps{}, report.Gaps{}
	if a, b := asJSON(f.t, page), asJSON(f.t, bundle); a != b {
		f.t.Errorf("the page has\n%s\nthe bundle\n%s", a, b)
	}
	return got
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// reports: the page of a span and its bundle say the same, whatever was logged late, removed or
// altered.
func reports(t *testing.T, fixture Fixture) {
	f := reportFixture{Fixture: fixture, t: t, now: time.Now().UTC().Truncate(time.Microsecond)}
	f.file, f.key = logKey(t)
	f.reports = export.Reports{
		Log:     translog.Log{Store: f.TransparencyLog(), Key: func() (translog.Key, error) { return translog.ReadKey(f.file, origin) }},
		Records: f.Audit(), Events: f.AdminEvents(), Patience: time.Millisecond,
		Denied: func(message string) []string { return []string{message} },
	}
	hour := f.span(2*time.Hour, time.Hour)
	if err := f.reports.WriteBundle(t.Context(), new(bytes.Buffer), hour); !fault.Is(err, fault.NotLogged) {
		t.Errorf("an empty log: %v", err)
	}
	if answer, err := f.reports.Read(t.Context(), hour, 10); err != nil || answer.Report.Execs != 0 || !answer.Complete ||
		answer.Compared != 0 {
		t.Errorf("an empty database: %+v, %v", answer, err)
	}

	for range 40 {
		closedExec(t, fixture, f.created(3*time.Hour))
	}
	f.logAt(3 * time.Hour)
	gone := closedExec(t, fixture, f.created(100*time.Minute))
	altered := closedExec(t, fixture, f.created(95*time.Minute))
	refused := in(record(), f.created(90*time.Minute))
	refused.Status, refused.ErrorReason, refused.StartedAt = audit.Rejected, audit.PolicyDenied, time.Time{}
	refused.Detail = "too <b>much</b>"
	mustOpen(t, f.Audit(), refused)
	long := in(record(), f.created(80*time.Minute))
	long.UserID = "another"
	mustOpen(t, f.Audit(), long)
	change := closedExec(t, fixture, func(r *audit.Record) { f.created(70 * time.Minute)(r); r.Kind = audit.KindChange })
	f.logAt(70 * time.Minute)
	if _, err := f.Audit().Close(t.Context(), ended(long)); err != nil {
		t.Fatal(err)
	}
	closedExec(t, fixture, f.created(10*time.Minute))
	f.logAt(10 * time.Minute)
	late := closedExec(t, fixture, f.created(65*time.Minute))
	if _, got := f.bundle(hour); got.Unproven.NotLogged != 1 || !reflect.DeepEqual(got.Unproven.Waiting, []string{late.ExecID}) {
		t.Errorf("an exec that is not in the log: %+v", got.Unproven)
	}
	f.logAt(0)

	if answer, err := f.reports.Read(t.Context(), hour, 10); err != nil || answer.Denied[refused.Detail] != 1 || len(answer.Denied) != 1 ||
		answer.Exports != 0 || !answer.AllRecords() || !answer.AllEvents() {
		t.Errorf("%+v, %v", answer, err)
	}
	got := f.same(hour)
	var whole [2]int64
	if whole[0], whole[1], _ = f.TransparencyLog().Kept(t.Context(), 3, 7); whole != [2]int64{3, 6} {
		t.Errorf("of four entries, %v are the first and the last", whole)
	}
	if at, err := f.TransparencyLog().LoggedAt(t.Context(), 3); err != nil || !at.Equal(f.now.Add(-3*time.Hour)) {
		t.Errorf("an entry was made at %v, %v", at, err)
	}
	if at, err := f.TransparencyLog().LoggedAt(t.Context(), 1000); err != nil || !at.IsZero() {
		t.Errorf("an entry that is not there was made at %v, %v", at, err)
	}
	r := got.Report
	if r.Execs != 5 || r.Changes != 1 || r.ByStatus["rejected"] != 1 || r.ByStatus["failed"] != 5 ||
		len(r.Who) != 3 || r.Who[0].Count != 4 {
		t.Errorf("%+v", r)
	}
	if len(r.Refused) != 1 || r.Refused[0].Reason != audit.PolicyDenied || r.Refused[0].Examples[0].Message != refused.Detail {
		t.Errorf("refused: %+v", r.Refused)
	}
	if got.First != 119 || got.Extras != 3 || !got.Begins || !got.Ends || got.By.Name != "Alice" || len(r.Gaps.First) != 0 {
		t.Errorf("%+v, and its report is %s", got, asJSON(t, r))
	}
	empty := f.same(f.span(59*time.Minute, 58*time.Minute))
	if empty.Report.Execs != 0 || empty.Entries != 2 || !empty.Begins || !empty.Ends {
		t.Errorf("an empty span: %+v", empty)
	}
	if all := f.same(f.span(4*time.Hour, 0)); all.Report.Execs != 46 || all.First != 0 || !all.Begins || !all.Ends {
		t.Errorf("all: %+v", all)
	}
	reportsOfChanges(f, hour, gone.ExecID, altered.ExecID, change.ExecID)
	reportsOfLateEvents(f, hour, late.ExecID)
}

// reportsOfChanges: administrative events, removed execs, and a database that was altered.
func reportsOfChanges(f reportFixture, hour report.Span, gone, altered, change string) {
	t := f.t
	service := tokens.NewService(f.Tokens(), time.Now)
	if _, _, err := service.Create(t.Context(), tokens.Spec{Name: "ci", Role: tokens.Worker}); err != nil {
		t.Fatal(err)
	}
	started := func(data map[string]any) {
		if err := admin.Record(t.Context(), f.AdminEvents(), admin.NodeStarted, "n1", data); err != nil {
			t.Fatal(err)
		}
	}
	started(map[string]any{"version": "1"})
	started(map[string]any{"settings_changed": []string{"addr"}})
	replaced := map[string]any{"reason": "lost"}
	if err := admin.Record(t.Context(), f.AdminEvents(), admin.LogKeyReplaced, "secbox/old+00000000", replaced); err != nil {
		t.Fatal(err)
	}
	beginRun(t, f.Retention())
	if removed := mustRemove(t, f.Retention(), expired(retention.Records), gone); len(removed) != 1 {
		t.Fatal(removed)
	}
	f.logAt(0)
	now := f.same(report.Span{Since: f.now.Add(-time.Minute), Until: time.Now().Add(time.Minute)}).Report
	answer, err := f.reports.Read(t.Context(), now.Span, 100)
	areas := map[report.Area]int64{}
	for _, e := range now.Events {
		areas[e.Area] += e.Count
	}
	if areas[report.Reading] == 0 || err != nil || answer.Exports != areas[report.Reading]/2+1 { // its own has only begun
		t.Errorf("%d exports of %v, %v", answer.Exports, areas, err)
	}
	if areas[report.Tokens] != 1 || areas[report.Settings] != 1 || areas[report.Log] != 1 || areas[report.Nodes] != 1 ||
		areas[report.Removal] != 1 {
		t.Errorf("administrative events: %v", areas)
	}
	if len(now.Removed) != 1 || now.Removed[0].Rule != "audit.test_days" || now.Removed[0].Count != 1 ||
		now.Removed[0].Named[0] != gone {
		t.Errorf("removed: %+v", now.Removed)
	}
	first, last, err := f.TransparencyLog().Kept(t.Context(), 120, 123)
	if err != nil || first != -1 || last != -1 {
		t.Errorf("of entries that have lost their event, %d and %d, %v", first, last, err)
	}
	if after := f.same(f.span(97*time.Minute, time.Hour)); !after.Begins || after.Report.Gaps.Removed != 3 {
		t.Errorf("a span after removed execs: %+v", after)
	}
	got := f.same(hour)
	if r := got.Report; r.Execs != 4 || r.Gaps.Removed != 3 || r.Gaps.Unknown != 0 || len(r.Removed) != 0 || got.Unproven.Altered != 0 {
		t.Errorf("after retention: %+v", got)
	}

	f.mustSQL(t, "UPDATE sandbox_execs SET exit_code = 7 WHERE exec_id = '"+altered+"'")
	if f.Kind() == "postgres" {
		f.mustSQL(t, "ALTER TABLE sandbox_exec_events DISABLE TRIGGER USER")
	} else {
		f.mustSQL(t, "DROP TRIGGER sandbox_exec_events_no_update")
	}
	f.mustSQL(t, "UPDATE sandbox_exec_events SET data = replace(data, 'demo', 'omed') WHERE kind = 'created' AND exec_id = '"+change+"'")
	_, got = f.bundle(hour)
	if r := got.Report; r.Execs != 4 || r.Gaps.Unknown != 1 || len(r.Gaps.First) != 1 || got.Unproven.Altered < 2 ||
		got.Unproven.Differences[0].ExecID == "" {
		t.Errorf("after a change past this program: %+v", got)
	}
	answer, err = f.reports.Read(t.Context(), hour, 2)
	if err != nil || answer.Complete || answer.AllRecords() || !answer.AllEvents() || answer.Report.Execs+answer.Report.Changes != 2 ||
		answer.Unproven.Altered < 2 || answer.CountedSince.Equal(hour.Since) {
		t.Errorf("a bounded report: %s, %v", asJSON(t, answer), err)
	}
}

// reportsOfLateEvents: what was logged late and altered is a difference, once. Triggers are off.
func reportsOfLateEvents(f reportFixture, hour report.Span, late string) {
	t := f.t
	f.mustSQL(t, "UPDATE sandbox_execs SET exit_code = 7 WHERE exec_id = '"+late+"'")
	_, row := f.bundle(hour)
	if n := differencesOf(row, late); n != 1 || row.Report.Execs != 4 {
		t.Errorf("an altered row has %d differences: %+v", n, row)
	}
	f.mustSQL(t, "UPDATE sandbox_exec_events SET data = replace(data, 'demo', 'omed') WHERE exec_id = '"+late+"'")
	if _, got := f.bundle(hour); differencesOf(got, late) < 3 || got.Report.Execs != 3 {
		t.Errorf("altered events: %+v", got)
	}

	span := report.Span{Since: f.now.Add(-time.Minute), Until: time.Now().Add(time.Minute)}
	for _, node := range []string{"n2", "n3"} { // the first shows the end of the span
		if err := admin.Record(t.Context(), f.AdminEvents(), admin.NodeStarted, node, map[string]any{"version": "1"}); err != nil {
			t.Fatal(err)
		}
	}
	f.logAt(-time.Hour)
	_, before := f.bundle(span)
	if f.Kind() == "postgres" {
		f.mustSQL(t, "ALTER TABLE admin_events DISABLE TRIGGER USER")
	} else {
		f.mustSQL(t, "DROP TRIGGER admin_events_no_update")
	}
	f.mustSQL(t, "UPDATE admin_events SET subject = 'n4' WHERE subject = 'n3'")
	if _, got := f.bundle(span); before.Extras == 0 || differencesOf(got, "") != differencesOf(before, "")+1 {
		t.Errorf("an altered administrative event: %+v, before %+v", got.Unproven, before.Unproven)
	}
}

func differencesOf(r report.Result, execID string) (n int) {
	for _, d := range r.Unproven.Differences {
		if d.ExecID == execID {
			n++
		}
	}
	return n
}
