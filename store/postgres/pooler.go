package postgres

import (
	"context"
	"errors"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"secbox/fault"
)

// A connection pooler such as PgBouncer may run each transaction of a connection in another session
// of the server. What belongs to a session is then lost, or reaches other clients: prepared
// statements, settings, locks. So behind a pooler nothing lives longer than a transaction, whatever
// the pooler pools: its administrator may change that while this program runs.

// The server's own timeouts, in case this process cannot stop a statement: a little less than
// callTimeout.
const (
	statementTimeout = "4500ms"
	idleInTxTimeout  = "10s"
)

var (
	sessionSettings     = settings(false)
	transactionSettings = settings(true)
)

// settings is the query that configures a session or, if local, the transaction in which it runs.
// Timeouts; commits that survive a crash (a stricter synchronous_commit than "on" is kept); UTC,
// since events have times as text. Bitmap scans are off because they lose the order of an index:
// for the fifty execs of a task the planner would read them unordered and sort, which is right for
// fifty execs and wrong for a million. Nothing else here is large enough to need them. Materialized
// joins are off because without statistics, as after a restore, the planner would join each event
// of a page with the whole transparency log. Statements are not compiled (jit): the planner
// overestimates those with a limit, and compiling takes a second where running takes milliseconds.
func settings(local bool) string {
	set := func(name, value string) string {
		return "set_config('" + name + "', '" + value + "', " + strconv.FormatBool(local) + ")"
	}
	return "SELECT " + set("statement_timeout", statementTimeout) + ", " + set("idle_in_transaction_session_timeout", idleInTxTimeout) +
		", " +
		set("enable_bitmapscan", "off") + ", " + set("enable_material", "off") + ", " + set("jit", "off") + ", " + set("TimeZone", "UTC") +
		", CASE WHEN current_setting('synchronous_commit') = 'off' THEN " + set("synchronous_commit", "on") + " END"
}

// setUp configures a new session in one round trip. It fails when a pooler has come since Open.
func setUp(ctx context.Context, conn *pgx.Conn) error {
	done, err := conn.Exec(ctx, sessionSettings+" WHERE pg_backend_pid()::bigint = $1", pgx.QueryExecModeExec, int64(conn.PgConn().PID()))
	if err == nil && done.RowsAffected() == 0 {
		return fault.New(fault.DatabaseUnavailable,
			"a connection pooler answers at database_url, and did not when this core-api started; restart it, so that it uses the pooler "+
				"as one")
	}
	return err
}

// begin returns the options of a transaction that the statement begins.
func (db *DB) begin(statement string) pgx.TxOptions {
	if db.pooled {
		statement += "; " + transactionSettings
	}
	return pgx.TxOptions{BeginQuery: statement}
}

// batch returns a batch for statements that the server runs as one transaction.
func (db *DB) batch() *pgx.Batch {
	batch := &pgx.Batch{}
	if db.pooled {
		batch.Queue(transactionSettings)
	}
	return batch
}

// behindPooler reports whether a connection pooler answers. A server tells its clients the id of
// its process, for canceling statements. A pooler tells an id of its own, since the process
// changes. It fails with fault.InvalidSettings for a pooler that has no transactions.
func behindPooler(ctx context.Context, cfg *pgx.ConnConfig) (bool, error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, "SELECT pg_backend_pid()").ReadAll() // in the protocol that every pooler has
	if err != nil {
		return false, err
	}
	if len(results) == 1 && len(results[0].Rows) == 1 && string(results[0].Rows[0][0]) == strconv.FormatUint(uint64(conn.PgConn().PID()),
		10) {
		return false, nil
	}
	if _, err = conn.Exec(ctx, "BEGIN"); err == nil {
		_, err = conn.Exec(ctx, "ROLLBACK")
	}
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == "08P01" { // protocol_violation
		return true, fault.Wrap(fault.InvalidSettings, err, "database_url: the connection pooler there allows no transactions; "+
			"let it pool transactions or sessions (pool_mode of PgBouncer)")
	}
	return true, err
}

// choosesMode reports whether the URL says how statements are sent. Behind a pooler that pools
// sessions, prepared ones work and save time.
func choosesMode(databaseURL string) bool {
	u, err := url.Parse(databaseURL)
	return err == nil && u.Query().Has("default_query_exec_mode")
}
