package row

import (
	"context"
	"strconv"
	"time"

	"secbox/audit/admin"
)

// Database is how the statements of this package run in a database, and the parts of them that
// differ between the two.
type Database struct {
	// Query runs a statement that only reads. Its text is constant, so that it is prepared once.
	Query Run
	// List runs a query that may take long and whose text varies. Only few run at once.
	List Run
	// Write runs a statement of constant text in a durable transaction of its own.
	Write Run
	// Recorded is Write for a statement with RETURNING. In the same transaction it inserts the
	// event, if a row was returned.
	Recorded func(ctx context.Context, each func(Scan) error, e Permitted, statement string, args ...any) error
	// Limits limits all events that clients cause.
	Limits *admin.Limits
	// Snapshot calls fn with a function that runs queries of constant text. All of them see the
	// database as it is at one moment. Few calls run at once.
	Snapshot func(ctx context.Context, fn func(query Run) error) error
	// Duplicate reports whether an error of Write means that a unique column has the value already.
	Duplicate func(err error) bool

	EncodeTime TimeEncoder
	// The time of the database's clock, now and some time ago, and another UUIDv7 at each
	// evaluation. Values that they need become parameters.
	Now   func(*Params) string
	Ago   func(*Params, time.Duration) string
	NewID func(*Params) string
	// Minute is the time of the database's clock in minutes since 1970.
	Minute func(*Params) string
	// Settled is a seq of a table of events: no event with at most this seq becomes visible later.
	// e is the event that is read, and s its source of the transparency log.
	Settled string
	// OldestTx and NextTx are Oldest and Next of audit.Changes.
	OldestTx, NextTx string
	// Later is the name of the function that returns the greater one of two times.
	Later string
	// Hour is the start of the hour of created_at, in UTC.
	Hour string
	// In is the condition that a value is in the list of the parameter; Set makes that parameter.
	In  func(param string) string
	Set func([]string) any
	// Hidden is a column in a condition for which no index is to be read.
	Hidden func(column string) string
	// Leading: the database has no statistics, so it has one plan for all parameters of a
	// statement.
	Leading bool
}

// Scan reads the columns of a row into dest.
type Scan = func(dest ...any) error

// Run runs a statement and calls each for each row of its result, which is valid until each
// returns. Its errors have a fault.Code.
type Run = func(ctx context.Context, each func(Scan) error, statement string, args ...any) error

// All runs a statement and returns its rows; never nil without an error.
func All[T any](ctx context.Context, run Run, read func(Scan) (T, error), statement string, args ...any) ([]T, error) {
	items := []T{}
	err := run(ctx, func(scan Scan) error {
		item, err := read(scan)
		items = append(items, item)
		return err
	}, statement, args...)
	if err != nil {
		return nil, err
	}
	return items, nil
}

// One runs a statement and returns its only row; false when there is none.
func One[T any](ctx context.Context, run Run, read func(Scan) (T, error), statement string, args ...any) (item T, found bool, err error) {
	items, err := All(ctx, run, read, statement, args...)
	if err == nil && len(items) > 0 {
		return items[0], true, nil
	}
	return item, false, err
}

// Value reads a row of one column.
func Value[T any](scan Scan) (v T, err error) {
	err = scan(&v)
	return v, err
}

// Params are the parameters of a statement.
type Params []any

// Add adds a parameter and returns its place in the statement, such as $1.
func (p *Params) Add(v any) string {
	*p = append(*p, v)
	return "$" + strconv.Itoa(len(*p))
}

// stored cuts a time to the microseconds that both databases keep.
func (db Database) stored(t time.Time) any { return db.EncodeTime(t.UTC().Truncate(time.Microsecond)) }
