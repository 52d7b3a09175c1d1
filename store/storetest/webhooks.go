package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/fault"
	"secbox/runner/webhooks"
	"secbox/store/storetest/planprobe"
)

func mustRegister(t *testing.T, f Fixture, execID, host string) webhooks.Delivery {
	t.Helper()
	return mustRegisterOf(t, f, "tok", execID, host)
}

func mustRegisterOf(t *testing.T, f Fixture, token, execID, host string) webhooks.Delivery {
	t.Helper()
	d := webhooks.Delivery{ExecID: execID, RequestedBy: token, Host: host, URL: "https://" + host + "/hook?key=1", State: webhooks.Open}
	if err := f.Webhooks().Register(t.Context(), d, webhooks.Limits{Waiting: 1000, WaitingPerToken: 1000}); err != nil {
		t.Fatal(err)
	}
	return d
}

// mustDue makes an exec that has ended, with its delivery.
func mustDue(t *testing.T, f Fixture, host string) webhooks.Delivery {
	t.Helper()
	return mustDueOf(t, f, "tok", host)
}

func mustDueOf(t *testing.T, f Fixture, token, host string) webhooks.Delivery {
	t.Helper()
	r := record()
	d := mustRegisterOf(t, f, token, r.ExecID, host)
	mustOpen(t, f.Audit(), r)
	if _, err := f.Audit().Close(t.Context(), ended(r)); err != nil {
		t.Fatal(err)
	}
	return d
}

func wantState(t *testing.T, f Fixture, what, execID string, want webhooks.State) {
	t.Helper()
	d, err := f.Webhooks().Delivery(t.Context(), execID)
	if got := stateOf(d); err != nil || got != want {
		t.Errorf("%s: the delivery is %q, %v; want %q", what, got, err, want)
	}
}

func stateOf(d *webhooks.Delivery) webhooks.State {
	if d == nil {
		return ""
	}
	return d.State
}

// pass ends the leases and pauses of all deliveries.
func pass(t *testing.T, f Fixture) {
	t.Helper()
	back := "7200000000"
	if f.Kind() == "postgres" {
		back = "interval '2 hours'"
	}
	f.mustSQL(t, "UPDATE webhook_deliveries SET next_at = next_at - "+back+", created_at = created_at - "+back)
}

func mustTakeWebhook(t *testing.T, f Fixture, token string, except ...string) *webhooks.Delivery {
	t.Helper()
	d, err := f.Webhooks().Take(t.Context(), token, except, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// webhookDue: each way in which an exec ends makes its delivery due in the same transaction, and
// once.
func webhookDue(t *testing.T, f Fixture) {
	s := f.Audit()
	opened := func(r audit.Record) audit.Record {
		mustRegister(t, f, r.ExecID, "a.example")
		mustOpen(t, s, r)
		wantState(t, f, "open", r.ExecID, webhooks.Open)
		return r
	}
	onNode := func(r audit.Record, node string) audit.Record {
		return in(r, func(r *audit.Record) { r.NodeID = node })
	}
	canceled := func(r audit.Record) audit.Record {
		return in(r, func(r *audit.Record) {
			r.Status, r.ErrorReason, r.EndedAt = audit.Canceled, audit.ReasonCanceled, base.Add(time.Second)
		})
	}

	closed := opened(record())
	if _, err := s.Close(t.Context(), ended(closed)); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "closed", closed.ExecID, webhooks.Due)

	waited := opened(queued())
	if ok, err := s.Start(t.Context(), in(waited, func(r *audit.Record) { r.StartedAt = base.Add(time.Second) })); !ok || err != nil {
		t.Fatal(ok, err)
	}
	wantState(t, f, "started", waited.ExecID, webhooks.Open)
	if _, err := s.Close(t.Context(), ended(waited)); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "closed after the queue", waited.ExecID, webhooks.Due)

	never := opened(queued())
	if _, err := s.Close(t.Context(), canceled(never)); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "canceled in the queue", never.ExecID, webhooks.Due)

	async := waiting("tok", audit.Normal)
	mustRegister(t, f, async.ExecID, "a.example")
	mustEnqueue(t, f, async)
	wantState(t, f, "enqueued", async.ExecID, webhooks.Open)
	if _, err := s.Close(t.Context(), canceled(async)); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "an asynchronous one, canceled", async.ExecID, webhooks.Due)

	lost := opened(onNode(record(), "killed"))
	if _, err := s.LoseOpen(t.Context(), "killed", nil); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "lost", lost.ExecID, webhooks.Due)

	mustJoin(t, f, "frozen")
	retired := opened(onNode(record(), "frozen"))
	silence(t, f, "frozen")
	if r, err := f.Nodes().Retire(t.Context(), "other", time.Minute); r == nil || err != nil {
		t.Fatal(r, err)
	}
	wantState(t, f, "retired", retired.ExecID, webhooks.Due)

	// A result that comes after the loss corrects the record, and is not delivered again.
	for range 6 {
		d := mustTakeWebhook(t, f, "tok")
		if d == nil {
			t.Fatal("a due delivery is not found")
		}
		d.State = webhooks.Delivered
		if err := f.Webhooks().Finish(t.Context(), *d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Close(t.Context(), ended(lost)); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "corrected", lost.ExecID, webhooks.Delivered)
	if n, err := f.Webhooks().Waiting(t.Context()); n != 0 || err != nil {
		t.Errorf("%d are due, %v", n, err)
	}
}

