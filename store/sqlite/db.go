// Package sqlite keeps audit records and tokens in an embedded SQLite file, for one node. It is one of the two packages that import
// a database driver; it knows SQL and nothing of what records mean.
//
// The file must be on a local disk: WAL needs shared memory and file locks that network and 9p file systems do not have.
package sqlite

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver, pure Go

	"secbox/audit"
	"secbox/fault"
	"secbox/migrations"
	"secbox/tokens"
)

const (
	// busyTimeout is how long a statement waits while another process holds the file's write lock; only a backup or an
	// administrator's shell should ever do.
	busyTimeout = "3000" // milliseconds

	// callTimeout bounds every method, waiting for the one writing connection included.
	callTimeout = 5 * time.Second

	readers = 4 // connections that read beside the one that writes
)

// DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	write *sql.DB // one connection: SQLite has one writer, and waiting here is cheaper than SQLITE_BUSY
	read  *sql.DB
	now   func() time.Time // the database's clock: its host is ours

	closed atomic.Bool // database/sql has no typed error for it
}

// Open opens or makes the database file, readable by its owner only, and migrates it. A file that cannot be used is
// fault.DatabaseUnavailable; a lock that another process holds is waited for some seconds, then the same.
func Open(ctx context.Context, path string) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, interpretError(err)
	}
	// SQLite would make it readable by everybody; its -wal and -shm files take the mode of this one.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, interpretError(err)
	}
	f.Close()

	db := &DB{now: time.Now}
	// synchronous=FULL: a commit that was answered survives a power cut. IMMEDIATE takes the write lock at the beginning of a
	// transaction, where waiting for it is possible; later it is not.
	db.write, err = connect(path, 1, url.Values{"_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_txlock": {"immediate"}})
	if err != nil {
		return nil, interpretError(err)
	}
	db.read, err = connect(path, readers, url.Values{"_query_only": {"1"}})
	if err != nil {
		db.write.Close()
		return nil, interpretError(err)
	}
	if _, err := migrations.UpSQLite(ctx, db.write, path); err != nil {
		db.Close()
		return nil, interpretError(err)
	}
	return db, nil
}

// connect makes a pool of at most n connections that stay open.
func connect(path string, n int, options url.Values) (*sql.DB, error) {
	options.Set("_busy_timeout", busyTimeout)
	name := filepath.ToSlash(path)
	if name[0] != '/' {
		name = "/" + name // file:///C:/…
	}
	dsn := url.URL{Scheme: "file", Path: name, RawQuery: options.Encode()}
	pool, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(n)
	pool.SetMaxIdleConns(n)
	return pool, nil
}

// Close waits for what is running and closes the file. Safe to call twice.
func (db *DB) Close() error {
	db.closed.Store(true)
	readErr := db.read.Close()
	if err := db.write.Close(); err != nil {
		return interpretError(err)
	}
	return interpretError(readErr)
}

// Kind is "sqlite", for health and logs.
func (db *DB) Kind() string { return "sqlite" }

// Audit is the database as audit sees it.
func (db *DB) Audit() audit.Store { return records{db} }

// Tokens is the database as tokens sees it.
func (db *DB) Tokens() tokens.Store { return tokenTable{db} }

// inTx runs fn in one durable write transaction.
func (db *DB) inTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if db.closed.Load() {
		return isClosed()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return interpretError(err)
	}
	defer tx.Rollback() // after a commit this does nothing
	if err := fn(ctx, tx); err != nil {
		return interpretError(err)
	}
	return interpretError(tx.Commit())
}

// query reads rows one by one into scan.
func (db *DB) query(ctx context.Context, scan func(scan func(dest ...any) error) error, statement string, args ...any) error {
	if db.closed.Load() {
		return isClosed()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return interpretError(each(ctx, db.read, scan, statement, args...))
}

// querier is what *sql.DB and *sql.Tx have in common here.
type querier interface {
	QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
}

func each(ctx context.Context, q querier, scan func(scan func(dest ...any) error) error, statement string, args ...any) error {
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func isClosed() error {
	return fault.New(fault.DatabaseUnavailable, "the database is closed: this process is ending")
}

func stamp(t time.Time) any { return t.UnixMicro() }
