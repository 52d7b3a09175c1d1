package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/audit/translog"
	"secbox/audit/translog/proof"
	"secbox/fault"
	"secbox/sandbox"
	"secbox/skills"
)

// asAlice is a context in which the token alice acts on the node n1.
func asAlice(t *testing.T) context.Context {
	return admin.By(admin.OnNode(t.Context(), "n1"), admin.Actor{Type: admin.ByToken, ID: "alice", Name: "Alice"})
}

func mustRecord(t *testing.T, s admin.Store, ctx context.Context, kind admin.Kind, subject string, data any) { //nolint:revive // t is first
	t.Helper()
	e, err := admin.New(ctx, kind, subject, data)
	if err == nil {
		err = s.Record(ctx, e)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// adminEvents returns the events that a filter selects, oldest first.
func adminEvents(t *testing.T, s admin.Store, f admin.Filter) []admin.Event {
	t.Helper()
	events, err := s.List(t.Context(), f, nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(events)
	return events
}

// brief is an event as a line.
func brief(e admin.Event) string {
	return fmt.Sprintf("%s %s/%s@%s %s %s", e.Kind, e.Actor.Type, e.Actor.ID, e.NodeID, e.Subject, e.Data)
}

func briefs(events []admin.Event) []string {
	lines := make([]string, len(events))
	for i, e := range events {
		lines[i] = brief(e)
	}
	return lines
}

func adminLists(t *testing.T, f Fixture) {
	s := f.AdminEvents()
	alice, node := asAlice(t), admin.OnNode(t.Context(), "n1")
	mustRecord(t, s, node, admin.NodeStarted, "n1", map[string]any{"b": 1, "a": "x"})
	for i := range 5 {
		mustRecord(t, s, alice, admin.Download, fmt.Sprint("exec", i%2), nil)
	}
	mustRecord(t, s, t.Context(), admin.RetentionRun, "rule", nil)
	all := adminEvents(t, f.Reopen(t).AdminEvents(), admin.Filter{})
	if len(all) != 7 {
		t.Fatalf("%d events", len(all))
	}
	if got, want := brief(all[0]), `node_started node/n1@n1 n1 {"a":"x","b":1}`; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if got, want := brief(all[6]), `retention_run unknown/@ rule {}`; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if e := all[1]; e.Actor.Name != "Alice" || e.At.Location() != time.UTC || time.Since(e.At).Abs() > time.Hour {
		t.Errorf("%+v", e)
	}
	for i, e := range all {
		if i > 0 && e.Seq <= all[i-1].Seq {
			t.Errorf("the seq %d follows %d", e.Seq, all[i-1].Seq)
		}
		if got, err := s.Get(t.Context(), e.Seq); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := s.Get(t.Context(), 1<<40); !fault.Is(err, fault.UnknownEvent) {
		t.Error(err)
	}
	for want, filter := range map[int]admin.Filter{
		1: {Kind: admin.NodeStarted}, 5: {Actor: "alice", ActorName: "Alice"}, 3: {Subject: "exec0", Kind: admin.Download, Actor: "alice"},
		2: {Subject: "exec1", Since: all[0].At},
		0: {Subject: "exec1", Until: all[0].At}, 7: {Since: all[0].At, Until: time.Now().Add(time.Hour)},
	} {
		if got := adminEvents(t, s, filter); len(got) != want {
			t.Errorf("%+v: %d events, want %d", filter, len(got), want)
		}
	}
	for _, filter := range []admin.Filter{
		{Actor: "Alice"}, {Actor: "alice", ActorName: "Bob"}, {Subject: "\x00"}, {Subject: strings.Repeat("x", 1<<20)}, {Kind: "x"},
	} {
		if got := adminEvents(t, s, filter); len(got) != 0 {
			t.Errorf("%.40v: %d events", filter, len(got))
		}
	}
	for _, filter := range []admin.Filter{{}, {Actor: "alice"}, {Kind: admin.Download, Since: all[0].At}} {
		var paged []admin.Event
		for after := (*admin.Cursor)(nil); ; {
			page, err := s.List(t.Context(), filter, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
			after = &admin.Cursor{At: page[len(page)-1].At, Seq: page[len(page)-1].Seq}
		}
		slices.Reverse(paged)
		if want := adminEvents(t, s, filter); !reflect.DeepEqual(paged, want) {
			t.Errorf("%+v in pages: %v; want %v", filter, paged, want)
		}
	}
}

// adminOdd stores events with the oddest texts that a client can send.
func adminOdd(t *testing.T, f Fixture) {
	s := f.AdminEvents()
	odd := "\x00\xff\x1b[2J\n\u202e\U0010ffff<&>\"\\😀"
	long := strings.Repeat("é\x00", 1<<19)
	ctx := admin.By(admin.OnNode(t.Context(), odd), admin.Actor{Type: admin.ByToken, ID: odd, Name: long})
	mustRecord(t, s, ctx, admin.Download, odd, map[string]any{"path": odd, odd: odd})
	mustRecord(t, s, ctx, admin.Download, long, map[string]any{"path": long})
	mustRecord(t, s, ctx, admin.Download, long+"x", nil)
	events := adminEvents(t, s, admin.Filter{})
	if len(events) != 3 {
		t.Fatalf("%d events", len(events))
	}
	if got := events[0].Subject; strings.ContainsAny(got, "\x00\x1b\n\u202e") || !strings.HasSuffix(got, `<&>"\😀`) {
		t.Errorf("%q", got)
	}
	for _, e := range events {
		if len(e.Subject) > admin.MaxText || len(e.Actor.Name) > admin.MaxText || len(e.Data) > admin.MaxData {
			t.Errorf("%d bytes of subject, %d of name, %d of data", len(e.Subject), len(e.Actor.Name), len(e.Data))
		}
	}
	if a, b := events[1].Subject, events[2].Subject; a == b || a[:300] != b[:300] {
		t.Errorf("long subjects: %q, %q", a, b)
	}
	if !strings.Contains(events[1].Data, "omitted_sha256") {
		t.Errorf("large data: %s", events[1].Data)
	}
	if got := adminEvents(t, s, admin.Filter{Subject: events[1].Subject}); len(got) != 1 {
		t.Errorf("found %d by a long subject", len(got))
	}
	for name, e := range map[string]admin.Event{
		"an unknown kind": {Kind: "x", Data: "{}"}, "a long subject": {Kind: admin.Export, Subject: long, Data: "{}"},
		"an odd actor": {Kind: admin.Export, Actor: admin.Actor{Name: odd}, Data: "{}"},
		"large data":   {Kind: admin.Export, Data: `{"x":"` + strings.Repeat("x", admin.MaxData) + `"}`},
	} {
		if err := s.Record(t.Context(), e); !fault.Is(err, fault.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := admin.New(ctx, admin.Export, "", []int{1}); !fault.Is(err, fault.Internal) {
		t.Errorf("data that is no object: %v", err)
	}
}

func adminImmutable(t *testing.T, f Fixture) {
	mustRecord(t, f.AdminEvents(), asAlice(t), admin.Export, "jsonl", nil)
	statements := []string{"UPDATE admin_events SET subject = 'csv'", "DELETE FROM admin_events"}
	if f.Kind() == "postgres" {
		statements = append(statements, "TRUNCATE admin_events")
	} else {
		statements = append(statements, "INSERT OR REPLACE INTO admin_events SELECT * FROM admin_events",
			"UPDATE OR REPLACE admin_events SET seq = 9")
	}
	for _, statement := range statements {
		if _, err := f.SQL(statement); err == nil {
			t.Errorf("%s was not refused", statement)
		}
	}
	if got := adminEvents(t, f.AdminEvents(), admin.Filter{}); len(got) != 1 || got[0].Subject != "jsonl" {
		t.Errorf("%+v", got)
	}
}

// tokenEvents: creating and revoking tokens writes events, and only if something changes.
func tokenEvents(t *testing.T, f Fixture) {
	s, ctx := f.Tokens(), asAlice(t)
	worker := tokens.Token{ID: "w", Name: "ci", Role: tokens.Worker, Projects: []string{"p"}, CreatedAt: base}
	if err := s.Create(ctx, worker, tokens.Hash{1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, worker, tokens.Hash{2}); !fault.Is(err, fault.Internal) {
		t.Errorf("the same id: %v", err)
	}
	for range 2 {
		if _, err := s.Revoke(ctx, "w", base); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Revoke(ctx, "unknown", base); !fault.Is(err, fault.UnknownToken) {
		t.Error(err)
	}
	seed := func(id string, hash byte) {
		t.Helper()
		if _, err := s.Seed(ctx, tokens.Token{ID: id, Name: "SEED", Role: tokens.Admin, CreatedAt: base}, tokens.Hash{hash}); err != nil {
			t.Fatal(err)
		}
	}
	seed("s1", 11)
	seed("s1 again", 11)
	seed("s2", 12)
	want := []string{
		`token_created token/alice@n1 w {"name":"ci","projects":["p"],"role":"worker"}`,
		`token_revoked token/alice@n1 w {"name":"ci","projects":["p"],"role":"worker"}`,
		`token_created token/alice@n1 s1 {"name":"SEED","role":"admin"}`,
		`token_created token/alice@n1 s2 {"name":"SEED","role":"admin"}`,
		`token_revoked token/alice@n1 s1 {"name":"SEED","replaced_by":"s2"}`,
	}
	got := briefs(adminEvents(t, f.AdminEvents(), admin.Filter{}))
	slices.Sort(got) // PostgreSQL does not order the events of one statement
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// changeEvents: baselines and backends.
func changeEvents(t *testing.T, f Fixture) {
	ctx, s := asAlice(t), f.Skills()
	baseline, own := skills.PointerKey{AgentID: "a", SkillID: "k"}, skills.PointerKey{AgentID: "a", SkillID: "k", UserID: "u"}
	one, two := skills.PointerState{Digest: strings.Repeat("1", 64)}, skills.PointerState{Digest: strings.Repeat("2", 64)}
	set := func(key skills.PointerKey, saw *skills.PointerState, want skills.PointerState, moved bool) {
		t.Helper()
		if _, err := s.Set(ctx, key, saw, want); err != nil != moved {
			t.Errorf("Set %+v: %v", key, err)
		}
	}
	set(baseline, nil, one, false)
	set(baseline, nil, two, true)
	set(baseline, &one, one, false)
	set(baseline, &one, two, false)
	set(own, nil, skills.PointerState{Digest: one.Digest, BaseDigest: one.Digest}, false)
	if err := s.Remove(ctx, baseline, one); !fault.Is(err, fault.SkillMoved) {
		t.Error(err)
	}
	if err := s.Remove(ctx, baseline, two); err != nil {
		t.Error(err)
	}
	remote := sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "r", UpdatedAt: base}
	// the last one changes nothing
	for _, c := range []sandbox.Choice{{UserID: "u", Backend: sandbox.Docker, UpdatedAt: base}, remote, remote} {
		if err := f.Sandboxes().Choose(ctx, c); err != nil {
			t.Error(err)
		}
	}
	want := []string{
		`baseline_promoted token/alice@n1 a/k {"digest":"` + one.Digest + `"}`,
		`baseline_promoted token/alice@n1 a/k {"digest":"` + two.Digest + `","replaced_digest":"` + one.Digest + `"}`,
		`baseline_deleted token/alice@n1 a/k {"digest":"` + two.Digest + `"}`,
		`backend_chosen token/alice@n1 u {"backend":"docker"}`,
		`backend_chosen token/alice@n1 u {"backend":"remote","runner":"r"}`,
	}
	if got := briefs(adminEvents(t, f.AdminEvents(), admin.Filter{})); !slices.Equal(got, want) {
		t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// refusedEvents: a change whose event the database refuses does not happen.
func refusedEvents(t *testing.T, f Fixture) {
	ctx := asAlice(t)
	worker := tokens.Token{ID: "w", Name: "ci", Role: tokens.Worker, CreatedAt: base}
	if err := f.Tokens().Create(ctx, worker, tokens.Hash{1}); err != nil {
		t.Fatal(err)
	}
	baseline, state := skills.PointerKey{AgentID: "a", SkillID: "k"}, skills.PointerState{Digest: strings.Repeat("1", 64)}
	if _, err := f.Skills().Set(ctx, baseline, nil, state); err != nil {
		t.Fatal(err)
	}
	if f.Kind() == "postgres" {
		f.mustSQL(t, "ALTER TABLE admin_events ADD CHECK (false) NOT VALID")
	} else {
		f.mustSQL(t, "CREATE TRIGGER refuse BEFORE INSERT ON admin_events BEGIN SELECT RAISE(ABORT, 'refused'); END")
	}
	e, err := admin.New(ctx, admin.Export, "jsonl", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, revoked := f.Tokens().Revoke(ctx, "w", base)
	_, seeded := f.Tokens().Seed(ctx, tokens.Token{ID: "s", Name: "S", Role: tokens.Admin, CreatedAt: base}, tokens.Hash{3})
	_, promoted := f.Skills().Set(ctx, baseline, &state, skills.PointerState{Digest: strings.Repeat("2", 64)})
	for name, err := range map[string]error{
		"Record": f.AdminEvents().Record(ctx, e), "Revoke": revoked, "Seed": seeded, "Set": promoted,
		"Create": f.Tokens().Create(ctx, tokens.Token{ID: "x", Name: "x", Role: tokens.Worker, CreatedAt: base}, tokens.Hash{2}),
		"Remove": f.Skills().Remove(ctx, baseline, state),
		"Choose": f.Sandboxes().Choose(ctx, sandbox.Choice{UserID: "u", Backend: sandbox.Docker, UpdatedAt: base}),
	} {
		if !fault.Is(err, fault.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := f.Tokens().List(t.Context()); err != nil || len(list) != 1 || list[0].Revoked() {
		t.Errorf("%+v, %v", list, err)
	}
	if p, _, err := f.Skills().Get(t.Context(), baseline); err != nil || p.PointerState != state {
		t.Errorf("%+v, %v", p, err)
	}
	if _, found, err := f.Sandboxes().Choice(t.Context(), "u"); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// logBoth puts the events of both sources into the log, between crashes, and proves each.
func logBoth(t *testing.T, f Fixture) {
	file, key := logKey(t)
	s, l := f.AdminEvents(), translog.Log{Store: f.TransparencyLog()}
	const rounds = 30
	for i := range rounds {
		mustRecord(t, s, asAlice(t), admin.Download, fmt.Sprint("exec", i), map[string]any{"what": "<artifact>\u2028"})
		if i%2 == 0 {
			mustOpen(t, f.Audit(), record())
		}
		if _, err := sequencer(t, killed{l.Store, i%3 == 0}, "n1", file).Step(t.Context()); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
	}
	for range 100 { // more than one batch of this source
		mustRecord(t, s, asAlice(t), admin.Export, "jsonl", nil)
	}
	r := record()
	mustOpen(t, f.Audit(), r)
	if lag, err := l.Lag(t.Context(), time.Now()); err != nil || lag.Events < 102 || lag.Size == 0 {
		t.Errorf("lag: %+v, %v", lag, err)
	}
	q := sequencer(t, l.Store, "n1", file)
	if _, err := q.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Prove(t.Context(), r); err != nil { // does not wait for the other source
		t.Error(err)
	}
	logAll(t, q)
	if got, want := len(verifyLog(t, l.Store, key)), rounds+rounds/2*2+100+2; got != want {
		t.Errorf("the log has %d entries, want %d", got, want)
	}
	for statement, want := range map[string]string{
		"SELECT CAST(count(*) AS text) FROM admin_events AS e WHERE (SELECT count(*) FROM audit_log_entries AS l WHERE l.source = " +
			"'admin' AND l.event_seq = e.seq) <> 1": "0",
		"SELECT CAST(count(*) AS text) FROM sandbox_exec_events AS e WHERE (SELECT count(*) FROM audit_log_entries AS l WHERE l.source = " +
			"'exec' AND l.event_seq = e.seq) <> 1": "0",
		"SELECT CAST(count(*) AS text) FROM audit_log_entries AS a, audit_log_entries AS b WHERE a.source = b.source AND a.idx < b.idx " +
			"AND a.event_seq > b.event_seq": "0",
	} {
		if got, err := f.SQL(statement); err != nil || got != want {
			t.Errorf("%s: %q, %v", statement, got, err)
		}
	}
	events := adminEvents(t, s, admin.Filter{})
	for _, e := range []admin.Event{events[0], events[rounds], events[len(events)-1]} {
		data, err := l.ProveAdmin(t.Context(), e.Seq)
		if err != nil {
			t.Fatal(err)
		}
		result, err := proof.CheckAdmin(data, key)
		if d := result.Event; err != nil || !proof.IsAdmin(data) || d.Seq != e.Seq || d.Kind != e.Kind || d.Actor != e.Actor ||
			d.Subject != e.Subject || d.Data != e.Data ||
			!d.At.Equal(e.At) || d.NodeID != e.NodeID || d.LoggedAt.IsZero() || result.Origin != origin {
			t.Errorf("%+v, %v; want %+v", result, err, e)
		}
		if _, err := proof.CheckAdmin(bytes.Replace(data, []byte("alice"), []byte("malory"), 1), key); !fault.Is(err, fault.InvalidProof) {
			t.Errorf("another actor: %v", err)
		}
	}
	mustRecord(t, s, asAlice(t), admin.Export, "csv", nil)
	if _, err := l.ProveAdmin(t.Context(), events[len(events)-1].Seq+1); !fault.Is(err, fault.NotLogged) {
		t.Errorf("an event that the log does not have yet: %v", err)
	}
	if _, err := l.ProveAdmin(t.Context(), 1<<40); !fault.Is(err, fault.UnknownEvent) {
		t.Errorf("an unknown event: %v", err)
	}

	// An administrator of the database changes an event: its proof is false from then on.
	if f.Kind() == "postgres" {
		f.mustSQL(t, "ALTER TABLE admin_events DISABLE TRIGGER ALL")
	} else {
		f.mustSQL(t, "DROP TRIGGER admin_events_no_update")
	}
	f.mustSQL(t, fmt.Sprintf("UPDATE admin_events SET actor_name = 'Bob' WHERE seq = %d", events[0].Seq))
	data, err := l.ProveAdmin(t.Context(), events[0].Seq)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proof.CheckAdmin(data, key); !fault.Is(err, fault.InvalidProof) {
		t.Errorf("an altered event: %v", err)
	}
}
