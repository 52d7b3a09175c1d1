package main

import (
	"strings"
	"testing"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/store"
)

// TestRepairWaitsForNodes: another node that beats is an error that names it.
func TestRepairWaitsForNodes(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), "", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := waitForNodes(t.Context(), db.Audit(), "own", t.Output()); err != nil {
		t.Errorf("without nodes: %v", err)
	}
	beat := func(id string) {
		if err := db.Audit().Heartbeat(t.Context(), audit.Node{NodeID: id, StartedAt: time.Now()}); err != nil {
			t.Error(err)
		}
	}
	beat("own")
	if err := waitForNodes(t.Context(), db.Audit(), "own", t.Output()); err != nil {
		t.Errorf("only this node is there: %v", err)
	}
	beat("other")
	done := make(chan error)
	go func() { done <- waitForNodes(t.Context(), db.Audit(), "own", t.Output()) }()
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
