package sqlite

import "context"

// Pragma is what SQLite says of one of its settings over the connection that writes.
func (db *DB) Pragma(ctx context.Context, name string) (value string, err error) {
	err = db.write.QueryRowContext(ctx, "PRAGMA "+name).Scan(&value)
	return value, err
}
