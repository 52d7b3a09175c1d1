// Package jobs starts asynchronous execs: it takes their jobs from the database when this node has a free place, and ends those that have waited too
// long. It must not know what a job is, nor HTTP or SQL.
package jobs

import (
	"context"
	"log/slog"
	"time"
)

// Store has the jobs of asynchronous execs. audit.Store inserts them with their rows, and deletes them when the rows end. A job that is taken belongs to
// a node, which alone starts its exec; audit.Store's Start decides. All methods are safe for concurrent use, and fail with
// fault.DatabaseUnavailable when the database does not answer.
type Store interface {
	// Take takes the oldest job of the token that choose returns, for the highest priority for which it returns one; nil if there is none. choose gets the tokens
	// that have jobs of one priority, at least one and at most 1,000 in their order, and may be called several times.
	Take(ctx context.Context, node string, choose func(tokens []string) (token string, ok bool)) (*Taken, error)

	// TakeExpired takes at most so many jobs that have waited too long, and returns their execs.
	TakeExpired(ctx context.Context, node string, most int) ([]string, error)

	// Return gives a job back that the node has taken, unless its exec has started.
	Return(ctx context.Context, node, execID string) error

	// ReturnAll gives all jobs of a node back whose execs have not started, and returns how many there were.
	ReturnAll(ctx context.Context, node string) (int, error)

	// Waiting returns how many jobs wait, and since when the oldest of them; the zero time if there is none.
	Waiting(ctx context.Context) (n int, oldest time.Time, err error)
}

// Carrier tells nodes that a job waits.
type Carrier interface {
	// Carry calls answer, on one of the nodes that run it, for each job that begins to wait, until ctx ends. It calls answer again only when it has
	// returned; until then other nodes answer. It may call too often, and may miss some while the database does not answer.
	Carry(ctx context.Context, answer func(ctx context.Context), log *slog.Logger)
}

// Taken is a job that this node has taken.
type Taken struct {
	ExecID      string
	RequestedBy string
	ExpiresAt   time.Time
	Sealed      []byte
}
