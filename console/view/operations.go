package view

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"secbox/cluster/nodes"
	"secbox/cluster/samples"
	"secbox/console/ui"
	"secbox/engine"
	"secbox/health"
	"secbox/workspace/diskspace"
)

// Bounds of what is shown of another node's problems.
const (
	maxNodeProblems = 5
	maxProblemText  = 400
)

// OperationsPage is the state of all nodes, and the last day of one.
type OperationsPage struct {
	Live   bool
	Here   ui.Address // of the page, live
	Nodes  []nodes.Node
	More   int // that are not listed
	Latest map[string]samples.Sample
	Of     string // the node of Day
	Day    samples.Day
	Node   health.Report // of this node, as Pool
	Pool   engine.PoolStats
	Now    time.Time
	Curl   string // gets the same from the API
}

// ofNode leads to the last day of a node.
func (p OperationsPage) ofNode(id string) ui.Address {
	if id == p.Node.NodeID {
		id = ""
	}
	return p.Here.With("node", id)
}

// nodeLink is the id of the link of a node, which keeps the focus when the table is replaced.
func nodeLink(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "node-" + hex.EncodeToString(sum[:8])
}

// healthOf returns the health of a node, and when it was so.
func (p OperationsPage) healthOf(id string) (samples.Health, time.Time) {
	if id == p.Node.NodeID {
		return samples.Health{Status: string(p.Node.Status)}, p.Now
	}
	return p.Latest[id].Health, p.Latest[id].At
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
