// Package sqlite stores audit records, tokens and the pointers of skills in an embedded SQLite
// file, for one node. It is one of the two packages that import a database driver; it knows SQL and
// not the meaning of records.
//
// The file must be on a local disk: WAL needs shared memory and file locks that network and 9p file
// systems do not have.
package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver, pure Go

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/access/views"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/cluster/nodes"
	"secbox/cluster/samples"
	"secbox/fault"
	"secbox/images/catalog"
	"secbox/migrations"
	"secbox/packages/registry"
	"secbox/runner/jobs"
	"secbox/runner/webhooks"
	"secbox/sandbox"
	"secbox/skills"
	"secbox/store/internal/row"
)

const (
	// busyTimeout is how long a statement waits while another process holds the file's write lock;
	// only a backup or an administrator's shell should.
	busyTimeout = "3000" // milliseconds

	// callTimeout bounds every method, with its wait for the one writing connection.
	callTimeout = 5 * time.Second

	readers = 4           // connections beside the one that writes
	listers = readers / 2 // of them for lists, so that looking up a token never waits for lists
)

// DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	writer *writer
	read   *sql.DB
	lists  chan struct{}    // a permit for each running list
	now    func() time.Time // the database's clock is this host's

	prepared sync.Map // *sql.Stmt for reading, by text; see lookUp
	watch    *row.Watch
	limits   *admin.Limits

	closed atomic.Bool // database/sql has no typed error for it
}

// Open opens or creates the database file, readable by its owner only, and migrates it. It fails
// with fault.DatabaseUnavailable when the file cannot be used, or when another process holds its
// lock for some seconds.
func Open(ctx context.Context, path string) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, interpretError(err)
	}
	// SQLite would create it with the umask's mode; the -wal and -shm files take the mode of this
	// one.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, interpretError(err)
	}
	f.Close()

	// synchronous=FULL flushes the WAL at each commit, so that it survives a power failure.
	// IMMEDIATE is for migrations.
	write, err := connect(path, 1, url.Values{
		"_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_txlock": {"immediate"},
		"_pragma": {"wal_autocheckpoint(0)", "journal_size_limit(" + walLimit + ")"},
	})
	if err != nil {
		return nil, interpretError(err)
	}
	watch := &row.Watch{}
	db := &DB{writer: newWriter(write, watch), lists: make(chan struct{}, listers), now: time.Now, watch: watch, limits: admin.NewLimits()}
	db.read, err = connect(path, readers, url.Values{"_query_only": {"1"}})
	if err != nil {
		write.Close()
		return nil, interpretError(err)
	}
	if err := migrate(ctx, write, path); err != nil {
		db.Close()
		return nil, interpretError(err)
	}
	return db, nil
}

// migrate flushes nothing to the disk at each of its commits, as synchronous=FULL would. Each flush
// may take long on a busy disk. After a power failure the database is as some migration left it,
// and the next start applies the others; the first commit afterwards flushes all of them.
func migrate(ctx context.Context, write *sql.DB, path string) error {
	if _, err := write.ExecContext(ctx, "PRAGMA synchronous = NORMAL"); err != nil {
		return err
	}
	if _, err := migrations.UpSQLite(ctx, write, path); err != nil {
		return err
	}
	_, err := write.ExecContext(ctx, "PRAGMA synchronous = FULL")
	return err
}

// connect returns a pool of at most n connections that stay open.
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

// Close waits for running calls and closes the file; the last connection copies the WAL into it and
// removes the WAL. Safe to call twice.
func (db *DB) Close() error {
	db.closed.Store(true)
	readErr := db.read.Close() // first, so that the writing connection is the last and has the WAL to itself
	if err := db.writer.close(); err != nil {
		return interpretError(err)
	}
	return interpretError(readErr)
}

// Kind returns "sqlite", for health and logs.
func (db *DB) Kind() string { return "sqlite" }

// Audit returns the store of audit records.
func (db *DB) Audit() audit.Store { return records{row.Records{Database: db.statements()}, db} }

// Jobs returns the store of the jobs of asynchronous execs.
func (db *DB) Jobs() jobs.Store { return row.Jobs{Database: db.statements()} }

