// Package samples keeps the numbers of each node of the last day: once a minute, a Recorder writes
// a row. Its times are of the database's clock. A minute without a row is a gap: the node was off,
// or the database was away. The package must not know how a number is measured or shown.
package samples

import (
	"context"
	"time"
)

// Name is the name of a number. Names that were released never change: the nodes of an installation
// may be of different versions.
type Name string

// The numbers. A node leaves out those that it does not know.
const (
	Running      Name = "running"       // execs
	Slots        Name = "slots"         // most execs at once
	Queued       Name = "queued"        // execs that wait for a place
	Commands     Name = "commands"      // in users' sandboxes
	Ended        Name = "ended"         // execs since the sample before
	Failed       Name = "failed"        // of these, the execs that failed or reached a limit
	PoolWaiting  Name = "pool_waiting"  // containers
	PoolStarting Name = "pool_starting" // containers
	PoolMax      Name = "pool_max"      // most containers that wait
	PoolMisses   Name = "pool_misses"   // execs without a waiting container since the sample before

	MemoryFree    Name = "memory_free"    // bytes that the machine can give to programs
	WorkspaceFree Name = "workspace_free" // bytes
	StateFree     Name = "state_free"     // bytes of the state dir's disk

	LogEntries    Name = "log_entries"    // of the transparency log
	LogBehind     Name = "log_behind"     // events that the log does not have yet
	LogBehindMS   Name = "log_behind_ms"  // age of the first of them
	WitnessBehind Name = "witness_behind" // entries that the slowest witness has not cosigned
	Spool         Name = "spool"          // results that the database does not have yet
	Problems      Name = "problems"       // of the node's health
)

// Names returns the names of all numbers.
func Names() []Name {
	return []Name{
		Running, Slots, Queued, Commands, Ended, Failed, PoolWaiting, PoolStarting, PoolMax, PoolMisses, MemoryFree, WorkspaceFree,
		StateFree, LogEntries, LogBehind, LogBehindMS, WitnessBehind, Spool, Problems,
	}
}

// Bounds of what is kept.
const (
	Every    = time.Minute
	Shown    = 24 * time.Hour
	Keep     = 25 * time.Hour
	MaxNodes = 64 // with a sample of the same minute
)

// Lately is how old the newest sample of a node is at most that Store.Latest returns.
const Lately = 3 * time.Minute

// Sample is the numbers of a node.
type Sample struct {
	NodeID string
	At     time.Time // the beginning of the minute
	Values map[Name]int64
	Health Health // only of Store.Latest
}

// Health is the health of a node as its last report says.
type Health struct {
	Status   string    `json:"status"` // as GET /sandbox/health says
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is a problem of a node, and what to do.
type Problem struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
	Remedy string `json:"remedy"`
}

// Day is the samples of a node.
type Day struct {
	Now     time.Time // the minute, by the database's clock; zero without samples
	Samples []Sample  // oldest first
}

// Store has the samples of all nodes. Its methods are safe for concurrent use, and fail with
// fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// Add keeps a sample of this minute instead of an earlier one of the node. It removes the
	// samples of all nodes that are older than Keep, or of a later minute than the next, after the
	// clock was set back. fault.ServerBusy when MaxNodes other nodes have a sample of this minute.
	Add(ctx context.Context, s Sample) error

	// Day returns the samples of a node of the last Shown.
	Day(ctx context.Context, nodeID string) (Day, error)

	// Latest returns the newest sample of each node that has one of the last minutes, see Lately.
	Latest(ctx context.Context) (map[string]Sample, error)
}
