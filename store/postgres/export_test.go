package postgres

import (
	"context"

	"secbox/store/internal/row"
)

// Setting is what the server says of one of its settings over a connection of ours.
func (db *DB) Setting(ctx context.Context, name string) (value string, err error) {
	value, _, err = row.One(ctx, db.run, row.Value[string], "SELECT current_setting($1)", name)
	return value, err
}
