package translog

import (
	"context"
	"crypto/sha256"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/translog/verify"
)

// Store is a database of the log. store/sqlite and store/postgres implement it, and store/storetest
// is their common test suite. All methods are safe for concurrent use. They fail with
// fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// State returns the state of the log; ErrNoState if it was deleted.
	State(ctx context.Context) (State, error)

	// Unlogged returns at most limit events that the log does not have: first the administrative
	// events, then the events of execs, each in the order of their seq. floors are State.Floors. A
	// later call may return an event with a lower seq, because PostgreSQL commits transactions in
	// another order.
	Unlogged(ctx context.Context, floors Floors, limit int) (Unlogged, error)

	// Append extends the log in one durable transaction, if its state is still a.Old and the lease
	// is free or a.Holder's. It returns false, and writes nothing, if not. A lease that ends later
	// than in MaxLease is free.
	Append(ctx context.Context, a Append) (bool, error)

	// Tile returns the hashes of the widest form of a tile of height TileHeight; nil if there is
	// none.
	Tile(ctx context.Context, level int, n int64) ([]byte, error)

	// Entries returns at most limit entries in the order of their index, from one on.
	Entries(ctx context.Context, from int64, limit int) ([][sha256.Size]byte, error)

	// LoggedAt returns when an entry was made; the zero time for one that the log does not have.
	LoggedAt(ctx context.Context, index int64) (time.Time, error)

	// Kept returns the first and the last of the entries from an index on and before another that
	// have not lost their event; -1 if there is none.
	Kept(ctx context.Context, from, end int64) (first, last int64, err error)

	// History returns the events of an exec with their entries, oldest first.
	History(ctx context.Context, execID string) ([]Event, error)

	// Traffic sums up the rows of an exec's connections.
	Traffic(ctx context.Context, execID string) (audit.Traffic, error)

	// AdminEvent returns an administrative event with its entry; fault.UnknownEvent if there is
	// none.
	AdminEvent(ctx context.Context, seq int64) (Event, error)

	// NewestEvent returns the seq of the newest event of an exec; 0 if there is none.
	NewestEvent(ctx context.Context) (int64, error)

	// Lacking returns the seq and the exec of at most limit events of execs that the log does not
	// have, with a seq above after and at most until, in the order of their seq.
	Lacking(ctx context.Context, after, until int64, limit int) ([]Event, error)

	// ExecPage returns the execs after the one with this id, in the order of their ids. Pages are
	// bounded in number and bytes.
	ExecPage(ctx context.Context, after string) (EventPage, error)

	// AdminPage returns the administrative events with at least this seq, which has no lower bound
	// in a database that was changed.
	AdminPage(ctx context.Context, from int64) (EventPage, error)

	// Logged returns a page of the events whose entries have an index from from to end-1. NextIndex
	// is where the next page begins. The last page also has the first 128 events of each source
	// that the log does not have yet. An exec comes with all its events. Execs are in the order of
	// their ids.
	Logged(ctx context.Context, from, end int64) (EventPage, error)

	// Holds returns all holds, also removed holds, and the administrative events of holds in the
	// order of their seq, as they were at one moment.
	Holds(ctx context.Context) ([]Hold, []Event, error)

	// Behind returns how many events the log does not have, counting no further than most, and the
	// time of the first.
	Behind(ctx context.Context, most int) (n int, oldest time.Time, err error)
}

// ErrNoState is wrapped by the errors of State.
var ErrNoState = verify.ErrNoState

// MaxLease is longer than any lease. One that ends later was taken before the database's clock was
// set back.
const MaxLease = 10 * time.Minute

// Hold is a row of the table of holds.
type Hold = verify.Hold

// Source is a table of events.
type Source string

// The sources.
const (
	Execs Source = "exec"  // sandbox_exec_events
	Admin Source = "admin" // admin_events
)

// Floors are a seq for each source: the log has every event with at most this seq.
type Floors map[Source]int64

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
	Floors      Floors
}

// Event is an event, and its entry if it has one.
type Event struct {
	Source Source
	Seq    int64
	Kind   string
	At     time.Time
	NodeID string
	Data   string // as it is stored

	ExecID  string      // of the source Execs
	Actor   admin.Actor // of the source Admin
	Subject string      // of the source Admin

	Index    int64 // -1: the log does not have it
	Salt     []byte
	LoggedAt time.Time
}

// EventPage is a page of events. All of it is as it was at one moment.
type EventPage struct {
	Execs   []Exec
	Admin   []Event
	State   State // the zero value without one
	NoState bool  // it was deleted

	// Where the next page begins.
	Next      string // of ExecPage: after this id; empty: there is none
	NextSeq   int64  // of AdminPage: with this seq; math.MinInt64: there is none
	NextIndex int64  // of Logged: with this entry
}

// Exec is an exec with its events, in the order of their seq. One of the two may be missing.
type Exec struct {
	ID     string
	Row    *audit.Record
	Events []Event
}

// Unlogged are events that the log does not have.
type Unlogged struct {
	Events []Event
	Floors Floors // of the sources of Events, once the log has all of them
	More   bool   // there may be others
}

// Append is the change of the log's state by new entries.
type Append struct {
	Old    State
	Floors Floors // of the sources of Entries

	Entries  []Entry // from index Old.Size on
	LoggedAt time.Time
	Tiles    []Tile // that are new or wider

	Root        tlog.Hash
	Checkpoint  string
	VerifierKey string

	Holder string
	Lease  time.Duration // from now on, by the database's clock; at most MaxLease
}

// Entry is the entry of an event.
type Entry struct {
	Source Source
	Seq    int64 // of the event
	Salt   []byte
	Hash   [sha256.Size]byte
}

// Tile is a tile of the tree.
type Tile struct {
	Level  int
	N      int64
	Hashes []byte
}
