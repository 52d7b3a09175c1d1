package postgres

import "context"

// Setting is what the server says of one of its settings over a connection of ours.
func (db *DB) Setting(ctx context.Context, name string) (value string, err error) {
	_, err = db.one(ctx, func(scan func(...any) error) error { return scan(&value) }, "SELECT current_setting($1)", name)
	return value, err
}
