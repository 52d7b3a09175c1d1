package row

import (
	"context"
	"strings"

	"secbox/audit"
)

// Connections implements audit.Connections. Tx runs statements of constant text in one durable
// transaction.
type Connections struct {
	Database
	Tx func(ctx context.Context, fn func(run Run) error) error
}

const connectionColumns = "exec_id, seq, protocol, host, port, address, allowed, rule, secrets, bytes_out, bytes_in, started_at, ended_at," +
	" ending, detail"

// SaveConnections implements audit.Connections.
func (db Connections) SaveConnections(ctx context.Context, rows []audit.Connection) error {
	return db.Tx(ctx, func(run Run) error {
		for _, c := range rows {
			var ended any
			if !c.EndedAt.IsZero() {
				ended = db.stored(c.EndedAt)
			}
			err := run(ctx, nil, "INSERT INTO sandbox_connections ("+connectionColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,"+
				" $13, $14, $15) ON CONFLICT (exec_id, seq) DO UPDATE SET address = excluded.address, allowed = excluded.allowed,"+
				" rule = excluded.rule, secrets = excluded.secrets, bytes_out = excluded.bytes_out, bytes_in = excluded.bytes_in,"+
				" ended_at = excluded.ended_at, ending = excluded.ending, detail = excluded.detail",
				c.ExecID, c.Seq, string(c.Protocol), Text(c.Host), c.Port, Text(c.Address), c.Allowed, Text(c.Rule),
				Text(strings.Join(c.Secrets, " ")), c.BytesOut, c.BytesIn, db.stored(c.StartedAt), ended, string(c.End), Text(c.Detail))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func scanConnection(scan Scan) (c audit.Connection, err error) {
	var secrets string
	err = scan(&c.ExecID, &c.Seq, (*string)(&c.Protocol), &c.Host, &c.Port, &c.Address, &c.Allowed, &c.Rule, &secrets, &c.BytesOut,
		&c.BytesIn, timeInto{&c.StartedAt}, timeInto{&c.EndedAt}, (*string)(&c.End), &c.Detail)
	c.StartedAt, c.EndedAt = c.StartedAt.UTC(), c.EndedAt.UTC()
	c.Secrets = strings.Fields(secrets)
	return c, err
}

// Connections implements audit.Connections.
func (db Connections) Connections(ctx context.Context, execID string, after int64, limit int) ([]audit.Connection, error) {
	return connectionsOf(ctx, db.Query, execID, after, limit)
}

func connectionsOf(ctx context.Context, run Run, execID string, after int64, limit int) ([]audit.Connection, error) {
	return All(ctx, run, scanConnection, "SELECT "+connectionColumns+" FROM sandbox_connections WHERE exec_id = $1 AND seq > $2"+
		" ORDER BY seq LIMIT $3", Text(execID), after, limit)
}

// LoseConnections ends the open connections of a node's running execs, which are about to be lost,
// and sums up all connections in the rows of the execs. run runs statements of constant text in a
// transaction.
func (db Database) LoseConnections(ctx context.Context, run Run, nodeID string) error {
	execs, err := All(ctx, run, Value[string], "SELECT e.exec_id FROM sandbox_execs AS e WHERE e.node_id = $1 AND e.status = 'running'"+
		" AND EXISTS (SELECT 1 FROM sandbox_connections AS c WHERE c.exec_id = e.exec_id)", Text(nodeID))
	if err != nil {
		return err
	}
	for _, execID := range execs {
		args := Params{execID, lostConnection}
		err := run(ctx, nil, "UPDATE sandbox_connections SET ended_at = "+db.Now(&args)+", ending = 'lost', detail = $2 WHERE exec_id = $1"+
			" AND ended_at IS NULL", args...)
		if err != nil {
			return err
		}
		rows, err := connectionsOf(ctx, run, execID, 0, audit.MaxConnections)
		if err != nil {
			return err
		}
		t := audit.TrafficOf(rows)
		err = run(ctx, nil, "UPDATE sandbox_execs SET net_connections = $2, net_denied = $3, net_bytes_out = $4, net_bytes_in = $5,"+
			" net_digest = $6, net_marks = $7 WHERE exec_id = $1",
			execID, t.Connections, t.Denied, t.BytesOut, t.BytesIn, t.Digest, t.Marks)
		if err != nil {
			return err
		}
	}
	return nil
}

// lostConnection is the detail of a connection that LoseConnections ended.
const lostConnection = "the node ended while the connection was open; more bytes than these may have been carried"

// Traffic implements translog.Store.
func (db LogReader) Traffic(ctx context.Context, execID string) (audit.Traffic, error) {
	rows, err := connectionsOf(ctx, db.Query, execID, 0, audit.MaxConnections+1)
	return audit.TrafficOf(rows), err
}
