package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/cluster/nodes"
	"secbox/fault"
)

func mustJoin(t *testing.T, f Fixture, id string) int64 {
	t.Helper()
	epoch, err := f.Nodes().Join(t.Context(), nodes.Node{
		NodeID: id, Name: "host", Version: "1.0", Address: "http://" + id + ":8003",
		StartedAt: base,
	}, time.Hour)
	if err != nil {
		t.Fatalf("Join(%s): %v", id, err)
	}
	return epoch
}

// silence moves the lease of a node, or of a node without one the last sign of it, two hours into
// the past.
func silence(t *testing.T, f Fixture, id string) {
	back := "7200000000"
	if f.Kind() == "postgres" {
		back = "interval '2 hours'"
	}
	f.mustSQL(t, "UPDATE nodes SET seen_at = seen_at - "+back+", lease_until = lease_until - "+back+" WHERE node_id = '"+id+"'")
}

func leases(t *testing.T, f Fixture) {
	s := f.Nodes()
	if epoch := mustJoin(t, f, "n1"); epoch != 1 {
		t.Errorf("the first epoch is %d", epoch)
	}
	if held, _, err := s.Renew(t.Context(), "n1", 1, time.Hour); !held || err != nil {
		t.Errorf("renewed: %v, %v", held, err)
	}
	silence(t, f, "n1")
	if held, _, err := s.Renew(t.Context(), "n1", 1, time.Hour); !held || err != nil {
		t.Errorf("a lease that has ended, and that no node has retired, was not renewed: %v, %v", held, err)
	}
	f.mustSQL(t, "UPDATE nodes SET draining = "+map[string]string{"sqlite": "1", "postgres": "true"}[f.Kind()])
	if held, draining, err := s.Renew(t.Context(), "n1", 1, time.Hour); !held || !draining || err != nil {
		t.Errorf("draining: %v, %v, %v", held, draining, err)
	}
	if epoch, err := s.Join(t.Context(), nodes.Node{NodeID: "n1", StartedAt: base, Draining: true}, time.Hour); epoch != 2 || err != nil {
		t.Errorf("the second epoch is %d, %v", epoch, err)
	}
	if _, draining, err := s.Renew(t.Context(), "n1", 2, time.Hour); !draining || err != nil {
		t.Errorf("with the next lease: draining: %v, %v", draining, err)
	}
	if epoch := mustJoin(t, f, "n1"); epoch != 3 {
		t.Errorf("the third epoch is %d", epoch)
	}
	for _, epoch := range []int64{0, 1, 2, 4} {
		if held, _, err := s.Renew(t.Context(), "n1", epoch, time.Hour); held || err != nil {
			t.Errorf("epoch %d was renewed: %v", epoch, err)
		}
		if err := s.Leave(t.Context(), "n1", epoch); err != nil {
			t.Error(err)
		}
	}
	all, err := s.List(t.Context(), time.Minute)
	if err != nil || len(all) != 1 {
		t.Fatalf("List = %+v, %v", all, err)
	}
	n := all[0]
	if n.Draining || n.Epoch != 3 || n.State() != nodes.StateLive || n.LeaseUntil.Sub(n.SeenAt).Round(time.Second) != time.Hour ||
		n.Address != "http://n1:8003" || n.Name != "host" || n.Version != "1.0" || !n.StartedAt.Equal(base) {
		t.Errorf("the node: %+v", n)
	}
	if err := s.Leave(t.Context(), "n1", 3); err != nil {
		t.Fatal(err)
	}
	if all, err = s.List(t.Context(), time.Minute); err != nil || len(all) != 1 || !all[0].LeaseUntil.IsZero() ||
		all[0].State() != nodes.StateRetired {
		t.Errorf("after its end: %+v, %v", all, err)
	}
}

func nodesSeen(t *testing.T, f Fixture) {
	s := f.Nodes()
	if seen, err := s.List(t.Context(), time.Hour); err != nil || seen == nil || len(seen) != 0 {
		t.Errorf("an empty table: %+v, %v", seen, err)
	}
	for _, id := range []string{"n2", "n1", "old"} {
		mustJoin(t, f, id)
	}
	silence(t, f, "old")
	for within, want := range map[time.Duration][]string{time.Hour: {"n1", "n2"}, 3 * time.Hour: {"n1", "n2", "old"}, 0: nil} {
		seen, err := s.List(t.Context(), within)
		var ids []string
		for _, n := range seen {
			ids = append(ids, n.NodeID)
		}
		if err != nil || !slices.Equal(ids, want) {
			t.Errorf("within %v: %v, %v; want %v", within, ids, err, want)
		}
	}
}

