package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/pressly/goose/v3"

	"secbox/internal/lockfile"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Result is the outcome of a migration.
type Result struct {
	Applied int   // migrations applied by this call; 0 when nothing was missing or another node migrated
	Version int64 // of the schema now
}

// lockID is the advisory lock of migrating nodes in PostgreSQL: "secbox" in ASCII. It differs from
// goose's default, so that no node waits for another program that uses goose on the same server.
const lockID = 0x736563626f78

// How long a node waits for another that migrates.
const (
	lockPeriodSeconds = 1 // between two attempts
	lockAttempts      = 120
)

// UpPostgres applies the missing migrations. It needs two connections at once: one holds the lock.
func UpPostgres(ctx context.Context, db *sql.DB) (Result, error) {
	return up(ctx, db, goose.DialectPostgres, "postgres", goose.WithLocker(&postgresLock{}))
}

// postgresLock implements lock.Locker of goose. The advisory lock belongs to a transaction, not to
// a session: a connection pooler may run the statements of a connection in several sessions, and
// keeps the session that has a lock.
type postgresLock struct{ holder *sql.Tx }

// Lock waits for another node that migrates. Each attempt is a transaction, so that a waiting node
// holds no snapshot and no session of a pooler.
func (l *postgresLock) Lock(ctx context.Context, db *sql.DB) error {
	for range lockAttempts {
		locked, err := l.try(ctx, db)
		if err != nil || locked {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockPeriodSeconds * time.Second):
		}
	}
	return fmt.Errorf("another node has held the migration lock for %d seconds; start this node again when that migration has ended",
		lockPeriodSeconds*lockAttempts)
}

func (l *postgresLock) try(ctx context.Context, db *sql.DB) (locked bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() {
		if !locked {
			_ = tx.Rollback() // there is nothing to undo
		}
	}()
	// The transaction is idle while the migrations run. Servers before 17 have no
	// transaction_timeout.
	if _, err := tx.ExecContext(ctx, "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN"+
		" ('idle_in_transaction_session_timeout', 'transaction_timeout')"); err != nil {
		return false, err
	}
	l.holder = tx
	err = tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock($1)", int64(lockID)).Scan(&locked)
	return locked, err
}

// Unlock ends the transaction, which the end of Lock's context may have done already.
func (l *postgresLock) Unlock(context.Context, *sql.DB) error {
	if err := l.holder.Rollback(); !errors.Is(err, sql.ErrTxDone) {
		return err
	}
	return nil
}

// Alone runs fn, which migrates tables of a library, while no other node migrates the PostgreSQL
// database.
func Alone(ctx context.Context, db *sql.DB, fn func(ctx context.Context) error) (err error) {
	var lock postgresLock
	if err := lock.Lock(ctx, db); err != nil {
		return fmt.Errorf("wait for another node that migrates: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx, db)) }()
	return fn(ctx)
}

// UpSQLite applies the missing migrations to the database in the file path. It holds a lock on the
// file path+".migrate" meanwhile. That file stays, empty: after removing it, two processes could
// lock two different files of that name.
func UpSQLite(ctx context.Context, db *sql.DB, path string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, lockPeriodSeconds*lockAttempts*time.Second)
	defer cancel()
	file, err := os.OpenFile(path+".migrate", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return Result{}, fmt.Errorf("open the migration lock of %s: %w", path, err)
	}
	defer lockfile.Close(file)
	if err := lockfile.Wait(ctx, file); err != nil {
		return Result{}, fmt.Errorf("wait for another process that migrates %s: %w", path, err)
	}
	return up(ctx, db, goose.DialectSQLite3, "sqlite")
}

func up(ctx context.Context, db *sql.DB, dialect goose.Dialect, folder string, options ...goose.ProviderOption) (Result, error) {
	sqlFiles, err := fs.Sub(files, folder)
	if err != nil {
		return Result{}, err
	}
	options = append(options, goose.WithDisableGlobalRegistry(true))
	provider, err := goose.NewProvider(dialect, db, sqlFiles, options...)
	if err != nil {
		return Result{}, fmt.Errorf("read the migrations: %w", err)
	}
	applied, err := provider.Up(ctx)
	if err != nil {
		// The driver closes a connection whose query the context ended, and what goose then says of
		// the connection hides the reason.
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return Result{}, fmt.Errorf("migrate: %w", err)
	}
	version, err := provider.GetDBVersion(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("read the schema's version: %w", err)
	}
	return Result{Applied: len(applied), Version: version}, nil
}
