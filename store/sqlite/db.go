// Package sqlite keeps audit records, tokens and the pointers of skills in an embedded SQLite file, for one node. It is one of the two
// packages that import a database driver; it knows SQL and nothing of what records mean.
//
// The file must be on a local disk: WAL needs shared memory and file locks that network and 9p file systems do not have.
package sqlite

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver, pure Go

	"secbox/audit"
	"secbox/fault"
	"secbox/migrations"
	"secbox/sandbox"
	"secbox/skills"
	"secbox/tokens"
)

const (
	// busyTimeout is how long a statement waits while another process holds the file's write lock; only a backup or an
	// administrator's shell should ever do.
	busyTimeout = "3000" // milliseconds

	// callTimeout bounds every method, waiting for the one writing connection included.
	callTimeout = 5 * time.Second

	readers = 4           // connections that read beside the one that writes
	listers = readers / 2 // of them for lists, so that no look-up, of a token above all, waits for lists to end
)

// DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	writer *writer
	read   *sql.DB
	lists  chan struct{}    // one for each list under way, listers at most
	now    func() time.Time // the database's clock: its host is ours

	mu       sync.Mutex
	prepared map[string]*sql.Stmt // for reading, see lookUp

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

	// synchronous=FULL: a commit that was answered survives a power cut, which takes one flush of the WAL. IMMEDIATE is for migrations.
	write, err := connect(path, 1, url.Values{
		"_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_txlock": {"immediate"},
		"_pragma": {"wal_autocheckpoint(0)", "journal_size_limit(" + walLimit + ")"},
	})
	if err != nil {
		return nil, interpretError(err)
	}
	db := &DB{writer: newWriter(write), lists: make(chan struct{}, listers), now: time.Now, prepared: map[string]*sql.Stmt{}}
	db.read, err = connect(path, readers, url.Values{"_query_only": {"1"}})
	if err != nil {
		write.Close()
		return nil, interpretError(err)
	}
	if _, err := migrations.UpSQLite(ctx, write, path); err != nil {
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

// Close waits for what is running and closes the file; the last one out copies the WAL into it and removes it. Safe to call twice.
func (db *DB) Close() error {
	db.closed.Store(true)
	readErr := db.read.Close() // first: closing the connection that writes then is the last, and has the WAL to itself
	if err := db.writer.close(); err != nil {
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

// Skills is the database as skills sees it.
func (db *DB) Skills() skills.Registry { return pointerTable{db} }

// Sandboxes is the database as sandbox sees it.
func (db *DB) Sandboxes() sandbox.Choices { return choiceTable{db} }

// inTx runs fn in one durable write transaction. Its statements must be constant texts.
func (db *DB) inTx(ctx context.Context, fn func(tx tx) error) error {
	if db.closed.Load() {
		return isClosed()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return interpretError(db.writer.run(ctx, fn))
}

// query reads rows one by one into scan. It may take long, so it waits until few others do the same.
func (db *DB) query(ctx context.Context, scan func(scan func(dest ...any) error) error, statement string, args ...any) error {
	if db.closed.Load() {
		return isClosed()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case db.lists <- struct{}{}:
		defer func() { <-db.lists }()
	case <-ctx.Done():
		return interpretError(ctx.Err())
	}
	return interpretError(each(ctx, db.read, scan, statement, args...))
}

// lookUp is query for a statement whose text is constant: it is prepared once for each connection, and kept.
func (db *DB) lookUp(ctx context.Context, scan func(scan func(dest ...any) error) error, statement string, args ...any) error {
	if db.closed.Load() {
		return isClosed()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	prepared, err := db.prepare(ctx, statement)
	if err != nil {
		return interpretError(err)
	}
	rows, err := prepared.QueryContext(ctx, args...)
	return interpretError(every(rows, err, scan))
}

func (db *DB) prepare(ctx context.Context, statement string) (*sql.Stmt, error) {
	db.mu.Lock()
	known, ok := db.prepared[statement]
	db.mu.Unlock()
	if ok {
		return known, nil
	}
	fresh, err := db.read.PrepareContext(ctx, statement) // may wait for a connection, so not under the lock
	if err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if known, ok := db.prepared[statement]; ok { // somebody was faster
		fresh.Close()
		return known, nil
	}
	db.prepared[statement] = fresh
	return fresh, nil
}

// querier is what *sql.DB, *sql.Conn and *sql.Tx have in common here.
type querier interface {
	QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
}

func each(ctx context.Context, q querier, scan func(scan func(dest ...any) error) error, statement string, args ...any) error {
	rows, err := q.QueryContext(ctx, statement, args...)
	return every(rows, err, scan)
}

// every gives scan each row of an answer, if there is one.
func every(rows *sql.Rows, err error, scan func(scan func(dest ...any) error) error) error {
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