// otherKeys: a node does not join while another one with a lease has another key. Nodes whose lease
// has ended, and those that have recorded no key, do not count.
func otherKeys(t *testing.T, f Fixture) {
	join := func(id, key string) error {
		_, err := f.Nodes().Join(t.Context(), nodes.Node{NodeID: id, Name: "host-" + id, StartedAt: base, KeyCheck: key}, time.Hour)
		return err
	}
	joins := func(id, key string) {
		t.Helper()
		if err := join(id, key); err != nil {
			t.Errorf("%s with the key %q: %v", id, key, err)
		}
	}
	refused := func(id, key, by string) {
		t.Helper()
		if err := join(id, key); !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), by+` ("host-`+by+`")`) ||
			!strings.Contains(err.Error(), "copy") {
			t.Errorf("%s with the key %q: %v", id, key, err)
		}
	}
	joins("old", "")
	joins("n1", "a")
	joins("n2", "a")
	joins("n2", "a")
	refused("n3", "b", "n1")
	refused("n2", "b", "n1")
	if _, err := f.Nodes().Get(t.Context(), "n3"); !fault.Is(err, fault.UnknownNode) {
		t.Errorf("a node that was refused: %v", err)
	}
	if held, _, err := f.Nodes().Renew(t.Context(), "n2", 2, time.Hour); !held || err != nil {
		t.Errorf("the lease of a node that was refused later: %v, %v", held, err)
	}
	if err := f.Nodes().Leave(t.Context(), "n2", 2); err != nil {
		t.Fatal(err)
	}
	silence(t, f, "n1")
	joins("n3", "b")
	joins("n3", "c")
	refused("n2", "a", "n3")

	// Of nodes that join at once with different keys, one does.
	if err := f.Nodes().Leave(t.Context(), "n3", 2); err != nil {
		t.Fatal(err)
	}
	ids := []string{"r1", "r2", "r3", "r4"}
	for round := range 5 {
		results := make(chan error)
		for _, id := range ids {
			go func() { results <- join(id, id) }()
		}
		joined := 0
		for range ids {
			if err := <-results; err == nil {
				joined++
			} else if !fault.Is(err, fault.InvalidSettings) {
				t.Error(err)
			}
		}
		if joined != 1 {
			t.Errorf("round %d: %d of %d nodes with different keys joined", round, joined, len(ids))
		}
		for _, id := range ids {
			silence(t, f, id)
		}
	}
}