// webhookTaken: a delivery belongs to the node that has taken it until its lease ends, then to
// another, and only the last one stores how it went.
func webhookTaken(t *testing.T, f Fixture) {
	s := f.Webhooks()
	wantTokens := func(what string, want ...string) {
		t.Helper()
		got, err := s.Tokens(t.Context())
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: tokens %v, %v; want %v", what, got, err, want)
		}
	}
	wantTokens("none")
	if d := mustTakeWebhook(t, f, "tok"); d != nil {
		t.Errorf("%+v", d)
	}
	mustRegister(t, f, record().ExecID, "b.example")
	wantTokens("an open one")
	want := mustDue(t, f, "a.example")
	second := mustDue(t, f, "a.example")
	other := mustDueOf(t, f, "zoe", "c.example:8443")
	wantTokens("due", "tok", "zoe")
	if d := mustTakeWebhook(t, f, "tok", "b.example", "a.example"); d != nil {
		t.Errorf("of a host that is excepted: %+v", d)
	}
	one, two := mustTakeWebhook(t, f, "tok", "c.example:8443"), mustTakeWebhook(t, f, "tok")
	if one == nil || two == nil || one.ExecID == two.ExecID || mustTakeWebhook(t, f, "tok") != nil {
		t.Fatalf("%+v, %+v", one, two)
	}
	if one.ExecID != want.ExecID {
		one, two = two, one
	}
	if one.ExecID != want.ExecID || one.URL != want.URL || one.RequestedBy != "tok" || one.Attempts != 1 || one.State != webhooks.Due ||
		len(one.Tries) != 0 {
		t.Errorf("%+v", one)
	}
	wantTokens("during the leases", "zoe")
	pass(t, f)
	again := mustTakeWebhook(t, f, "tok")
	if again == nil || again.Attempts != 2 {
		t.Fatalf("after the lease: %+v", again)
	}
	late, now := *one, *again
	if again.ExecID == second.ExecID {
		late = *two
	}
	late.State, late.URL = webhooks.Failed, "https://late.example"
	if err := s.Finish(t.Context(), late, 0); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "a late end", again.ExecID, webhooks.Due)
	now.Tries = []webhooks.Try{{At: base, Status: 503, Error: "the service did not take it", MS: 7}}
	now.URL = "https://a.example/hook"
	if err := s.Finish(t.Context(), now, time.Hour); err != nil {
		t.Fatal(err)
	}
	got, err := s.Delivery(t.Context(), again.ExecID)
	if err != nil || got.State != webhooks.Due || got.Attempts != 2 || got.URL != now.URL || !slices.Equal(got.Tries, now.Tries) ||
		got.NextAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	if left := mustTakeWebhook(t, f, "tok"); left == nil || left.ExecID == again.ExecID {
		t.Errorf("during the pause: %+v", left)
	}
	pass(t, f)
	if third := mustTakeWebhook(t, f, "zoe"); third == nil || third.ExecID != other.ExecID {
		t.Errorf("%+v", third)
	}
}

