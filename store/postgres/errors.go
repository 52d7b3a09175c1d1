package postgres

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"secbox/store/internal/row"
)

func interpretError(err error) error { return row.Interpret(err, unavailable) }

// What to do about errors of the server, by their code or else its class:
// https://www.postgresql.org/docs/current/errcodes-appendix.html
var (
	byCode = map[string]string{
		// protocol_violation
		"08P01": "the connection pooler at database_url refused; its log has the cause, such as a limit or an unknown parameter",
		// read_only_sql_transaction
		"25006": "the database is read-only; is database_url a standby?",
		// disk_full
		"53100": "the database server's disk is full; make room there",
		// too_many_connections
		"53300": "the database server takes no more connections; raise max_connections there or set pool_max_conns in database_url",
		// query_canceled: statement_timeout
		"57014": "the database did not answer in time; try again",
		// lock_not_available
		"55P03": "the database is busy with another transaction; try again",
		// serialization_failure
		"40001": "the database is busy with another transaction; try again",
		// deadlock_detected
		"40P01": "the database is busy with another transaction; try again",
		// invalid_catalog_name
		"3D000": "the database that database_url names does not exist; create it",
	}
	byClass = map[string]string{
		"28": "the database server refused the login; check user and password in database_url", // invalid authorization
		"08": cannotServe,                                                                      // connection
		"53": cannotServe,                                                                      // resources
		"57": cannotServe,                                                                      // operator
		"58": cannotServe,                                                                      // system
		"XX": cannotServe,                                                                      // internal or damaged
	}
)

const cannotServe = "the database server cannot serve now; its log has the cause"

// unavailable says what to do about a server that cannot serve now; "" for other errors.
func unavailable(err error) string {
	var fromServer *pgconn.PgError
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &fromServer) && fromServer.Code == "42501": // insufficient_privilege
		return "the database user may not do this: " + fromServer.Message + "; it must own the database's schema and have all rights in it"
	case errors.As(err, &fromServer) && len(fromServer.Code) == 5:
		return cmp.Or(byCode[fromServer.Code], byClass[fromServer.Code[:2]])
	case errors.As(err, &connect):
		return "the database server cannot be reached; check that it runs and that database_url is right"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), pgconn.Timeout(err):
		return "the database did not answer in time; try again"
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		pgconn.SafeToRetry(err), errors.Is(err, puddle.ErrClosedPool):
		return "the connection to the database was lost; try again"
	}
	return ""
}

// duplicate reports whether a unique column holds the value already.
func duplicate(err error) bool {
	var fromServer *pgconn.PgError
	return errors.As(err, &fromServer) && fromServer.Code == "23505" // unique_violation
}
