package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"secbox/fault"
)

// interpretError turns what the driver says into the codes that callers know. A fault passes as it is; a caller that gave up
// gets its own context.Canceled back.
func interpretError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if known := (*fault.Error)(nil); errors.As(err, &known) {
		return err
	}
	unavailable := func(message string) error { return fault.Wrap(fault.DatabaseUnavailable, err, "%s", message) }

	var fromServer *pgconn.PgError
	if errors.As(err, &fromServer) && len(fromServer.Code) == 5 {
		// https://www.postgresql.org/docs/current/errcodes-appendix.html
		switch fromServer.Code {
		case "25006": // read_only_sql_transaction
			return unavailable("the database is read-only; is database_url a standby?")
		case "53100": // disk_full
			return unavailable("the database server's disk is full; make room there")
		case "53300": // too_many_connections
			return unavailable("the database server takes no more connections; raise max_connections there or set pool_max_conns in database_url")
		case "57014": // query_canceled: statement_timeout
			return unavailable("the database did not answer in time; try again")
		case "55P03", "40001", "40P01": // lock_not_available, serialization_failure, deadlock_detected
			return unavailable("the database is busy with another transaction; try again")
		case "3D000": // invalid_catalog_name
			return unavailable("the database that database_url names does not exist; create it")
		case "42501": // insufficient_privilege
			return unavailable("the database user may not do this; it must own the database's schema")
		}
		switch fromServer.Code[:2] {
		case "28": // invalid authorization
			return unavailable("the database server refused the login; check user and password in database_url")
		case "08", "53", "57", "58", "XX": // connection, resources, operator, system, internal or damaged
			return unavailable("the database server cannot serve now; its log has the cause")
		}
		return fault.Wrap(fault.Internal, err, "the database refused a statement; the server's log has the cause")
	}

	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &connect):
		return unavailable("the database server cannot be reached; check that it runs and that database_url is right")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), pgconn.Timeout(err):
		return unavailable("the database did not answer in time; try again")
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		pgconn.SafeToRetry(err), errors.Is(err, puddle.ErrClosedPool):
		return unavailable("the connection to the database was lost; try again")
	}
	return fault.Wrap(fault.Internal, err, "the database refused a statement; the server's log has the cause")
}

// duplicate reports whether a unique column holds the value already.
func duplicate(err error) bool {
	var fromServer *pgconn.PgError
	return errors.As(err, &fromServer) && fromServer.Code == "23505" // unique_violation
}