// retiring: only a lease that has ended is retired, once, with everything that was open.
func retiring(t *testing.T, f Fixture) {
	s, log := f.Nodes(), f.Audit()
	mustJoin(t, f, "n1")
	mustJoin(t, f, "n2")
	running := in(record(), func(r *audit.Record) { r.NodeID = "n1" })
	mustOpen(t, log, running)
	others := in(record(), func(r *audit.Record) { r.NodeID = "n2" })
	mustOpen(t, log, others)
	taken := mustEnqueue(t, f, waiting("tok", audit.Normal))
	if got, err := f.Jobs().Take(t.Context(), "n1", "", anyToken); err != nil || got == nil || got.ExecID != taken.ExecID {
		t.Fatalf("Take = %+v, %v", got, err)
	}
	if r, err := s.Retire(t.Context(), "n2", time.Minute); r != nil || err != nil {
		t.Errorf("a node with a lease was retired: %+v, %v", r, err)
	}
	silence(t, f, "n1")
	if r, err := s.Retire(t.Context(), "n1", time.Minute); r != nil || err != nil {
		t.Errorf("a node retired itself: %+v, %v", r, err)
	}
	if r, err := s.Retire(t.Context(), "n2", 3*time.Hour); r != nil || err != nil {
		t.Errorf("a node that was seen lately was retired: %+v, %v", r, err)
	}
	r, err := s.Retire(t.Context(), "n2", time.Minute)
	if err != nil || r == nil || r.NodeID != "n1" || !slices.Equal(r.Lost, []string{running.ExecID}) || r.Returned != 1 {
		t.Fatalf("Retire = %+v, %v", r, err)
	}
	lost, err := f.AdminEvents().List(t.Context(), admin.Filter{Subject: "n1"}, nil, 10)
	if err != nil || len(lost) != 1 || lost[0].Kind != admin.NodeLost || lost[0].Data != `{"lost":1,"returned":1}` {
		t.Errorf("the administrative events: %+v, %v", lost, err)
	}
	if again, err := s.Retire(t.Context(), "n2", time.Minute); again != nil || err != nil {
		t.Errorf("retired twice: %+v, %v", again, err)
	}
	if got := mustGet(t, log, running.ExecID); got.Status != audit.Lost || got.ErrorReason != audit.NodeLost || got.NodeID != "n1" {
		t.Errorf("the running exec: %+v", got)
	}
	if got := mustGet(t, log, others.ExecID); got.Status != audit.Running {
		t.Errorf("the exec of another node is %s", got.Status)
	}
	if events := mustEvents(t, log, running.ExecID); len(events) != 3 || events[2].Kind != audit.EventEnded {
		t.Errorf("the events: %+v", events)
	}
	if got, err := f.Jobs().Take(t.Context(), "n2", "", anyToken); err != nil || got == nil || got.ExecID != taken.ExecID {
		t.Errorf("the job does not wait again: %+v, %v", got, err)
	}
	if held, _, err := s.Renew(t.Context(), "n1", 1, time.Hour); held || err != nil {
		t.Errorf("a retired lease was renewed: %v", err)
	}

	late := in(record(), func(r *audit.Record) { r.NodeID = "n1" }) // opened when the node did not know yet
	mustOpen(t, log, late)
	if r, err := s.Retire(t.Context(), "n2", time.Minute); err != nil || r == nil || !slices.Equal(r.Lost, []string{late.ExecID}) {
		t.Errorf("what began after it: %+v, %v", r, err)
	}
	if epoch := mustJoin(t, f, "n1"); epoch != 4 {
		t.Errorf("the epoch of the next lease is %d", epoch)
	}
	if status, err := log.Close(t.Context(), ended(running)); err != nil || status != ended(running).Status {
		t.Fatal(status, err)
	}
	if got := kinds(t, log, running.ExecID); len(got) != 4 || got[3] != audit.EventCorrected {
		t.Errorf("the result that the node brings back: %v", got)
	}
}

// draining: only a node with a lease is drained, and each change has an event.
func draining(t *testing.T, f Fixture) {
	s, ctx := f.Nodes(), admin.By(t.Context(), admin.Actor{Type: admin.ByCommand, ID: "core-api"})
	mustJoin(t, f, "n1")
	mustJoin(t, f, "n2")
	mustOpen(t, f.Audit(), in(record(), func(r *audit.Record) { r.NodeID = "n1" }))
	for _, on := range []bool{false, true, true, false, true} {
		if err := s.Drain(ctx, "n1", on); err != nil {
			t.Fatal(err)
		}
		all, err := s.List(t.Context(), time.Hour)
		if err != nil || len(all) != 2 || all[0].Draining != on || (all[0].State() == nodes.StateDraining) != on || all[1].Draining {
			t.Errorf("drained %v: %+v, %v", on, all, err)
		}
		if all[0].Running != 1 || all[0].Queued+all[1].Running+all[1].Queued != 0 {
			t.Errorf("open execs: %+v", all)
		}
	}
	if n, err := s.Get(t.Context(), "n1"); err != nil || n.NodeID != "n1" || n.Address != "http://n1:8003" ||
		n.State() != nodes.StateDraining {
		t.Errorf("Get = %+v, %v", n, err)
	}
	if _, err := s.Get(t.Context(), "n3"); !fault.Is(err, fault.UnknownNode) {
		t.Errorf("Get of an unknown node: %v", err)
	}
	if err := s.Drain(ctx, "n3", true); !fault.Is(err, fault.UnknownNode) {
		t.Errorf("an unknown node: %v", err)
	}
	if err := s.Leave(t.Context(), "n2", 1); err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(ctx, "n2", true); !fault.Is(err, fault.NodeConflict) {
		t.Errorf("a node that has ended: %v", err)
	}
	wantKinds(t, f, "n1", admin.NodeDrained, admin.NodeUndrained, admin.NodeDrained)
	wantKinds(t, f, "n2")
}