// Nodes returns the store of nodes.
func (db *DB) Nodes() nodes.Store {
	return row.Nodes{Database: db.statements(), Tx: func(ctx context.Context,
		fn func(row.Run, func(string) ([]string, error)) error,
	) error {
		return db.inTx(ctx, func(tx tx) error {
			return fn(tx.each, func(nodeID string) ([]string, error) {
				return records{row.Records{Database: db.statements()}, db}.loseOpen(ctx, tx, nodeID, nil)
			})
		})
	}}
}

// Samples returns the store of the nodes' numbers.
func (db *DB) Samples() samples.Store {
	return row.Samples{Database: db.statements(), Tx: func(ctx context.Context, fn func(row.Run) error) error {
		return db.inTx(ctx, func(tx tx) error { return fn(tx.each) })
	}}
}

// Connections returns the store of the connections of execs.
func (db *DB) Connections() audit.Connections {
	return row.Connections{Database: db.statements(), Tx: func(ctx context.Context, fn func(row.Run) error) error {
		return db.inTx(ctx, func(tx tx) error { return fn(tx.each) })
	}}
}

// Webhooks returns the store of webhooks.
func (db *DB) Webhooks() webhooks.Store { return row.Webhooks{Database: db.statements()} }

// Carrier returns nil: there is one node.
func (db *DB) Carrier() jobs.Carrier { return nil }

// Tokens returns the store of tokens.
func (db *DB) Tokens() tokens.Store { return tokenTable{row.Tokens{Database: db.statements()}, db} }

// Skills returns the registry of skills.
func (db *DB) Skills() skills.Registry {
	return row.Pointers{Database: db.statements(), InsertPins: db.insertPins}
}

// Sandboxes returns the store of the users' sandboxes.
func (db *DB) Sandboxes() sandbox.Choices { return row.Choices{Database: db.statements()} }

// statements is how package row runs its statements here.
func (db *DB) statements() row.Database {
	return row.Database{
		Query: db.lookUp, List: db.query, Snapshot: db.snapshot, Duplicate: duplicate,
		Write: func(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
			return db.inTx(ctx, func(tx tx) error { return tx.each(ctx, each, statement, args...) })
		},
		Recorded:   db.recorded,
		Limits:     db.limits,
		EncodeTime: encodeTime,
		Now:        func(args *row.Params) string { return args.Add(encodeTime(db.clock())) },
		Ago:        func(args *row.Params, d time.Duration) string { return args.Add(encodeTime(db.clock().Add(-d))) },
		NewID:      db.newID,
		Minute:     func(args *row.Params) string { return args.Add(db.clock().Unix() / 60) },
		Settled:    "e.seq", // transactions commit in the order of their events
		OldestTx:   "0",
		NextTx:     "0",
		Later:      "max",
		Hour:       "created_at - created_at % 3600000000", // microseconds
		In:         func(param string) string { return " IN (SELECT value FROM json_each(" + param + "))" },
		Set:        func(values []string) any { list, _ := json.Marshal(values); return string(list) },
		Hidden:     func(column string) string { return "+" + column },
		Leading:    true,
	}
}

// Limits returns the limits of the events that clients cause.
func (db *DB) Limits() *admin.Limits { return db.limits }

// AdminEvents returns the store of administrative events.
func (db *DB) AdminEvents() admin.Store { return row.AdminEvents{Database: db.statements()} }

// recorded is row.Database.Recorded.
func (db *DB) recorded(ctx context.Context, each func(row.Scan) error, e row.Permitted, statement string, args ...any) error {
	return db.inTx(ctx, func(tx tx) error {
		changed := false
		err := tx.each(ctx, func(scan row.Scan) error {
			changed = true
			if each == nil {
				return nil
			}
			return each(scan)
		}, statement, args...)
		if err == nil && changed {
			err = db.insertEvent(tx, e, "")
		}
		return err
	})
}

// insertEvent inserts an administrative event. An empty subject is the event's own.
func (db *DB) insertEvent(tx tx, e row.Permitted, subject string) error {
	var args row.Params
	if subject != "" {
		subject = args.Add(subject)
	}
	statement := db.statements().InsertEvent(&args, e, subject)
	_, err := tx.exec(statement, args...)
	return err
}

