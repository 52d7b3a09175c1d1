package admin

import (
	"context"
	"time"
)

// Store is a database of administrative events, which cannot be changed or removed. store/sqlite
// and store/postgres implement it, and store/storetest is their common test suite. All methods are
// safe for concurrent use. They fail with fault.DatabaseUnavailable when the database does not
// answer.
//
// The stores of tokens, skills and sandboxes write the events of their changes themselves, in the
// same transaction, by the actor of the context. They, and Record, fail with fault.TooManyChanges
// beyond the Limits of the actor, before anything is changed.
type Store interface {
	// Record writes an event of New in a durable transaction.
	Record(ctx context.Context, e Event) error

	// Get returns the event with this seq; fault.UnknownEvent if there is none.
	Get(ctx context.Context, seq int64) (Event, error)

	// List returns at most limit events, newest first, after the cursor (nil: from the newest), by
	// keyset.
	List(ctx context.Context, f Filter, after *Cursor, limit int) ([]Event, error)
}

// Record makes an event of New and writes it.
func Record(ctx context.Context, s Store, kind Kind, subject string, data any) error {
	e, err := New(ctx, kind, subject, data)
	if err != nil {
		return err
	}
	return s.Record(ctx, e)
}

// Filter selects events; the zero value selects all.
type Filter struct {
	Kind      Kind
	Actor     string // its id
	ActorName string // no index has it: set Actor, too
	Subject   string
	Since     time.Time // inclusive
	Until     time.Time // exclusive
}

// Cursor is the place of an event in lists.
type Cursor struct {
	At  time.Time
	Seq int64
}
