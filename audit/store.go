package audit

import (
	"context"
	"time"
)

// Store is what audit asks of a database. store/sqlite and store/postgres implement it and store/storetest holds what every
// implementation must do. All methods are safe for concurrent use and safe to call again after an error. A database that does
// not answer is fault.DatabaseUnavailable.
type Store interface {
	// Open inserts the row with its created event and, when the record is running already, its started event; a record that is
	// final at birth (rejected) gets its ended event too. All in one durable transaction.
	// When (requested_by, idempotency_key) is taken, nothing is written and the exec that holds it is returned; else nil.
	// An exec_id that exists already is fault.Internal: ids are never used twice.
	Open(ctx context.Context, r Record) (taken *Record, err error)

	// Start moves a row from queued to running, atomically: it sets what is known only now (started_at, node_id, image_id, warm,
	// detail) from r and appends the started event. False, and nothing written, when the row is no longer queued.
	Start(ctx context.Context, r Record) (bool, error)

	// Close ends a row: every field that can change after the opening is set from r, and an ended event appended. It is
	// idempotent: a row that already ended with the same status and ended_at is left alone. A row that was ended as lost takes r
	// and gets a corrected event. A row that ended otherwise is left alone too: the first ending stands. The idempotency key is not
	// changed, but an r without one gives it up, so that the same request may come again under it.
	Close(ctx context.Context, r Record) error

	// Get returns one record; fault.UnknownExec when there is none.
	Get(ctx context.Context, execID string) (Record, error)

	// List returns at most limit records, newest first, after the cursor (nil: from the newest), by keyset, never by offset.
	List(ctx context.Context, f Filter, after *Cursor, limit int) ([]Record, error)

	// Outlines calls each for the records created at since or later and before until, newest first, until most of them were given. each
	// must not call the store.
	Outlines(ctx context.Context, since, until time.Time, most int, each func(Outline)) error

	// Events returns the history of an exec, oldest first; empty for an unknown exec.
	Events(ctx context.Context, execID string) ([]Event, error)

	// LoseOpen ends every queued or running row of the node as lost, each with its ended event, and returns their ids. Rows named
	// in except are left alone: their results wait in the spool.
	LoseOpen(ctx context.Context, nodeID string, except []string) ([]string, error)

	// Heartbeat inserts or refreshes the node's line; its time is the database's clock.
	Heartbeat(ctx context.Context, n Node) error

	// Nodes returns the nodes that have beaten within the last so much time, by the database's clock, in the order of their ids; never
	// nil. A node that has ended stays for as long: whoever wants to know whether it lives looks again, at SeenAt.
	Nodes(ctx context.Context, within time.Duration) ([]Node, error)

	// InstallationID is a UUID made once when the database is first migrated; every node of an installation shares it.
	InstallationID(ctx context.Context) (string, error)

	// Ping reports whether a row could be written now.
	Ping(ctx context.Context) error
}

// Node is one running core-api process as the database knows it.
type Node struct {
	NodeID    string
	Version   string
	StartedAt time.Time
	SeenAt    time.Time // set by the database
}
