package sandbox

import (
	"context"
	"time"
)

// Choice is which backend a user works in, by their own word.
type Choice struct {
	UserID    string
	Backend   string // one of the names
	Runner    string // for Remote: which of the user's machines; empty: the only one that is connected
	UpdatedAt time.Time
}

// Choices is what the router asks of a database; store/sqlite and store/postgres implement it, store/storetest holds what they must do.
// Safe for concurrent use. A database that does not answer is fault.DatabaseUnavailable.
type Choices interface {
	// Choice returns what a user chose; false when they did not.
	Choice(ctx context.Context, userID string) (Choice, bool, error)

	// Choose sets it, whatever was there.
	Choose(ctx context.Context, c Choice) error
}
