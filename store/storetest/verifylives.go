package storetest

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"secbox/audit"
	"secbox/audit/retention"
	"secbox/audit/translog/verify"
	"secbox/fault"
)

// refusing is a store that does not answer closings while it is down.
type refusing struct {
	audit.Store
	down bool
}

func (s *refusing) Close(ctx context.Context, r audit.Record) (audit.Status, error) {
	if s.down {
		return "", fault.New(fault.DatabaseUnavailable, "down")
	}
	return s.Store.Close(ctx, r)
}

// verifyLives finds nothing in execs that came through the spool, were lost, were corrected by
// their machine, wait without a node, or were removed by retention.
func verifyLives(t *testing.T, f Fixture) {
	e, left := newEvidence(t, f), newFiles(t)
	store := &refusing{Store: e.Audit(), down: true}
	node, err := audit.NewLog(audit.Config{Store: store, Dir: filepath.Join(t.TempDir(), "spool"), NodeID: "n2", Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	onNode := func(r *audit.Record) { r.NodeID = "n2" }
	spooled, lost := in(record(), onNode), in(record(), onNode)
	late := in(record(), func(r *audit.Record) { r.NodeID, r.Backend = "n2", "remote" })
	for _, r := range []audit.Record{spooled, lost, late} {
		if _, err := node.Open(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if inSpool, err := node.Close(t.Context(), new(ended(spooled))); err != nil || !inSpool {
		t.Fatal(inSpool, err)
	}
	logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile)) // between the openings and the ends
	store.down = false
	if ids, err := node.Recover(t.Context()); err != nil || !slices.Equal(ids, []string{lost.ExecID, late.ExecID}) {
		t.Fatal(ids, err)
	}
	if _, err := node.Close(t.Context(), new(ended(late))); err != nil {
		t.Fatal(err)
	}
	mustEnqueue(t, f, waiting("tok", audit.Normal))
	ran := in(mustEnqueue(t, f, waiting("tok", audit.Low)), func(r *audit.Record) { r.NodeID, r.StartedAt = "n3", base.Add(time.Second) })
	if ok, err := e.Audit().Start(t.Context(), ran); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, err := e.Audit().Close(t.Context(), ended(ran)); err != nil {
		t.Fatal(err)
	}
	removed, emptied := record(), record()
	for _, r := range []*audit.Record{&removed, &emptied} {
		mustOpen(t, e.Audit(), *r)
		digest := left.leave(t, r.ExecID)
		if _, err := e.Audit().Close(t.Context(), in(ended(*r), func(c *audit.Record) { c.ManifestDigest = digest })); err != nil {
			t.Fatal(err)
		}
	}
	logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile))
	lines, sum, kept := e.verify(t, verify.Options{Artifacts: left.check})
	if len(lines) > 0 || sum.Execs != 11 || sum.Removed != 0 || sum.ArtifactFiles != 6 {
		t.Fatalf("before the run of retention: %q, %+v", lines, sum)
	}
	beginRun(t, e.Retention())
	mustRemove(t, e.Retention(), expired(retention.Records), removed.ExecID)
	mustRemove(t, e.Retention(), expired(retention.Artifacts), emptied.ExecID)
	logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile))
	if lines, sum, _ := e.verify(t, verify.Options{Kept: kept}); len(lines) > 0 || sum.Execs != 10 || sum.Removed != 3 {
		t.Errorf("after it: %q, %+v", lines, sum)
	}
	if err := e.Retention().End(t.Context(), "run", retention.Done{Records: 1, Artifacts: 1}); err != nil {
		t.Fatal(err)
	}
	logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile))
	if lines, sum, again := e.verify(t, verify.Options{Kept: kept, NewOnly: true}); len(lines) > 0 || sum.Entries != 3 || again == nil {
		t.Errorf("with the event of the run: %q, %+v", lines, sum)
	}
}
