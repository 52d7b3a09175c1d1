package audit

import (
	"context"
	"time"

	"secbox/fault"
)

// Store is a database of records. store/sqlite and store/postgres implement it, and store/storetest
// is their common test suite. All methods are safe for concurrent use and safe to call again after
// an error. They fail with fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// Open inserts the row with its created event and, for a running record, its started event, or
	// for a final one (rejected) its ended event, all in one durable transaction. When
	// (requested_by, idempotency_key) is taken, it writes nothing and returns the exec that has the
	// key; else nil. It fails with fault.Internal when the exec_id exists already: ids are never
	// used twice.
	Open(ctx context.Context, r Record) (taken *Record, err error)

	// Enqueue is Open for the queued records of asynchronous execs of one token, all in one
	// transaction. It also stores their sealed jobs; the transaction that ends a row deletes its
	// job. The outcomes are in the order of the execs. After an error none was stored. Concurrent
	// calls may exceed the limits by their execs.
	Enqueue(ctx context.Context, execs []Waiting, limits JobLimits) ([]Enqueued, error)

	// Start changes a row from queued to running: it sets started_at, node_id, image_id, warm,
	// attached and detail from r and appends the started event. When the row is no longer queued,
	// it writes nothing and returns false.
	Start(ctx context.Context, r Record) (bool, error)

	// Close ends a row: it sets every field that can change after the opening from r, and appends
	// an ended event. It does not change a row that has ended: the first ending wins, and Close is
	// idempotent. Only a row that ended as lost takes a result that arrives later, with a corrected
	// event: from a user's machine, or from the node that was taken for dead and had the result in
	// its spool. Close does not change a row of another node than r's; a row without a node may be
	// ended by any. An r without an idempotency key releases the row's, so that the same request
	// may come again under it; the key cannot change otherwise. Close returns the status that the
	// row has then.
	Close(ctx context.Context, r Record) (Status, error)

	// Get returns one record; fault.UnknownExec when there is none.
	Get(ctx context.Context, execID string) (Record, error)

	// Status returns the status of one record; fault.UnknownExec when there is none. It costs
	// little, however large the record is.
	Status(ctx context.Context, execID string) (Status, error)

	// OfKey returns the exec that has the idempotency key of the token; nil if none has. The key is
	// not empty.
	OfKey(ctx context.Context, requestedBy, key string) (*Record, error)

	// List returns at most limit records in the order of the filter, after the cursor (nil: from
	// the first), by keyset, never by offset. It looks at a bounded number of records: if few of
	// them match, it returns fewer than limit, perhaps none, and next is where to go on. Else next
	// is nil.
	List(ctx context.Context, f Filter, after *Cursor, limit int) (items []Record, next *Cursor, err error)

	// Walk calls each for the records of List in their order, one after the other as they are read,
	// until each returns false; then next is nil. The function must not call the store.
	Walk(ctx context.Context, f Filter, after *Cursor, limit int, each func(Record) bool) (next *Cursor, err error)

	// Outlines calls each for at most most execs created at since or later and before until, newest
	// first. The function must not call the store.
	Outlines(ctx context.Context, since, until time.Time, most int, each func(Outline)) error

	// Hours calls each for the execs created at since or later and before until, counted by hour,
	// status and error_reason, in no order. An empty requestedBy means the execs of all tokens. The
	// function must not call the store.
	Hours(ctx context.Context, since, until time.Time, requestedBy string, each func(HourCount)) error

	// Slowest returns at most limit of the newest most execs of that time, the one that took
	// longest first.
	Slowest(ctx context.Context, since, until time.Time, requestedBy string, most, limit int) ([]SlowExec, error)

	// Task counts the execs of a task; of one token if requestedBy is not empty. Of more than most
	// execs it counts the newest. It leaves out changes of files and sessions.
	Task(ctx context.Context, taskID, requestedBy string, most int) (Task, error)

	// Events returns the history of an exec, oldest first; empty for an unknown exec.
	Events(ctx context.Context, execID string) ([]Event, error)

	// Changes returns at most limit events of all execs with a seq above after, oldest first; fewer
	// if they are large. With a limit of 0 it returns no event, but Newest and Next.
	Changes(ctx context.Context, after int64, limit int) (Changes, error)

	// LoseOpen ends every queued or running row of the node as lost, each with its ended event, and
	// returns their ids. It leaves out the rows in except, whose results are in the spool.
	LoseOpen(ctx context.Context, nodeID string, except []string) ([]string, error)

	// InstallationID is a UUID created with the database; all nodes of an installation share it.
	InstallationID(ctx context.Context) (string, error)

	// Ping reports whether a row could be written now.
	Ping(ctx context.Context) error
}