// Registry returns the store of the registry of skills and agents.
func (db *DB) Registry() registry.Store {
	return row.Registry{Database: db.statements(), Both: db.both}
}

// both is row.Registry.Both.
func (db *DB) both(ctx context.Context, change string, args []any, then func(first int) string, thenArgs []any) (changed bool, err error) {
	err = db.inTx(ctx, func(tx tx) error {
		n, err := tx.exec(change, args...)
		if changed = n > 0; !changed || err != nil {
			return err
		}
		_, err = tx.exec(then(1), thenArgs...)
		return err
	})
	return changed && err == nil, err
}

// TransparencyLog returns the store of the transparency log.
func (db *DB) TransparencyLog() translog.Store {
	return logStore{row.LogReader{Database: db.statements()}, db}
}

// Retention returns the store of the audit's retention.
func (db *DB) Retention() retention.Store {
	return row.Retention{Database: db.statements(), Tx: func(ctx context.Context, fn func(row.Run) error) error {
		return db.inTx(ctx, func(tx tx) error { return fn(tx.each) })
	}}
}

// OwnImages returns the table of own images.
func (db *DB) OwnImages() catalog.Store { return row.OwnImages{Database: db.statements()} }

// Views returns the store of saved views.
func (db *DB) Views() views.Store { return row.Views{Database: db.statements()} }

// Sessions returns the store of browsers' sessions.
func (db *DB) Sessions() sessions.Store {
	return row.Sessions{Database: db.statements(), Tx: func(ctx context.Context, fn func(row.Run) error) error {
		return db.inTx(ctx, func(tx tx) error { return fn(tx.each) })
	}}
}

// inTx runs fn in one durable write transaction. Its statements must be constant texts.
func (db *DB) inTx(ctx context.Context, fn func(tx tx) error) error {
	if db.closed.Load() {
		return isClosed()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return interpretError(db.writer.run(ctx, fn))
}

// query calls each for each row. It may take long, so only few run at once.
func (db *DB) query(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
	return db.listing(ctx, func(ctx context.Context) error {
		db.watch.Saw(statement, args)
		rows, err := db.read.QueryContext(ctx, statement, args...)
		return every(rows, err, each)
	})
}

// listing calls fn with a permit to list.
func (db *DB) listing(ctx context.Context, fn func(ctx context.Context) error) error {
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
	return interpretError(fn(ctx))
}

// snapshot is row.Database.Snapshot.
func (db *DB) snapshot(ctx context.Context, fn func(row.Run) error) error {
	return db.listing(ctx, func(ctx context.Context) error {
		tx, err := db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // it has only read
		return fn(func(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
			prepared, err := db.prepare(ctx, statement)
			if err != nil {
				return err
			}
			db.watch.Saw(statement, args)
			rows, err := tx.StmtContext(ctx, prepared).QueryContext(ctx, args...)
			return every(rows, err, each)
		})
	})
}

// lookUp is query for a statement whose text is constant: each connection prepares it once.
func (db *DB) lookUp(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
	if db.closed.Load() {
		return isClosed()
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	prepared, err := db.prepare(ctx, statement)
	if err != nil {
		return interpretError(err)
	}
	db.watch.Saw(statement, args)
	rows, err := prepared.QueryContext(ctx, args...)
	return interpretError(every(rows, err, each))
}

func (db *DB) prepare(ctx context.Context, statement string) (*sql.Stmt, error) {
	if known, ok := db.prepared.Load(statement); ok {
		return known.(*sql.Stmt), nil
	}
	fresh, err := db.read.PrepareContext(ctx, statement) // may wait for a connection, so without the lock
	if err != nil {
		return nil, err
	}
	known, loaded := db.prepared.LoadOrStore(statement, fresh)
	if loaded { // another goroutine was faster
		fresh.Close()
	}
	return known.(*sql.Stmt), nil
}

// every calls each for each row.
func every(rows *sql.Rows, err error, each func(row.Scan) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func isClosed() error {
	return fault.New(fault.DatabaseUnavailable, "the database is closed: this process is ending")
}

func encodeTime(t time.Time) any { return t.UnixMicro() }
