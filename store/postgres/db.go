// Package postgres stores audit records, tokens and the pointers of skills in PostgreSQL 13 or
// later, for any number of nodes. It is one of the two packages that import a database driver; it
// knows SQL and not the meaning of records.
//
// Every method but Pin, Revoke and the methods of retention is one statement, often with several
// parts in a WITH, and so one round trip; behind a connection pooler, a list takes three. Passwords
// never get into errors.
package postgres

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"

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
	connectTimeout = 3 * time.Second // of one attempt to one host, unless the URL asks for less
	callTimeout    = 5 * time.Second // of every method, with its wait for a connection
)

// DB is an open database. Its methods are safe for concurrent use.
type DB struct {
	pool   *pgxpool.Pool
	pooled bool // a connection pooler answers at the address
	rings  *river.Client[pgx.Tx]
	reads  permits // all connections but one, so that a write, such as an exec's row, never waits for readers
	lists  permits // of reads: half of the connections, so that looking up a token never waits for lists
	watch  *row.Watch

	limits *admin.Limits
}

// Open connects and migrates. It fails with fault.InvalidSettings for a URL that cannot be parsed,
// and with fault.DatabaseUnavailable for a server that cannot be reached, refuses or does not
// answer within some seconds. Behind a connection pooler, the DB needs nothing that belongs to a
// session of the server but notifications, see Carrier.
func Open(ctx context.Context, databaseURL string) (*DB, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, badURL(err)
	}
	if cfg.ConnConfig.ConnectTimeout <= 0 || cfg.ConnConfig.ConnectTimeout > connectTimeout {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "secbox"
	}
	db := &DB{
		reads: make(permits, max(1, cfg.MaxConns-1)), lists: make(permits, max(1, cfg.MaxConns/2)), watch: &row.Watch{},
		limits: admin.NewLimits(),
	}
	if err := db.reach(ctx, cfg.ConnConfig); err != nil {
		return nil, err
	}
	if !db.pooled {
		cfg.AfterConnect = setUp
	} else if !choosesMode(databaseURL) {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	migrating := cfg.ConnConfig.Copy()
	cfg.ConnConfig.Tracer = tracer{db.watch}
	if db.rings, err = newRinger(); err != nil {
		return nil, interpretError(err)
	}
	if db.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, interpretError(err)
	}
	// Another connection, since a migration may take longer than the timeouts of a statement.
	one := stdlib.OpenDB(*migrating)
	defer one.Close()
	_, err = migrations.UpPostgres(ctx, one)
	if err == nil {
		err = migrateRiver(ctx, db.pool, one)
	}
	if err != nil {
		db.pool.Close()
		return nil, interpretError(err)
	}
	return db, nil
}

// reach connects once, so that a server that is down is noticed before the migration, and looks for
// a connection pooler.
func (db *DB) reach(ctx context.Context, cfg *pgx.ConnConfig) error {
	return db.call(ctx, func(ctx context.Context) (err error) {
		db.pooled, err = behindPooler(ctx, cfg)
		return err
	})
}

// badURL is the error of an invalid URL. It repeats neither the URL nor the parser's message, since
// both may contain the password.
func badURL(err error) error {
	bad := fault.New(fault.InvalidSettings,
		"database_url: not a valid PostgreSQL URL; write it like postgres://user:password@host:5432/database?sslmode=require")
	bad.Fields = []fault.Field{{Field: "database_url", Reason: "not a valid PostgreSQL URL"}}
	if file := (*fs.PathError)(nil); errors.As(err, &file) { // a certificate that the URL names
		bad.Message += "; cannot read a file that it names: " + file.Path
		bad.Err = file
	}
	return bad
}

// Close waits for running calls and closes the connections. Safe to call twice.
func (db *DB) Close() error {
	db.pool.Close()
	return nil
}

// Kind returns "postgres", for health and logs.
func (db *DB) Kind() string { return "postgres" }

// Audit returns the store of audit records.
func (db *DB) Audit() audit.Store { return records{row.Records{Database: db.statements()}, db} }

// Jobs returns the store of the jobs of asynchronous execs.
func (db *DB) Jobs() jobs.Store {
	return row.Jobs{Database: db.statements(), Lock: " FOR UPDATE SKIP LOCKED"}
}