// webhookRace: of concurrent nodes exactly one takes each delivery.
func webhookRace(t *testing.T, f Fixture) {
	const n = 24
	for range n {
		mustDue(t, f, "a.example")
	}
	var mu sync.Mutex
	var got []string
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 4 * n {
				d, err := f.Webhooks().Take(t.Context(), "tok", nil, time.Hour)
				if err != nil {
					t.Error(err)
				}
				if d == nil {
					tokens, err := f.Webhooks().Tokens(t.Context())
					if err != nil || len(tokens) == 0 {
						return
					}
					continue // others were faster
				}
				mu.Lock()
				got = append(got, d.ExecID)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(got)
	if len(got) != n || len(slices.Compact(slices.Clone(got))) != n {
		t.Errorf("%d of %d were taken: %v", len(got), n, got)
	}
}

// webhookBounds: a token has a share of those that wait, and what belongs to no exec is forgotten.
func webhookBounds(t *testing.T, f Fixture) {
	s := f.Webhooks()
	register := func(execID, token string) error {
		return s.Register(t.Context(), webhooks.Delivery{ExecID: execID, RequestedBy: token, Host: "a.example", URL: "https://a.example"},
			webhooks.Limits{Waiting: 3, WaitingPerToken: 2})
	}
	refused := func(what string, err error) {
		t.Helper()
		if !fault.Is(err, fault.QueueFull) || fault.From(err).RetryAfter == 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	kept := record()
	for _, c := range []struct{ execID, token string }{{kept.ExecID, "a"}, {"e2", "a"}, {"e3", "b"}} {
		if err := register(c.execID, c.token); err != nil {
			t.Fatal(err)
		}
	}
	refused("a third of a token", register("e4", "a"))
	refused("a fourth", register("e4", "c"))
	mustOpen(t, f.Audit(), kept)
	for _, id := range []string{kept.ExecID, "e2", "unknown"} {
		if err := s.Forget(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	wantState(t, f, "of an exec", kept.ExecID, webhooks.Open)
	wantState(t, f, "of no exec", "e2", "")
	if err := s.ForgetOld(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "a young one", "e3", webhooks.Open)
	pass(t, f)
	if err := s.ForgetOld(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	wantState(t, f, "an old one of no exec", "e3", "")
	wantState(t, f, "an old one of an exec", kept.ExecID, webhooks.Open)
}

// webhookRemoved: a delivery goes with the row of its exec.
func webhookRemoved(t *testing.T, f Fixture) {
	file, _ := logKey(t)
	r := closedExec(t, f, func(r *audit.Record) { mustRegister(t, f, r.ExecID, "a.example") })
	other := mustDue(t, f, "a.example")
	logAll(t, sequencer(t, f.TransparencyLog(), "n1", file))
	beginRun(t, f.Retention())
	if removed := mustRemove(t, f.Retention(), expired(retention.Records), r.ExecID); len(removed) != 1 {
		t.Fatal(removed)
	}
	wantState(t, f, "removed", r.ExecID, "")
	wantState(t, f, "kept", other.ExecID, webhooks.Due)
}

// webhookSecrets: the secret before the last one stays valid for a time, and each new one is an
// event.
func webhookSecrets(t *testing.T, f Fixture) {
	s := f.Webhooks()
	want := func(what, token string, secrets ...string) {
		t.Helper()
		got, err := s.Secrets(t.Context(), token)
		if err != nil || fmt.Sprintf("%s", got) != fmt.Sprint(secrets) {
			t.Errorf("%s: %s, %v; want %s", what, got, err, secrets)
		}
	}
	set := func(secret string, keep time.Duration) {
		t.Helper()
		if err := s.SetSecret(asAlice(t), "tok", []byte(secret), keep); err != nil {
			t.Fatal(err)
		}
	}
	want("none", "tok")
	set("one", time.Hour)
	want("the first", "tok", "one")
	want("of another token", "other")
	set("two", time.Hour)
	want("the second", "tok", "two", "one")
	set("three", -time.Second)
	want("the third, and none before it", "tok", "three")
	for _, c := range []struct{ token, url, want string }{
		{"nobody", "https://a.example/", ""},
		{"tok", "https://a.example/?key=1", "https://a.example/?key=1"},
		{"other", "", ""},
		{"tok", "", ""},
	} {
		if err := f.Webhooks().SetDefault(t.Context(), c.token, c.url, "a.example"); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Webhooks().Default(t.Context(), c.token); got != c.want || err != nil {
			t.Errorf("the default of %s is %q, %v; want %q", c.token, got, err, c.want)
		}
	}
	if events := adminEvents(t, f.AdminEvents(), admin.Filter{Kind: admin.WebhookDefault}); len(events) != 2 {
		t.Errorf("%+v", events)
	}
	events := adminEvents(t, f.AdminEvents(), admin.Filter{Kind: admin.WebhookSecret})
	if len(events) != 3 || events[0].Subject != "tok" || events[0].Actor.ID != "alice" || strings.Contains(events[0].Data, "one") {
		t.Errorf("%+v", events)
	}
}

// webhookPlans: of ten thousand deliveries, those that are due are found as quickly as of ten.
func webhookPlans(t *testing.T, f Fixture) {
	numbers, at := "SELECT generate_series(1, 10000) AS n", "timestamptz '2026-01-01' + n * interval '1 second'"
	if f.Kind() == "sqlite" {
		numbers, at = "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 10000) SELECT n FROM s",
			"1767225600000000 + n * 1000000"
	}
	f.mustSQL(t, "INSERT INTO webhook_deliveries (exec_id, requested_by, host, url, state, created_at, next_at)"+
		" SELECT 'e' || n, 'token-' || (n % 7), 'h' || (n % 5), 'https://h', CASE WHEN n % 2 = 0 THEN 'due' WHEN n % 3 = 0 THEN 'open' "+
		"ELSE 'delivered' END, "+at+", "+at+" FROM ("+numbers+") AS numbers")
	if f.Kind() == "postgres" {
		f.mustSQL(t, "ANALYZE webhook_deliveries")
	}
	for _, c := range []struct {
		index string
		whole bool // it counts all of the index, which webhooks.Limits bound
		call  func() error
	}{
		{"webhook_deliveries_turns", false, func() error { _, err := f.Webhooks().Tokens(t.Context()); return err }},
		{"webhook_deliveries_turns", false, func() error {
			_, err := f.Webhooks().Take(t.Context(), "token-1", []string{"h2", "h3"}, time.Hour)
			return err
		}},
		{"webhook_deliveries_open", false, func() error { return f.Webhooks().ForgetOld(t.Context(), 100*365*24*time.Hour) }},
		{"webhook_deliveries_token", true, func() error {
			return f.Webhooks().Register(t.Context(), webhooks.Delivery{ExecID: "e", RequestedBy: "token-1"},
				webhooks.Limits{Waiting: 1 << 20, WaitingPerToken: 1 << 20})
		}},
	} {
		statements, err := planprobe.Watched(f.Database, c.call)
		if err != nil || len(statements) == 0 {
			t.Fatal(len(statements), err)
		}
		for _, s := range statements {
			g, err := planprobe.AtBest(t.Context(), f.Database, s)
			if err != nil || g.Sorts || !c.whole && len(g.Whole) > 0 || !strings.Contains(g.Text, c.index) {
				t.Errorf("not by the index %s, %v:\n%s\n%s", c.index, err, s.Text, g.Text)
			}
		}
	}
}
