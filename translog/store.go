package translog

import (
	"context"
	"crypto/sha256"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// Store is a database of the log. store/sqlite and store/postgres implement it, and store/storetest is their common test suite. All methods
// are safe for concurrent use. They fail with fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// State returns the state of the log.
	State(ctx context.Context) (State, error)

	// Unlogged returns at most limit events that the log does not have, in the order of their seq, floor being that of the state. A later
	// call may return an event with a lower seq: on PostgreSQL transactions commit in another order.
	Unlogged(ctx context.Context, floor int64, limit int) (Unlogged, error)

	// Append extends the log in one durable transaction, if its state is still a.Old and the lease is free or a.Holder's. It returns false,
	// and writes nothing, if not.
	Append(ctx context.Context, a Append) (bool, error)

	// Tile returns the hashes of the widest form of a tile of height TileHeight; nil if there is none.
	Tile(ctx context.Context, level int, n int64) ([]byte, error)

	// Entries returns at most limit entries in the order of their index, from one on.
	Entries(ctx context.Context, from int64, limit int) ([][sha256.Size]byte, error)

	// History returns the events of an exec with their entries, oldest first.
	History(ctx context.Context, execID string) ([]Event, error)

	// Behind returns how many events the log does not have, counting no further than most, and the time of the first.
	Behind(ctx context.Context, most int) (n int, oldest time.Time, err error)
}

// State is the state of the log.
type State struct {
	Size        int64 // entries
	Root        tlog.Hash
	Checkpoint  string // signed; empty for an empty log
	SignedAt    time.Time
	VerifierKey string // the log's public key; empty for an empty log
	Holder      string // the node that appended last
	Fence       int64  // counts the changes of the holder
	Leased      bool   // only the holder may append now
	Floor       int64  // the log has every event with at most this seq
}

// Event is an event of an exec, and its entry if it has one.
type Event struct {
	Seq    int64
	ExecID string
	Kind   string
	At     time.Time
	NodeID string
	Data   string // as it is stored

	Index    int64 // -1: the log does not have it
	Salt     []byte
	LoggedAt time.Time
}

// Unlogged are events that the log does not have.
type Unlogged struct {
	Events []Event
	Floor  int64 // of the state, once the log has all of Events
}

// Append is the change of the log's state by new entries.
type Append struct {
	Old   State
	Floor int64

	Entries  []Entry // from index Old.Size on
	LoggedAt time.Time
	Tiles    []Tile // that are new or wider

	Root        tlog.Hash
	Checkpoint  string
	VerifierKey string

	Holder string
	Lease  time.Duration // from now on, by the database's clock
}

// Entry is the entry of an event.
type Entry struct {
	Seq  int64 // of the event
	Salt []byte
	Hash [sha256.Size]byte
}

// Tile is a tile of the tree.
type Tile struct {
	Level  int
	N      int64
	Hashes []byte
}
