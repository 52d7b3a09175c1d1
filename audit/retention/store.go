package retention

import (
	"context"
	"time"
)

// Store is a database of the audit's retention. store/sqlite and store/postgres implement it, and
// store/storetest is their common test suite. All methods are safe for concurrent use. They fail
// with fault.DatabaseUnavailable when the database does not answer. Times are of the database's
// clock. Holds, and runs that removed something, are recorded as administrative events in the same
// transaction, by the actor of the context.
type Store interface {
	// State returns the state of the runs.
	State(ctx context.Context) (State, error)

	// Tick records that the clock is plausible, if it is: within gap after the last time, and not
	// before it; or if accept. The first time is accepted.
	Tick(ctx context.Context, gap time.Duration, accept bool) error

	// Begin takes the lease for a run, if no other holder has it, or the same one after a crash,
	// and the last run began at least every ago. It returns false if not.
	Begin(ctx context.Context, holder string, lease, every time.Duration) (bool, error)

	// Renew extends the lease; ErrLeaseLost if the holder does not have it.
	Renew(ctx context.Context, holder string, lease time.Duration) error

	// End gives the lease back, and keeps Projects, Held and Altered of what the run did. It does
	// nothing for another holder.
	End(ctx context.Context, holder string, done Done) error

	// Scan returns at most limit execs that were created after the cursor and before q.Before, in
	// the order of (created_at, exec_id), and what the rule means for each.
	Scan(ctx context.Context, q Query, after Cursor, limit int) ([]Found, error)

	// Judge tells which of the execs Remove would remove now. They are those for which Scan returns
	// Due, which believes the row, except for Altered ones and those with an event at or after
	// q.Before.
	Judge(ctx context.Context, q Query, execIDs []string) (Judged, error)

	// Remove removes the execs for which Judge would return Due now, in one durable transaction: it
	// writes their tombstones and queues their artifacts; for Records it also deletes the rows and
	// events, and the salts of the events' entries in the log. It extends the holder's lease, and
	// fails with ErrLeaseLost, without a change, if another holder has it, or had it meanwhile.
	Remove(ctx context.Context, q Query, execIDs []string, holder string, lease time.Duration) (Judged, error)

	// Queued returns at most limit removed execs whose artifacts may still be on the disk, the
	// first queued first, after one of them; none that is held.
	Queued(ctx context.Context, after Queued, limit int) ([]Queued, error)

	// Dequeue forgets execs whose artifacts are gone.
	Dequeue(ctx context.Context, execIDs []string) error

	// ProjectDue reports whether no exec of the project is open, was created at or after the time,
	// or is held, and neither is the project or its user. Execs that were refused, perhaps to
	// callers who may not use the project, keep it only if they are held.
	ProjectDue(ctx context.Context, projectID, userID string, before time.Time) (bool, error)

	// RemoveWorkspace records the removal of a user's workspace and returns true, if ProjectDue is
	// true in the same durable transaction. A hold is added before or after all of it. The lease is
	// extended as by Remove.
	RemoveWorkspace(ctx context.Context, w Workspace, holder string, lease time.Duration) (bool, error)

	// RemoveProject records the removal of a project's files by request and returns true, if no
	// exec of the project is open, and neither the project, its user nor one of its execs is held,
	// in the same durable transaction.
	RemoveProject(ctx context.Context, projectID, userID string, bytes int64) (bool, error)

	// Tombstones returns the tombstones of the execs.
	Tombstones(ctx context.Context, execIDs []string) ([]Tombstone, error)

	// AddHold adds a hold, at the time of the database's clock. fault.InvalidRequest for an exec
	// that there is not, and for an id with spaces around it that no exec has. A transaction of
	// Remove that began before ends before it; a later one sees the hold.
	AddHold(ctx context.Context, h Hold) (Hold, error)

	// RemoveHold ends a hold; fault.UnknownHold when there is none with this id that has not been
	// removed.
	RemoveHold(ctx context.Context, id, by string) (Hold, error)

	// HoldsOn returns at most limit holds that have not been removed and name an exec, oldest
	// first; it may have been removed.
	HoldsOn(ctx context.Context, exec HoldSubject, limit int) ([]Hold, error)

	// Covered returns how many execs there are that each hold names, counting no further than most.
	Covered(ctx context.Context, holds []Hold, most int) ([]int, error)

	// Holds returns at most limit holds that have not been removed, oldest first, after one of
	// them.
	Holds(ctx context.Context, after HoldCursor, limit int) ([]Hold, error)
}

