//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"secbox/cluster/nodes"
)

func TestNode(t *testing.T) {
	t.Parallel()
	state, db := signedIn(t)
	epoch, err := db.Nodes().Join(t.Context(), nodes.Node{NodeID: "n1", Name: "host\x1b[2J", Version: "1.0", StartedAt: time.Now()}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	node := func(wantCode int, want string, args ...string) {
		t.Helper()
		code, stdout, stderr := coreAPI(t, append(append([]string{"node"}, args...), "--state-dir", state)...)
		stdout = strings.Replace(stdout, "1s ago", "0s ago", 1) // the machine may be busy
		if code != wantCode || !strings.Contains(stdout+stderr, want) {
			t.Errorf("node %v: %d %q %q, want %d %q", args, code, stdout, stderr, wantCode, want)
		}
	}
	states := func(want nodes.State) {
		t.Helper()
		code, out, stderr := coreAPI(t, "node", "list", "--json", "--state-dir", state)
		var rows []nodeRow
		if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) != 1 || rows[0].State != want || rows[0].NodeID != "n1" ||
			rows[0].Version != "1.0" {
			t.Errorf("%d %q %q", code, out, stderr)
		}
	}
	states(nodes.StateLive)
	node(0, "n1  live   host\uFFFD[2J  -        ", "list") // and how long ago it was seen
	node(5, "is live", "forget", "n1")
	node(0, "takes no new commands", "drain", "n1")
	states(nodes.StateDraining)
	node(0, "takes new commands again", "drain", "n1", "--undo")
	states(nodes.StateLive)
	node(2, "leave it out with --undo", "drain", "n1", "--undo", "--wait")
	node(4, "core-api node list", "drain", "n2")
	node(4, "core-api node list", "forget", "n2")

	done := make(chan struct{})
	go func() {
		defer close(done)
		node(0, "It runs none any longer.", "drain", "n1", "--wait")
	}()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-time.After(20 * time.Millisecond): // as the node does
			if _, _, err := db.Nodes().Renew(t.Context(), "n1", epoch, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Nodes().Leave(t.Context(), "n1", epoch); err != nil {
		t.Fatal(err)
	}
	states(nodes.StateRetired)
	node(5, "has no lease", "drain", "n1", "--undo")
	node(0, "is forgotten", "forget", "n1")
	node(0, "ID  STATE", "list")
}