// Task are the execs of a task.
type Task struct {
	Statuses map[Status]int
	Unended  string // the newest exec that is queued or running; empty: none is
}

// Job is what the container of an asynchronous exec needs and its record must not have.
type Job struct {
	ExpiresAt time.Time // it must have started by then
	Sealed    []byte
}

// Waiting is an asynchronous exec for Store.Enqueue.
type Waiting struct {
	Record Record
	Job    Job
}

// Enqueued is the outcome of an exec for Store.Enqueue; the zero value: it was stored.
type Enqueued struct {
	Taken *Record // the exec that has its idempotency key
	Err   error   // fault.QueueFull or fault.BodyTooLarge: the jobs would exceed the limits
}

// Stored reports whether the exec was stored.
func (e Enqueued) Stored() bool { return e.Taken == nil && e.Err == nil }

// JobLimits bound the jobs of the database.
type JobLimits struct {
	Waiting         int   // jobs that wait
	WaitingPerToken int   // of one token
	Bytes           int64 // of all jobs, sealed
	BytesPerToken   int64 // of one token's
}

// Check returns fault.QueueFull when the jobs, with a new one of a size, exceed the limits, and
// fault.BodyTooLarge when that one does alone.
func (l JobLimits) Check(size int64, waiting, ofToken int, bytes, bytesOfToken int64) error {
	var e *fault.Error
	switch {
	case size > min(l.BytesPerToken, l.Bytes):
		return fault.New(fault.BodyTooLarge, "the environment, standard input and inputs of the exec take %d bytes, and those of a "+
			"token's asynchronous execs may take %d together: send less, run it "+
			"without Prefer: respond-async, or ask an operator for a higher sandbox.max_queued_async_mb, of which a token has half", size,
			min(l.BytesPerToken, l.Bytes))
	case ofToken > l.WaitingPerToken:
		e = fault.New(fault.QueueFull, "%d asynchronous execs of this token are waiting already; try again later (the setting "+
			"sandbox.max_queued_per_token raises it)", ofToken-1)
	case waiting > l.Waiting:
		e = fault.New(fault.QueueFull,
			"%d asynchronous execs are waiting already; try again later (the setting sandbox.max_queued_async raises it)", waiting-1)
	case bytesOfToken > l.BytesPerToken:
		e = fault.New(fault.QueueFull, "the asynchronous execs of this token that wait or run take %d bytes, with this one more than its "+
			"share, half of the setting sandbox.max_queued_async_mb; try again later", bytesOfToken)
	case bytes > l.Bytes:
		e = fault.New(fault.QueueFull, "the asynchronous execs that wait or run take %d bytes, with this one more than the setting "+
			"sandbox.max_queued_async_mb allows; try again later", bytes)
	default:
		return nil
	}
	e.RetryAfter = 5 * time.Second
	return e
}

// Changes are events of all execs. One with a lower seq than others may become visible after them,
// when its transaction took longer. Transactions have numbers: once a read has an Oldest of at
// least an earlier Next, no event below the Newest of that earlier read becomes visible any longer.
// Both are 0 where events become visible in the order of their seq.
type Changes struct {
	Events []Event
	Newest int64 // the highest seq that is visible; 0: none
	Oldest int64 // every transaction with a lower number had ended; only with events or a limit of 0
	Next   int64 // a number that no transaction had before; only with a limit of 0
}
