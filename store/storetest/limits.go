package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/fault"
	"secbox/packages/registry"
	"secbox/sandbox"
)

// unlimited has the kinds of events without a change of a client in this suite: the events of
// nodes, of commands and of reads, and the ends of changes.
var unlimited = []admin.Kind{
	admin.NodeStarted, admin.NodeEnded, admin.NodeLost, admin.ExecsRemoved, admin.RetentionRun, admin.WorkspaceRemoved,
	admin.ProjectRemoved, admin.SkillsRepair,
	admin.SchemaMigrated, admin.LogKeyReplaced,
	admin.DownloadsOmitted, admin.ExportsOmitted, admin.ChangesRefused, admin.Download, admin.Export,
	admin.TokenRevoked, admin.BaselineDeleted, admin.HoldRemoved, admin.SignedOut, admin.NodeForgotten,
	admin.ImageRemoved,
}

// changesOf returns changes of clients, at least one of each kind: each call changes something.
func changesOf(t *testing.T, f Fixture) map[admin.Kind][]func(context.Context) error {
	n := 0
	next := func() string { n++; return fmt.Sprint("x", n) }
	signedIn, hash := token("browser", tokens.Worker)
	mustCreate(t, f.Tokens(), signedIn, hash)
	blocked := person(1, tokens.Worker)
	mustJoin(t, f, "n1")
	node := admin.OnNode(t.Context(), "n1")
	if err := f.Sessions().BeginPerson(node, sessionHash(-1), blocked, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.Webhooks().SetSecret(node, "tok", []byte("one"), time.Hour); err != nil {
		t.Fatal(err)
	}
	both := func(first, second func(context.Context) error) func(context.Context) error { // first by the node
		return func(ctx context.Context) error {
			if err := first(node); err != nil {
				return err
			}
			return second(ctx)
		}
	}
	block := func(on bool) func(context.Context) error {
		return func(ctx context.Context) error { return f.Sessions().Block(ctx, blocked.ID, on) }
	}
	drain := func(on bool) func(context.Context) error {
		return func(ctx context.Context) error { return f.Nodes().Drain(ctx, "n1", on) }
	}
	publish := func(in func(context.Context) context.Context) func(context.Context) error {
		return func(ctx context.Context) error {
			e := entry(next(), 1)
			e.RequestedBy = admin.ActorOf(ctx).ID
			_, err := f.Registry().Publish(in(ctx), 0, e, about(e, registry.Published))
			return err
		}
	}
	return map[admin.Kind][]func(context.Context) error{
		admin.TokenCreated: {
			func(ctx context.Context) error {
				tok, hash := token(next(), tokens.Worker)
				return f.Tokens().Create(ctx, tok, hash)
			},
			func(ctx context.Context) error {
				tok, hash := token(next(), tokens.Worker)
				_, err := f.Tokens().Seed(ctx, tok, hash)
				return err
			},
		},
		admin.BaselinePromoted: {func(ctx context.Context) error {
			_, err := f.Skills().Set(ctx, baseline(next()), nil, version(1))
			return err
		}},
		admin.BackendChosen: {func(ctx context.Context) error {
			return f.Sandboxes().Choose(ctx, sandbox.Choice{UserID: next(), Backend: sandbox.Docker, UpdatedAt: base})
		}},
		admin.SessionExtended: {func(ctx context.Context) error {
			return admin.Record(ctx, f.AdminEvents(), admin.SessionExtended, next(), nil)
		}},
		admin.PortLinked: {func(ctx context.Context) error {
			return admin.Record(ctx, f.AdminEvents(), admin.PortLinked, next(), nil)
		}},
		admin.HoldAdded: {func(ctx context.Context) error {
			_, err := f.Retention().AddHold(ctx, retention.Hold{ID: newID(), Kind: retention.HoldProject, Value: next(), Reason: "a trial"})
			return err
		}},
		admin.SignedIn: {
			func(ctx context.Context) error {
				n++
				return f.Sessions().Begin(ctx, sessionHash(n), signedIn.ID, "")
			},
			func(ctx context.Context) error {
				n++
				return f.Sessions().BeginPerson(ctx, sessionHash(n), person(n+1, tokens.Worker), "")
			},
		},
		admin.PersonBlocked:   {both(block(false), block(true))},
		admin.PersonUnblocked: {both(block(true), block(false))},
		admin.NodeDrained:     {both(drain(false), drain(true))},
		admin.NodeUndrained:   {both(drain(true), drain(false))},
		admin.WebhookSecret: {func(ctx context.Context) error {
			return f.Webhooks().SetSecret(ctx, "tok", []byte(next()), time.Hour)
		}},
		admin.WebhookDefault: {func(ctx context.Context) error {
			return f.Webhooks().SetDefault(ctx, "tok", "https://a.example/"+next(), "a.example")
		}},
		admin.ImageAllowed: {func(ctx context.Context) error {
			n++
			_, err := f.OwnImages().Put(ctx, ownImage(next(), n), "")
			return err
		}},
		admin.RegistryChanged: {
			publish(func(ctx context.Context) context.Context { return ctx }),
			publish(func(context.Context) context.Context { return t.Context() }), // the event names the token, and the context does not
		},
	}
}

// changesAreLimited: beyond the limits of its actor, no change of any kind is made, and none leaves
// an event. Another actor's is, and so is one of a node.
func changesAreLimited(t *testing.T, f Fixture) {
	changes := changesOf(t, f)
	for _, kind := range append(admin.Kinds(), admin.RegistryChanged) {
		if _, limited := changes[kind]; limited == slices.Contains(unlimited, kind) {
			t.Errorf("%s: add a change of a client to changesOf, or the reason why there is none to unlimited", kind)
		}
	}
	written := func(by string) string {
		rows, err := f.SQL("SELECT (SELECT count(*) FROM admin_events WHERE actor_id = '" + by +
			"') + (SELECT count(*) FROM registry_events)")
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	now := time.Now()
	f.Limits().Now = func() time.Time { return now }
	node := admin.OnNode(t.Context(), "n1")
	for kind, all := range changes {
		for i, change := range all {
			flooder := admin.Actor{Type: admin.ByToken, ID: fmt.Sprint(kind, i)}
			ctx := admin.By(node, flooder)
			most := 0
			for f.Limits().Take(flooder, kind) {
				if most++; most > 1000 {
					t.Fatalf("%s has no limit", kind)
				}
			}
			before := written(flooder.ID)
			for range 3 {
				if err := change(ctx); !fault.Is(err, fault.TooManyChanges) || fault.From(err).RetryAfter <= 0 {
					t.Errorf("%s beyond the limit: %v", kind, err)
				}
			}
			if after := written(flooder.ID); after != before {
				t.Errorf("%s beyond the limit: %s events became %s", kind, before, after)
			}
			f.Limits().Return(flooder, kind)
			if err := change(ctx); err != nil {
				t.Errorf("%s within the limit: %v", kind, err)
			}
			if err := change(ctx); !fault.Is(err, fault.TooManyChanges) {
				t.Errorf("%s beyond the limit again: %v", kind, err)
			}
			if err := change(asAlice(t)); err != nil {
				t.Errorf("%s of another token: %v", kind, err)
			}
			if err := change(node); err != nil {
				t.Errorf("%s of the node: %v", kind, err)
			}
		}
	}
}

// unchangedIsFree: a change that changes nothing takes nothing from what its actor may change.
func unchangedIsFree(t *testing.T, f Fixture) {
	now := time.Now()
	f.Limits().Now = func() time.Time { return now }
	ctx, n1 := asAlice(t), version(1)
	mustJoin(t, f, "n1")
	e := entry("s", 1)
	if err := f.Webhooks().SetSecret(t.Context(), "tok", []byte("one"), time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range 700 { // more than any limit
		_, moved := f.Skills().Set(ctx, baseline("s"), nil, n1)
		published, err := f.Registry().Publish(ctx, 0, e, about(e, registry.Published))
		if moved != nil && !fault.Is(moved, fault.SkillMoved) || err != nil || published != (i == 0) {
			t.Fatalf("%d: %v; %v, %v", i, moved, published, err)
		}
		for name, err := range map[string]error{
			"Choose":     f.Sandboxes().Choose(ctx, sandbox.Choice{UserID: "u", Backend: sandbox.Docker, UpdatedAt: base}),
			"Drain":      f.Nodes().Drain(ctx, "n1", true),
			"SetDefault": f.Webhooks().SetDefault(ctx, "tok", "https://a.example/", "a.example"),
		} {
			if err != nil {
				t.Fatalf("%s %d: %v", name, i, err)
			}
		}
	}
	if events := adminEvents(t, f.AdminEvents(), admin.Filter{Actor: "alice"}); len(events) != 4 {
		t.Errorf("%q", briefs(events))
	}
}

// endsAreNotLimited: a token whose changes are refused can still end what it began.
func endsAreNotLimited(t *testing.T, f Fixture) {
	now := time.Now()
	f.Limits().Now = func() time.Time { return now }
	ctx := asAlice(t)
	const many = 600 // as many as the largest limit
	mustEnd := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tok, hash := token("browser", tokens.Worker)
	mustEnd(f.Tokens().Create(ctx, tok, hash))
	hold, err := f.Retention().AddHold(ctx, retention.Hold{ID: newID(), Kind: retention.HoldProject, Value: "p", Reason: "a trial"})
	mustEnd(err)
	_, err = f.Skills().Set(ctx, baseline("s"), nil, version(1))
	mustEnd(err)
	mustEnd(f.Sessions().Begin(ctx, sessionHash(1), tok.ID, ""))
	begun := install("1", registry.Installing)
	_, err = f.Registry().SetInstall(ctx, nil, begun, about(entry("s", 1), registry.InstallBegun))
	mustEnd(err)
	for _, kind := range append(admin.Kinds(), admin.RegistryChanged) {
		for range many {
			f.Limits().Take(admin.ActorOf(ctx), kind)
		}
	}
	mustEnd(f.Sessions().End(ctx, sessionHash(1), tok.ID))
	_, err = f.Tokens().Revoke(ctx, tok.ID, base)
	mustEnd(err)
	_, err = f.Retention().RemoveHold(ctx, hold.ID, "alice")
	mustEnd(err)
	mustEnd(f.Skills().Remove(ctx, baseline("s"), version(1)))
	_, err = f.Registry().SetInstall(ctx, &begun, install("1", registry.Installed), about(entry("s", 1), registry.InstallDone))
	mustEnd(err)
	ended := []admin.Kind{admin.SignedOut, admin.TokenRevoked, admin.HoldRemoved, admin.BaselineDeleted}
	events := adminEvents(t, f.AdminEvents(), admin.Filter{Actor: "alice"})
	for _, kind := range ended {
		if !slices.ContainsFunc(events, func(e admin.Event) bool { return e.Kind == kind }) {
			t.Errorf("no %s in %q", kind, briefs(events))
		}
	}
}

// refusalsAreCounted: what had no event is counted by one event of the node for each client and
// kind, once.
func refusalsAreCounted(t *testing.T, f Fixture) {
	now := base
	f.Limits().Now = func() time.Time { return now }
	node := admin.OnNode(t.Context(), "n1")
	for _, kind := range []admin.Kind{admin.BackendChosen, admin.SignedIn, admin.Download, admin.Export, admin.RegistryChanged} {
		for f.Limits().Take(admin.Actor{Type: admin.ByToken, ID: "alice"}, kind) {
		}
	}
	now = now.Add(time.Second)
	for range 2 {
		if f.Limits().Take(admin.Actor{Type: admin.ByToken, ID: "alice"}, admin.SignedIn) {
			t.Error("a sign-in beyond the limit")
		}
	}
	lines := func() []string {
		f.Limits().Count(node, f.AdminEvents(), discard)
		got := briefs(adminEvents(t, f.AdminEvents(), admin.Filter{}))
		slices.Sort(got)
		return got
	}
	first := base.UTC().Format(time.RFC3339Nano)
	last := now.UTC().Format(time.RFC3339Nano)
	count := func(kind admin.Kind, n int, of, last string) string {
		return fmt.Sprintf(`%s node/n1@n1 alice {"count":%d,"first":"%s"%s,"last":"%s"}`, kind, n, first, of, last)
	}
	want := []string{
		count(admin.ChangesRefused, 1, `,"kind":"backend_chosen"`, first),
		count(admin.ChangesRefused, 1, `,"kind":"registry_changed"`, first),
		count(admin.ChangesRefused, 3, `,"kind":"signed_in"`, last), count(admin.DownloadsOmitted, 1, "", first),
		count(admin.ExportsOmitted, 1, "", first),
	}
	for range 2 { // the second time, there is nothing to count
		if got := lines(); !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
	}
}
