// Package jobs starts asynchronous execs: it takes their jobs from the database when this node has
// a free place, and ends jobs that have waited too long. It must not know what a job is, nor HTTP
// or SQL.
package jobs

import (
	"context"
	"log/slog"
	"time"
)

// Store has the jobs of asynchronous execs. audit.Store inserts them with their rows, and deletes
// them when the rows end. A job that is taken belongs to a node, which alone starts its exec;
// audit.Store's Start decides. All methods are safe for concurrent use, and fail with
// fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// Take takes the next job of the first token that mayRun accepts, in the order of the tokens
	// from the one after a given one, round to that one; nil if there is none. The next job of a
	// token is the oldest of its highest priority.
	Take(ctx context.Context, node, after string, mayRun func(token string) bool) (*Taken, error)

	// TakeExpired takes at most so many jobs that have waited too long, and returns their execs.
	TakeExpired(ctx context.Context, node string, most int) ([]string, error)

	// Return gives a job back that the node has taken, unless its exec has started.
	Return(ctx context.Context, node, execID string) error

	// ReturnAll gives all jobs of a node back whose execs have not started, but for some execs, and
	// returns how many there were.
	ReturnAll(ctx context.Context, node string, except []string) (int, error)

	// Waiting returns how many jobs wait, and since when the oldest of them; the zero time if there
	// is none.
	Waiting(ctx context.Context) (n int, oldest time.Time, err error)
}

// Carrier tells nodes that a job waits.
type Carrier interface {
	// Carry calls answer, on one of the nodes that run it, for each job that begins to wait, until
	// ctx ends. It calls answer again only when it has returned; until then other nodes answer. It
	// may call too often, and may miss some while the database does not answer.
	Carry(ctx context.Context, answer func(ctx context.Context), log *slog.Logger)
}

// Taken is a job that this node has taken.
type Taken struct {
	ExecID      string
	RequestedBy string
	ExpiresAt   time.Time
	Sealed      []byte
}