// Nodes returns the store of nodes.
func (db *DB) Nodes() nodes.Store {
	return row.Nodes{Database: db.statements(), Tx: func(ctx context.Context,
		fn func(row.Run, func(string) ([]string, error)) error,
	) error {
		return db.inTx(ctx, func(run row.Run) error {
			return fn(run, func(nodeID string) ([]string, error) { return db.loseOpen(ctx, run, nodeID, nil) })
		})
	}}
}

// Samples returns the store of the nodes' numbers.
func (db *DB) Samples() samples.Store {
	return row.Samples{Database: db.statements(), Tx: db.inTx}
}

// Connections returns the store of the connections of execs.
func (db *DB) Connections() audit.Connections {
	return row.Connections{Database: db.statements(), Tx: db.inTx}
}

// Webhooks returns the store of webhooks.
func (db *DB) Webhooks() webhooks.Store {
	return row.Webhooks{Database: db.statements(), Lock: " FOR UPDATE SKIP LOCKED"}
}

// Tokens returns the store of tokens.
func (db *DB) Tokens() tokens.Store { return tokenTable{row.Tokens{Database: db.statements()}} }

// Skills returns the registry of skills.
func (db *DB) Skills() skills.Registry {
	return row.Pointers{Database: db.statements(), InsertPins: db.insertPins}
}

// Sandboxes returns the store of the users' sandboxes.
func (db *DB) Sandboxes() sandbox.Choices { return row.Choices{Database: db.statements()} }

// statements is how package row runs its statements here.
func (db *DB) statements() row.Database {
	return row.Database{
		Query: db.read, List: db.list, Write: db.run, Snapshot: db.snapshot, Duplicate: duplicate,
		Recorded:   db.recorded,
		Limits:     db.limits,
		EncodeTime: encodeTime,
		Now:        func(*row.Params) string { return "statement_timestamp()" },
		Ago: func(args *row.Params, d time.Duration) string {
			return "statement_timestamp() - " + args.Add(d.Microseconds()) + " * interval '1 microsecond'"
		},
		NewID:   func(*row.Params) string { return newID },
		Minute:  func(*row.Params) string { return "floor(extract(epoch FROM statement_timestamp()) / 60)::bigint" },
		Settled: "CASE WHEN s.mark_xid <= pg_snapshot_xmin(pg_current_snapshot()) THEN s.mark_seq ELSE 0 END",
		// The xmax of a snapshot would not do as NextTx: transactions at or above it may be in
		// progress, with a seq that they have taken.
		OldestTx: "pg_snapshot_xmin(pg_current_snapshot())::text::bigint", NextTx: "pg_current_xact_id()::text::bigint",
		Later:  "greatest",
		Hour:   "date_trunc('hour', created_at, 'UTC')",
		In:     func(param string) string { return " = ANY (" + param + ")" },
		Set:    func(values []string) any { return values },
		Hidden: func(column string) string { return column + " || ''" },
	}
}

// Limits returns the limits of the events that clients cause.
func (db *DB) Limits() *admin.Limits { return db.limits }

// AdminEvents returns the store of administrative events.
func (db *DB) AdminEvents() admin.Store { return row.AdminEvents{Database: db.statements()} }

// recorded is row.Database.Recorded, in one statement.
func (db *DB) recorded(ctx context.Context, each func(row.Scan) error, e row.Permitted, statement string, args ...any) error {
	params := append(row.Params{}, args...)
	event := db.statements().InsertEvent(&params, e, "")
	return db.run(ctx, func(scan row.Scan) error {
		if each == nil {
			return nil
		}
		return each(scan)
	}, "WITH done AS ("+statement+"), event AS ("+event+" FROM done LIMIT 1) SELECT * FROM done", params...)
}

// Registry returns the store of the registry of skills and agents.
func (db *DB) Registry() registry.Store {
	return row.Registry{Database: db.statements(), Both: db.both}
}

// TransparencyLog returns the store of the transparency log.
func (db *DB) TransparencyLog() translog.Store {
	return logStore{row.LogReader{Database: db.statements()}}
}

// Retention returns the store of the audit's retention.
func (db *DB) Retention() retention.Store {
	return row.Retention{Database: db.statements(), Lock: " FOR UPDATE OF e SKIP LOCKED", Tx: db.inTx}
}

// OwnImages returns the table of own images.
func (db *DB) OwnImages() catalog.Store { return row.OwnImages{Database: db.statements()} }

// Views returns the store of saved views.
func (db *DB) Views() views.Store { return row.Views{Database: db.statements()} }

