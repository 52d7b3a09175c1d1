package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io/fs"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"secbox/store/internal/row"
)

func interpretError(err error) error { return row.Interpret(err, unavailable) }

// unavailable says what to do about a database that cannot be used now; "" for other errors.
func unavailable(err error) string {
	var fromSQLite *sqlite.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &fromSQLite):
		switch fromSQLite.Code() & 0xff { // the primary code; the rest is detail
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
			return "the database file is locked by another process; end that process and try again"
		case sqlite3.SQLITE_FULL:
			return "the disk with the database file is full; make room in the state dir"
		case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
			return "the database file cannot be written; check the owner and mode of the state dir"
		case sqlite3.SQLITE_CANTOPEN:
			return "the database file cannot be opened; check the owner and mode of the state dir"
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return "the database file is damaged; restore it from a backup"
		case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT:
			return "the database file could not be read or written; the server's log has the cause"
		}
	case errors.Is(err, context.DeadlineExceeded):
		return "the database did not answer in time; try again"
	case errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone), errors.Is(err, driver.ErrBadConn):
		return "the connection to the database was lost; try again"
	case errors.As(err, &path):
		return "the database file cannot be opened; check that the state dir exists and can be written"
	}
	return ""
}

// duplicate reports whether a unique column holds the value already.
func duplicate(err error) bool {
	var fromSQLite *sqlite.Error
	return errors.As(err, &fromSQLite) &&
		(fromSQLite.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || fromSQLite.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE)
}

// busy reports whether another process holds the file's lock.
func busy(err error) bool {
	var fromSQLite *sqlite.Error
	return errors.As(err, &fromSQLite) && fromSQLite.Code()&0xff == sqlite3.SQLITE_BUSY
}
