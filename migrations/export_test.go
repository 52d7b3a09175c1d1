package migrations

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// LockID is the advisory lock of a migrating node.
const LockID = lockID

// UpTo migrates a database to an older version, as an older core-api did.
func UpTo(ctx context.Context, db *sql.DB, kind string, version int64) error {
	dialect := map[string]goose.Dialect{"sqlite": goose.DialectSQLite3, "postgres": goose.DialectPostgres}[kind]
	folder, err := fs.Sub(files, kind)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, db, folder, goose.WithDisableGlobalRegistry(true))
	if err == nil {
		_, err = provider.UpTo(ctx, version)
	}
	return err
}
