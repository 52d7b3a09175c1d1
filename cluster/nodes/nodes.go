// Package nodes keeps the leases of the nodes that share a database. A node renews its lease by the
// database's clock. When a lease has ended, another node retires it: one transaction ends the
// node's open execs as lost and gives back the jobs whose execs have not started. Each lease has an
// epoch. A node that was frozen while it was retired sees by the epoch that its lease is gone. It
// kills what it still runs before it takes a new lease. The package must not know SQL, HTTP, nor
// what a node runs.
package nodes

import (
	"context"
	"time"
)

// Node is a core-api process, as the database knows it.
type Node struct {
	NodeID    string
	Name      string // for people; need not be unique
	Version   string
	Address   string // URL that other nodes reach it at; empty: none
	StartedAt time.Time
	Draining  bool   // it takes no new commands
	KeyCheck  string // of the key by which nodes know each other and open queued execs; empty: not compared. Get and List do not read it

	// Set by the store.
	SeenAt     time.Time
	LeaseUntil time.Time // zero: it has no lease
	Epoch      int64     // counts the leases that began or were retired; 0 for a node of a version without leases
	ReadAt     time.Time // when List has read it
	Running    int       // open execs and commands that are the node's, by their rows
	Queued     int
}

// State is what a node does, by its lease.
type State string

// The states.
const (
	StateLive     State = "live"
	StateDraining State = "draining" // live, and it takes no new commands
	StateSilent   State = "silent"   // its lease has ended, and no other node has retired it yet
	StateRetired  State = "retired"  // it has no lease: it has ended, or another node has retired its lease
)

// unleased is how long ago a live node of a version without leases was seen: six of its heartbeats.
const unleased = time.Minute

// State returns the state of a node that List has read.
func (n Node) State() State {
	live := n.LeaseUntil.After(n.ReadAt)
	if n.Epoch == 0 {
		live = n.ReadAt.Sub(n.SeenAt) < unleased
	}
	switch {
	case live && n.Draining:
		return StateDraining
	case live:
		return StateLive
	case n.Epoch > 0 && n.LeaseUntil.IsZero():
		return StateRetired
	}
	return StateSilent
}

// Retired is a node whose lease another node has retired.
type Retired struct {
	NodeID   string
	Lost     []string // execs that were ended as lost
	Returned int      // jobs that wait again
}

// Store has the nodes and their leases. All times are by the database's clock. All methods are safe
// for concurrent use, and fail with fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// Join begins a lease under a new epoch, which it returns. A former epoch of the node ends, and
	// Draining of n decides whether it drains. fault.InvalidSettings while another node with a
	// lease has another KeyCheck.
	Join(ctx context.Context, n Node, lease time.Duration) (epoch int64, err error)

	// Renew extends the lease, even an expired lease, unless its epoch was retired: then held is
	// false.
	Renew(ctx context.Context, nodeID string, epoch int64, lease time.Duration) (held, draining bool, err error)

	// Leave ends the lease, unless its epoch was retired.
	Leave(ctx context.Context, nodeID string, epoch int64) error

	// Retire retires the lease of one node but this whose lease ended and that has not been seen
	// for some time: in one transaction, its open execs end as lost, each with its event, and its
	// jobs whose execs have not started wait again. It does the same for a node without a lease
	// that has open execs or such jobs nevertheless. The event admin.NodeLost is in the
	// transaction. nil when there is none; call it again otherwise.
	Retire(ctx context.Context, self string, unseen time.Duration) (*Retired, error)

	// Drain sets whether the node takes new commands, by the actor of the context, whose event is
	// in the same transaction. The node learns it when it renews its lease. fault.UnknownNode, and
	// fault.NodeConflict for a node without a lease.
	Drain(ctx context.Context, nodeID string, draining bool) error

	// Forget removes a node that has no lease and no open execs, with the event of the actor of the
	// context; fault.UnknownNode, fault.NodeConflict.
	Forget(ctx context.Context, nodeID string) error

	// Get returns a node; fault.UnknownNode.
	Get(ctx context.Context, nodeID string) (Node, error)

	// List returns the nodes that were seen within the duration, in the order of their ids; never
	// nil. A node that has ended stays in the list for that time.
	List(ctx context.Context, within time.Duration) ([]Node, error)
}
