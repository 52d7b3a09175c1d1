package sqlite

import (
	"context"
	"database/sql"
)

// Pragma is what SQLite says of one of its settings over the connection that writes.
func (db *DB) Pragma(ctx context.Context, name string) (value string, err error) {
	err = db.writer.exclusively(ctx, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(&value)
	})
	return value, err
}

// OnWriter runs a statement on the connection that writes, outside of any transaction of ours.
func (db *DB) OnWriter(ctx context.Context, statement string) error {
	return db.writer.exclusively(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
}

// Lock keeps every writer waiting until the write lock is released.
func (db *DB) Lock() (unlock func()) {
	db.writer.writeLock <- struct{}{}
	return func() { <-db.writer.writeLock }
}

// Waiting is how many transactions wait for the write lock.
func (db *DB) Waiting() int {
	db.writer.mu.Lock()
	defer db.writer.mu.Unlock()
	return len(db.writer.waiting)
}

// Panic is a transaction that writes and then panics.
func (db *DB) Panic(ctx context.Context, value any) error {
	return db.inTx(ctx, func(tx tx) error {
		if _, err := tx.exec("INSERT INTO nodes (node_id, version, started_at, seen_at) VALUES ('panicked', '', 0, 0)"); err != nil {
			return err
		}
		panic(value)
	})
}

// HoldList is a list that takes long: it tells entered when it has a connection, and keeps it until
// release is closed.
func (db *DB) HoldList(ctx context.Context, entered chan<- struct{}, release <-chan struct{}) error {
	return db.query(ctx, func(func(...any) error) error {
		entered <- struct{}{}
		<-release
		return nil
	}, "SELECT 1")
}
