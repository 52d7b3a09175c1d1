package view

import (
	"crypto/sha256"
	"encoding/hex"

	"secbox/cluster/nodes"
	"secbox/console/ui"
	"secbox/engine"
	"secbox/health"
	"secbox/sandbox/remote"
	"secbox/workspace/diskspace"
)

// RunnersPage is the users' machines and the nodes.
type RunnersPage struct {
	User    string // filter; empty: all
	Live    bool
	Here    ui.Address // of the page, live
	Runners []remote.RunnerInfo
	More    int // that are not listed
	Nodes   []nodes.Node
	Node    health.Report
	Pool    engine.PoolStats
	Curl    string // gets the same from the API
}

// linkID is the id of the link of a machine, which keeps the focus when the table is replaced.
func linkID(r remote.RunnerInfo) string {
	sum := sha256.Sum256([]byte(r.UserID + "\x00" + r.Name))
	return "runner-" + hex.EncodeToString(sum[:8])
}

// stateTone is the class of the colour of a node's state.
func stateTone(s nodes.State) string {
	switch s {
	case nodes.StateLive:
		return "good"
	case nodes.StateRetired:
		return ""
	}
	return "warn"
}

// statusTone is the class of the colour of a node's health.
func statusTone(s health.Status) string {
	switch s {
	case health.OK:
		return "good"
	case health.Unavailable:
		return "bad"
	}
	return "warn"
}

func freeSpace(s *diskspace.Space) string {
	if s == nil {
		return "not known"
	}
	return ui.Bytes(int64(min(s.Bytes, 1<<62))) + " free"
}
