package row

import (
	"context"
	"time"

	"secbox/nodes"
)

// Nodes implements nodes.Store.
type Nodes struct {
	Database
	// Tx calls fn in one durable transaction, with functions that run statements of constant text, and that do what audit.Store.LoseOpen does.
	Tx func(ctx context.Context, fn func(run Run, lose func(nodeID string) ([]string, error)) error) error
}

const nodeColumns = "node_id, name, version, address, started_at, seen_at, lease_until, epoch, draining"

// leased is the condition that the lease of a node was not retired.
func leased(param string) string {
	return "NOT EXISTS (SELECT 1 FROM nodes AS n WHERE n.node_id = " + param + " AND n.epoch > 0 AND n.lease_until IS NULL)"
}

// until is the end of a lease that begins now.
func (db Nodes) until(args *Params, lease time.Duration) string { return db.Ago(args, -lease) }

// Join implements nodes.Store.
func (db Nodes) Join(ctx context.Context, n nodes.Node, lease time.Duration) (int64, error) {
	args := Params{Text(n.NodeID), Text(n.Name), Text(n.Version), Text(n.Address), db.stored(n.StartedAt)}
	statement := "INSERT INTO nodes AS n (node_id, name, version, address, started_at, seen_at, lease_until, epoch) VALUES ($1, $2, $3, $4, $5, " +
		db.Now(&args) + ", " + db.until(&args, lease) + ", 1)" +
		" ON CONFLICT (node_id) DO UPDATE SET name = excluded.name, version = excluded.version, address = excluded.address, started_at = excluded.started_at," +
		" seen_at = excluded.seen_at, lease_until = excluded.lease_until, epoch = n.epoch + 1, draining = false RETURNING epoch"
	epoch, _, err := One(ctx, db.Write, Value[int64], statement, args...)
	return epoch, err
}

// Renew implements nodes.Store.
func (db Nodes) Renew(ctx context.Context, nodeID string, epoch int64, lease time.Duration) (held, draining bool, err error) {
	args := Params{Text(nodeID), epoch}
	statement := "UPDATE nodes SET seen_at = " + db.Now(&args) + ", lease_until = " + db.until(&args, lease) + " WHERE node_id = $1 AND epoch = $2 RETURNING draining"
	draining, held, err = One(ctx, db.Write, Value[bool], statement, args...)
	return held, draining, err
}

// Leave implements nodes.Store.
func (db Nodes) Leave(ctx context.Context, nodeID string, epoch int64) error {
	args := Params{Text(nodeID), epoch}
	return db.Write(ctx, nil, "UPDATE nodes SET seen_at = "+db.Now(&args)+", lease_until = NULL WHERE node_id = $1 AND epoch = $2", args...)
}

// Retire implements nodes.Store. A node whose version has no leases is seen, so that one that was downgraded is not retired.
func (db Nodes) Retire(ctx context.Context, self string, unseen time.Duration) (*nodes.Retired, error) {
	var args Params
	ended := db.leaseEnded(&args, unseen)
	nodeID, found, err := One(ctx, db.Query, Value[string], "SELECT n.node_id FROM nodes AS n WHERE n.node_id <> "+args.Add(Text(self))+ended+
		" AND (n.lease_until IS NOT NULL OR EXISTS (SELECT 1 FROM sandbox_execs AS e WHERE e.node_id = n.node_id AND e.status IN ('queued', 'running'))"+
		" OR EXISTS (SELECT 1 FROM sandbox_exec_jobs AS j JOIN sandbox_execs AS e ON e.exec_id = j.exec_id"+
		" WHERE j.taken_by <> '' AND j.taken_by = n.node_id AND e.status = 'queued')) ORDER BY n.node_id LIMIT 1", args...)
	if err != nil || !found {
		return nil, err
	}
	r, still := nodes.Retired{NodeID: nodeID}, false
	err = db.Tx(ctx, func(run Run, lose func(string) ([]string, error)) error {
		args := Params{}
		ended := db.leaseEnded(&args, unseen)
		var err error
		_, still, err = One(ctx, run, Value[int64], "UPDATE nodes AS n SET lease_until = NULL, epoch = epoch + 1 WHERE n.node_id = "+args.Add(Text(nodeID))+ended+" RETURNING epoch", args...)
		if err != nil || !still { // renewed meanwhile
			return err
		}
		if r.Lost, err = lose(nodeID); err != nil {
			return err
		}
		returned, err := All(ctx, run, Value[string], returnAll, Text(nodeID))
		r.Returned = len(returned)
		return err
	})
	if err != nil || !still {
		return nil, err
	}
	return &r, nil
}

// leaseEnded is the condition that a node n has leases, and none now.
func (db Nodes) leaseEnded(args *Params, unseen time.Duration) string {
	return " AND n.epoch > 0 AND (n.lease_until IS NULL OR n.lease_until <= " + db.Now(args) + ") AND n.seen_at <= " + db.Ago(args, unseen)
}

// List implements nodes.Store.
func (db Nodes) List(ctx context.Context, within time.Duration) ([]nodes.Node, error) {
	var args Params
	return All(ctx, db.Query, scanNode, "SELECT "+nodeColumns+" FROM nodes WHERE seen_at > "+db.Ago(&args, within)+" ORDER BY node_id", args...)
}

func scanNode(scan Scan) (nodes.Node, error) {
	var n nodes.Node
	err := scan(&n.NodeID, &n.Name, &n.Version, &n.Address, timeInto{&n.StartedAt}, timeInto{&n.SeenAt}, timeInto{&n.LeaseUntil}, &n.Epoch, &n.Draining)
	return n, err
}
