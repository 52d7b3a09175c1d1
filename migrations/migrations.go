// Package migrations brings a database to the schema that this program needs. The SQL is embedded, one folder per database.
//
// Migrations only go forward: audit history is not something to roll back. Several nodes may start at once on one database; one of
// them migrates, the others wait for it. The package knows no driver: it is given an open *sql.DB.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"secbox/lockfile"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Result says what a migration did.
type Result struct {
	Applied int   // migrations applied by this call; 0 when there was nothing to do or another node did it
	Version int64 // the schema's version now
}

// The advisory lock that migrating nodes take in PostgreSQL: "secbox" in ASCII. Ours, so that another program that uses goose on
// the same server is not waited for.
const lockID = 0x736563626f78

// Waiting for another node that migrates: seconds between two looks, and looks until giving up.
const (
	lockPeriodSeconds = 1
	lockLooks         = 120
)

// UpPostgres applies what is missing. It holds a session's advisory lock meanwhile, so a connection pooler between this program
// and PostgreSQL must pool sessions, not transactions.
func UpPostgres(ctx context.Context, db *sql.DB) (Result, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(lockPeriodSeconds, lockLooks))
	if err != nil {
		return Result{}, fmt.Errorf("make the migration lock: %w", err)
	}
	return up(ctx, db, goose.DialectPostgres, "postgres", goose.WithSessionLocker(locker))
}

// UpSQLite applies what is missing to the database in the file path. It holds a lock on the file path+".migrate" meanwhile; that file
// stays, empty, because removing it would let two processes lock two different files of that name.
func UpSQLite(ctx context.Context, db *sql.DB, path string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, lockPeriodSeconds*lockLooks*time.Second)
	defer cancel()
	file, err := os.OpenFile(path+".migrate", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return Result{}, fmt.Errorf("open the migration lock of %s: %w", path, err)
	}
	defer lockfile.Close(file)
	if err := lockfile.Wait(ctx, file, lockfile.Exclusive, nil); err != nil {
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
		return Result{}, fmt.Errorf("migrate: %w", err)
	}
	version, err := provider.GetDBVersion(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("read the schema's version: %w", err)
	}
	return Result{Applied: len(applied), Version: version}, nil
}
