package main

import (
	"strings"
	"testing"
	"time"

	"secbox/cluster/nodes"
	"secbox/fault"
	"secbox/store"
)

// TestRepairWaitsForNodes: another node that renews its lease is an error that names it; one that
// has ended is not waited for.
func TestRepairWaitsForNodes(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := waitForNodes(t.Context(), db.Nodes(), "own", t.Output()); err != nil {
		t.Errorf("without nodes: %v", err)
	}
	beat := func(id string) {
		t.Helper()
		if _, err := db.Nodes().Join(t.Context(), nodes.Node{NodeID: id, StartedAt: time.Now()}, time.Minute); err != nil {
			t.Error(err)
		}
	}
	beat("own")
	if err := waitForNodes(t.Context(), db.Nodes(), "own", t.Output()); err != nil {
		t.Errorf("only this node is there: %v", err)
	}
	beat("ended")
	if err := db.Nodes().Leave(t.Context(), "ended", 1); err != nil {
		t.Fatal(err)
	}
	if err := waitForNodes(t.Context(), db.Nodes(), "own", t.Output()); err != nil {
		t.Errorf("the other node has ended: %v", err)
	}
	beat("other")
	done := make(chan error)
	go func() { done <- waitForNodes(t.Context(), db.Nodes(), "own", t.Output()) }()
	for {
		select {
		case err := <-done:
			if !fault.Is(err, fault.StateDirInUse) || !strings.Contains(err.Error(), "other") {
				t.Errorf("another beats: %v", err)
			}
			return
		case <-time.After(100 * time.Millisecond):
			beat("other")
		}
	}
}