// wantKinds compares the administrative events of a node, the newest first.
func wantKinds(t *testing.T, f Fixture, node string, want ...admin.Kind) {
	t.Helper()
	events, err := f.AdminEvents().List(t.Context(), admin.Filter{Subject: node}, nil, 100)
	var kinds []admin.Kind
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	if err != nil || !slices.Equal(kinds, want) {
		t.Errorf("events of %s: %v, %v; want %v", node, kinds, err, want)
	}
}

// forgetting: only a node without a lease and open execs is removed, and its execs stay.
func forgetting(t *testing.T, f Fixture) {
	s := f.Nodes()
	refused := func(why string) {
		t.Helper()
		if err := s.Forget(t.Context(), "n1"); !fault.Is(err, fault.NodeConflict) || !strings.Contains(err.Error(), why) {
			t.Errorf("Forget = %v, want %q", err, why)
		}
	}
	mustJoin(t, f, "n1")
	r := in(record(), func(r *audit.Record) { r.NodeID = "n1" })
	mustOpen(t, f.Audit(), r)
	refused("is live")
	silence(t, f, "n1")
	refused("has ended, and no other node has retired it")
	if r, err := s.Retire(t.Context(), "n2", time.Minute); err != nil || r == nil {
		t.Fatalf("Retire = %+v, %v", r, err)
	}
	late := in(record(), func(r *audit.Record) { r.NodeID = "n1" })
	mustOpen(t, f.Audit(), late)
	refused("has open execs")
	if _, err := f.Audit().Close(t.Context(), ended(late)); err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(t.Context(), "n1"); err != nil {
		t.Errorf("Forget: %v", err)
	}
	if err := s.Forget(t.Context(), "n1"); !fault.Is(err, fault.UnknownNode) {
		t.Errorf("forgotten twice: %v", err)
	}
	if all, err := s.List(t.Context(), 24*time.Hour); err != nil || len(all) != 0 {
		t.Errorf("the nodes: %+v, %v", all, err)
	}
	if got := mustGet(t, f.Audit(), r.ExecID); got.Status != audit.Lost {
		t.Errorf("its exec is %s", got.Status)
	}
	wantKinds(t, f, "n1", admin.NodeForgotten, admin.NodeLost)

	f.mustSQL(t, "INSERT INTO nodes (node_id, version, started_at, seen_at) SELECT 'n1', '0.0.1', at, at FROM admin_events LIMIT 1")
	refused("a version without leases")
}

func retiringRace(t *testing.T, f Fixture) {
	mustJoin(t, f, "n1")
	r := in(record(), func(r *audit.Record) { r.NodeID = "n1" })
	mustOpen(t, f.Audit(), r)
	silence(t, f, "n1")
	const retirers = 4
	lost := make(chan int, retirers)
	for range retirers {
		go func() {
			r, err := f.Nodes().Retire(t.Context(), "n2", time.Minute)
			if err != nil {
				t.Error(err)
			}
			if r == nil {
				lost <- 0
			} else {
				lost <- len(r.Lost)
			}
		}()
	}
	sum := 0
	for range retirers {
		sum += <-lost
	}
	if events := mustEvents(t, f.Audit(), r.ExecID); sum != 1 || len(events) != 3 {
		t.Errorf("ended %d times, with the events %+v", sum, events)
	}
}

// retiredStarts: the claim of a node without a lease fails, and the exec goes on waiting.
func retiredStarts(t *testing.T, f Fixture) {
	mustJoin(t, f, "n1")
	r := mustEnqueue(t, f, waiting("tok", audit.Normal))
	if got, err := f.Jobs().Take(t.Context(), "n1", "", anyToken); err != nil || got == nil {
		t.Fatalf("Take = %+v, %v", got, err)
	}
	silence(t, f, "n1")
	if r, err := f.Nodes().Retire(t.Context(), "n2", time.Minute); err != nil || r == nil {
		t.Fatalf("Retire = %+v, %v", r, err)
	}
	going := in(r, func(r *audit.Record) { r.Status, r.NodeID, r.StartedAt = audit.Running, "n1", base.Add(time.Second) })
	if ok, err := f.Audit().Start(t.Context(), going); ok || err != nil {
		t.Errorf("a node without a lease started an exec: %v", err)
	}
	mustJoin(t, f, "n1")
	if ok, err := f.Audit().Start(t.Context(), going); !ok || err != nil {
		t.Errorf("with a new lease: %v, %v", ok, err)
	}
}