// Workspace is a user's workspace that is to be removed by the rule UnusedWorkspaces.
type Workspace struct {
	ProjectID, UserID string
	Before            time.Time // it was not used at or after
	Hours             int64     // the value of the rule
	Bytes             int64     // of its files
}

// HoldSubject is what holds can name of an exec.
type HoldSubject struct{ ProjectID, UserID, TaskID, ExecID string }

// Part is what a rule removes of an exec.
type Part string

// The parts.
const (
	Records   Part = "record"    // the row and its events, and the artifacts too
	Artifacts Part = "artifacts" // the artifacts with the captured output
)

// Query selects what a rule removes.
type Query struct {
	Part       Part
	Rule       string // the name of the setting
	Days       int64  // its value
	Before     time.Time
	LostBefore time.Time // of execs that ended as lost, whose result may still arrive
	Sizes      bool      // Scan counts bytes

	// For Scan by Artifacts: an exec that another rule removes with its record, or would but for a
	// hold, is Gone. Zero: none.
	RecordsBefore, RecordsLostBefore time.Time
}

// Verdict is what a rule means for an exec.
type Verdict string

// The verdicts.
const (
	Due       Verdict = "due"
	Gone      Verdict = "gone"     // it has no such part, or no longer
	Open      Verdict = "open"     // it has not ended
	Young     Verdict = "young"    // it ended too late
	Unsettled Verdict = "lost"     // it ended as lost, and its result may still arrive
	Held      Verdict = "held"     // by a hold
	Unlogged  Verdict = "unlogged" // the transparency log does not have all of its events
)

// Found is an exec that Scan found.
type Found struct {
	Cursor
	Verdict Verdict
	Bytes   int64 // of its artifacts, or of its events; only with Query.Sizes
}

// Judged are execs that were compared with the transparency log.
type Judged struct {
	Due     []string
	Altered []Altered
}

// Altered is an exec that stays because its row or an event is not as the transparency log says.
type Altered struct {
	ExecID string
	Why    string
}

// Cursor is the place of an exec in the order of a scan.
type Cursor struct {
	CreatedAt time.Time
	ExecID    string
}

// Queued is a removed exec whose artifacts may still be on the disk.
type Queued struct {
	ExecID    string
	ProjectID string
	QueuedAt  time.Time
}

// Tombstone tells that a part of an exec was removed.
type Tombstone struct {
	ExecID      string
	Part        Part
	ProjectID   string
	RequestedBy string
	Rule        string // the setting
	Days        int64  // its value
	Events      int64  // removed ones
	RemovedAt   time.Time
}

// State is the state of the runs.
type State struct {
	Now      time.Time // the database's clock
	ClockAt  time.Time // when it was plausible last; zero: never
	NewestAt time.Time // of the newest event; zero: none

	// Of the run that is running, or of the last one; zero: there was none.
	Running bool
	Holder  string // of the running one; empty: none
	BeganAt time.Time
	EndedAt time.Time // of the last one that ended
	Done    Done

	Queued int64 // execs whose artifacts may still be on the disk
	Holds  int64
}

// Done is what a run did.
type Done struct {
	Records   int64
	Artifacts int64 // of execs whose row stays
	Projects  int64 // whose unused inputs or workspace were removed; known at its end
	Held      int64 // execs that a hold kept; known at its end
	Altered   int64 // execs that stay because they are not as the transparency log says; known at its end
}