// Sessions returns the store of browsers' sessions.
func (db *DB) Sessions() sessions.Store {
	return row.Sessions{Database: db.statements(), Tx: db.inTx}
}

// inTx is row.Retention.Tx, and row.Sessions.Tx.
func (db *DB) inTx(ctx context.Context, fn func(row.Run) error) error {
	return db.tx(ctx, func(_ context.Context, _ pgx.Tx, run row.Run) error { return fn(run) })
}

// tx calls fn in a transaction.
func (db *DB) tx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx, run row.Run) error) error {
	return db.call(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, db.pool, db.begin("BEGIN"), func(tx pgx.Tx) error {
			return fn(ctx, tx, func(_ context.Context, each func(row.Scan) error, statement string, args ...any) error {
				return every(ctx, tx, each, statement, args...)
			})
		})
	})
}

// both is row.Registry.Both, in one statement.
func (db *DB) both(ctx context.Context, change string, args []any, then func(first int) string, thenArgs []any) (changed bool, err error) {
	statement := "WITH done AS (" + change + " RETURNING 1) " + then(len(args)+1) + " FROM done"
	err = db.call(ctx, func(ctx context.Context) error {
		batch := db.batch()
		batch.Queue(statement, append(args, thenArgs...)...).Exec(func(done pgconn.CommandTag) error {
			changed = done.RowsAffected() == 1
			return nil
		})
		return db.pool.SendBatch(ctx, batch).Close()
	})
	return changed && err == nil, err
}

// call runs fn within bounded time, and once more when the connection was dead before anything was
// sent over it.
func (db *DB) call(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := fn(ctx)
	if err != nil && pgconn.SafeToRetry(err) && ctx.Err() == nil {
		err = fn(ctx)
	}
	return interpretError(err)
}

// run is a row.Run for every statement: a single one is a transaction.
func (db *DB) run(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
	return db.call(ctx, func(ctx context.Context) error { return db.alone(ctx, each, statement, args...) })
}

// read is run for statements that only read.
func (db *DB) read(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
	return db.call(ctx, func(ctx context.Context) error {
		return db.reads.with(ctx, func() error { return db.alone(ctx, each, statement, args...) })
	})
}

// alone calls each for each row of the result of a statement that is a transaction of its own.
func (db *DB) alone(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
	if !db.pooled {
		return every(ctx, db.pool, each, statement, args...)
	}
	batch := db.batch()
	batch.Queue(statement, args...).Query(func(rows pgx.Rows) error { return scanAll(rows, each) })
	return db.pool.SendBatch(ctx, batch).Close()
}

// snapshot is row.Database.Snapshot.
func (db *DB) snapshot(ctx context.Context, fn func(row.Run) error) error {
	return db.listing(ctx, func() error {
		return db.call(ctx, func(ctx context.Context) error {
			return db.reads.with(ctx, func() error {
				return pgx.BeginTxFunc(ctx, db.pool, db.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"), func(tx pgx.Tx) error {
					return fn(func(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
						return every(ctx, tx, each, statement, args...)
					})
				})
			})
		})
	})
}

// every calls each for each row of the result of a statement.
func every(ctx context.Context, on interface {
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
}, each func(row.Scan) error, statement string, args ...any,
) error {
	rows, err := on.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	return scanAll(rows, each)
}

func scanAll(rows pgx.Rows, each func(row.Scan) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// list is read with a permit to list, and with QueryExecModeCacheDescribe, which plans a list for
// the actual values. A prepared statement would finally get a generic plan, for a task_id of
// average frequency. A batch, as alone sends it to a pooler, could not choose the mode.
func (db *DB) list(ctx context.Context, each func(row.Scan) error, statement string, args ...any) error {
	args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
	if db.pooled {
		return db.snapshot(ctx, func(run row.Run) error { return run(ctx, each, statement, args...) })
	}
	return db.listing(ctx, func() error {
		return db.read(ctx, each, statement, args...)
	})
}

// listing calls fn with a permit to list. Waiting for it has a timeout of its own.
func (db *DB) listing(ctx context.Context, fn func() error) error {
	waiting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return interpretError(db.lists.with(waiting, fn))
}

// permits has an element for each statement of a sort that runs now.
type permits chan struct{}

// with calls fn with a permit, for which it waits until ctx ends.
func (p permits) with(ctx context.Context, fn func() error) error {
	select {
	case p <- struct{}{}:
		defer func() { <-p }()
		return fn()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func encodeTime(t time.Time) any { return t }
