package row

import (
	"context"
	"time"

	"secbox/audit/admin"
	"secbox/cluster/nodes"
	"secbox/fault"
)

// Nodes implements nodes.Store.
type Nodes struct {
	Database
	// Tx calls fn in one durable transaction, with functions that run statements of constant text,
	// and that do what audit.Store.LoseOpen does.
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
func (db Nodes) Join(ctx context.Context, n nodes.Node, lease time.Duration) (epoch int64, err error) {
	err = db.Tx(ctx, func(run Run, _ func(string) ([]string, error)) error {
		// The lock lets one of two nodes that join at once see the other.
		if err := run(ctx, nil, "UPDATE installation SET id = id"); err != nil {
			return err
		}
		if err := db.sameKey(ctx, run, n); err != nil {
			return err
		}
		args := Params{Text(n.NodeID), Text(n.Name), Text(n.Version), Text(n.Address), db.stored(n.StartedAt), n.Draining, n.KeyCheck}
		statement := "INSERT INTO nodes AS n (node_id, name, version, address, started_at, seen_at, draining, key_check, lease_until, " +
			"epoch) VALUES ($1, $2, $3, $4, $5, " +
			db.Now(&args) + ", $6, $7, " + db.until(&args, lease) + ", 1)" +
			" ON CONFLICT (node_id) DO UPDATE SET name = excluded.name, version = excluded.version, address = excluded.address, " +
			"started_at = excluded.started_at," +
			" seen_at = excluded.seen_at, lease_until = excluded.lease_until, epoch = n.epoch + 1, draining = excluded.draining, " +
			"key_check = excluded.key_check RETURNING epoch"
		var err error
		epoch, _, err = One(ctx, run, Value[int64], statement, args...)
		return err
	})
	return epoch, err
}

// sameKey refuses a node that has another key than a live one. Nodes of versions that record no key
// do not count.
func (db Nodes) sameKey(ctx context.Context, run Run, n nodes.Node) error {
	args := Params{Text(n.NodeID), n.KeyCheck}
	other, found, err := One(ctx, run, func(scan Scan) (o nodes.Node, err error) { return o, scan(&o.NodeID, &o.Name) },
		"SELECT node_id, name FROM nodes WHERE node_id <> $1 AND $2 <> '' AND key_check <> '' AND key_check <> $2 AND lease_until > "+
			db.Now(&args)+" ORDER BY node_id LIMIT 1", args...)
	if err != nil || !found {
		return err
	}
	return fault.New(fault.InvalidSettings, "the live node %s (%q) has another audit.hmac_key_file (hmac.key in its state_dir, unless "+
		"set); copy that file to this node; to change the key, stop all nodes first, and wait for the end of the lease of one that was "+
		"killed",
		other.NodeID, other.Name)
}

// Renew implements nodes.Store.
func (db Nodes) Renew(ctx context.Context, nodeID string, epoch int64, lease time.Duration) (held, draining bool, err error) {
	args := Params{Text(nodeID), epoch}
	statement := "UPDATE nodes SET seen_at = " + db.Now(&args) + ", lease_until = " + db.until(&args, lease) +
		" WHERE node_id = $1 AND epoch = $2 RETURNING draining"
	draining, held, err = One(ctx, db.Write, Value[bool], statement, args...)
	return held, draining, err
}

// Leave implements nodes.Store.
func (db Nodes) Leave(ctx context.Context, nodeID string, epoch int64) error {
	args := Params{Text(nodeID), epoch}
	return db.Write(ctx, nil, "UPDATE nodes SET seen_at = "+db.Now(&args)+", lease_until = NULL WHERE node_id = $1 AND epoch = $2", args...)
}

// Retire implements nodes.Store. A node whose version has no leases is seen, so that one that was
// downgraded is not retired.
func (db Nodes) Retire(ctx context.Context, self string, unseen time.Duration) (*nodes.Retired, error) {
	var args Params
	ended := db.leaseEnded(&args, unseen)
	nodeID, found, err := One(ctx, db.Query, Value[string],
		"SELECT n.node_id FROM nodes AS n WHERE n.node_id <> "+args.Add(Text(self))+ended+
			" AND (n.lease_until IS NOT NULL OR EXISTS (SELECT 1 FROM sandbox_execs AS e WHERE e.node_id = n.node_id AND e.status IN "+
			"('queued', 'running'))"+
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
		_, still, err = One(ctx, run, Value[int64], "UPDATE nodes AS n SET lease_until = NULL, epoch = epoch + 1 WHERE n.node_id = "+
			args.Add(Text(nodeID))+ended+" RETURNING epoch", args...)
		if err != nil || !still { // renewed meanwhile
			return err
		}
		if r.Lost, err = lose(nodeID); err != nil {
			return err
		}
		returned, err := All(ctx, run, Value[string], returnTaken+" RETURNING exec_id", Text(nodeID))
		if r.Returned = len(returned); err != nil {
			return err
		}
		e, err := db.event(ctx, admin.NodeLost, nodeID, map[string]any{"lost": len(r.Lost), "returned": r.Returned})
		if err != nil {
			return err
		}
		return db.recordIn(ctx, run, e)
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

// Drain implements nodes.Store.
func (db Nodes) Drain(ctx context.Context, nodeID string, draining bool) error {
	kind := admin.NodeUndrained
	if draining {
		kind = admin.NodeDrained
	}
	changed,
		err := db.change(ctx, kind, nodeID,
		"UPDATE nodes SET draining = $2 WHERE node_id = $1 AND draining <> $2 AND lease_until IS NOT NULL RETURNING node_id", draining)
	if err != nil || changed {
		return err
	}
	n, err := db.Get(ctx, nodeID)
	if err == nil && n.Draining != draining {
		err = fault.New(fault.NodeConflict, "the node %s has no lease, so it takes no commands: it has ended, or its version has no leases",
			nodeID)
	}
	return err
}

// Forget implements nodes.Store.
func (db Nodes) Forget(ctx context.Context, nodeID string) error {
	changed, err := db.change(ctx, admin.NodeForgotten, nodeID,
		"DELETE FROM nodes WHERE node_id = $1 AND epoch > 0 AND lease_until IS NULL"+
			" AND NOT EXISTS (SELECT 1 FROM sandbox_execs AS e WHERE e.node_id = $1 AND e.status IN ('queued', 'running'))"+
			" AND NOT EXISTS (SELECT 1 FROM sandbox_exec_jobs AS j WHERE j.taken_by <> '' AND j.taken_by = $1) RETURNING node_id")
	if err != nil || changed {
		return err
	}
	n, err := db.Get(ctx, nodeID)
	switch {
	case err != nil:
		return err
	case n.Epoch == 0:
		return fault.New(fault.NodeConflict,
			"the node %s is of a version without leases; start it once with this version, or leave it in the list", nodeID)
	case n.State() == nodes.StateSilent:
		return fault.New(fault.NodeConflict, "the lease of node %s has ended, and no other node has retired it yet; try again in a "+
			"minute, with another node running", nodeID)
	case n.State() != nodes.StateRetired:
		return fault.New(fault.NodeConflict, "the node %s is live; stop it first", nodeID)
	}
	return fault.New(fault.NodeConflict, "the node %s has open execs, which another node is about to end; try again in a minute", nodeID)
}

// change runs a statement on the node $1 that returns a row if it has changed it, with its event.
func (db Nodes) change(ctx context.Context, kind admin.Kind, nodeID, statement string, args ...any) (changed bool, err error) {
	err = db.withEvent(ctx, func(scan Scan) error {
		changed = true
		return scan(new(string))
	}, kind, nodeID, nil, statement, append([]any{Text(nodeID)}, args...)...)
	return changed && err == nil, err
}

// Get implements nodes.Store.
func (db Nodes) Get(ctx context.Context, nodeID string) (nodes.Node, error) {
	var args Params
	n, found, err := One(ctx, db.Query, scanNode, db.selectNodes(&args)+" WHERE n.node_id = "+args.Add(Text(nodeID)), args...)
	if err == nil && !found {
		err = fault.New(fault.UnknownNode, "there is no node %s; `core-api node list` shows all", nodeID)
	}
	return n, err
}

// List implements nodes.Store.
func (db Nodes) List(ctx context.Context, within time.Duration) ([]nodes.Node, error) {
	var args Params
	return All(ctx, db.Query, scanNode, db.selectNodes(&args)+" WHERE n.seen_at > "+db.Ago(&args, within)+" ORDER BY n.node_id", args...)
}

func (db Nodes) selectNodes(args *Params) string {
	open := func(status string) string {
		return "(SELECT count(*) FROM sandbox_execs AS e WHERE e.node_id = n.node_id AND e.status = '" + status +
			"' AND e.status IN ('queued', 'running'))"
	}
	return "SELECT " + nodeColumns + ", " + db.Now(args) + ", " + open("running") + ", " + open("queued") + " FROM nodes AS n"
}

func scanNode(scan Scan) (nodes.Node, error) {
	var n nodes.Node
	err := scan(&n.NodeID, &n.Name, &n.Version, &n.Address, timeInto{&n.StartedAt}, timeInto{&n.SeenAt}, timeInto{&n.LeaseUntil}, &n.Epoch,
		&n.Draining,
		timeInto{&n.ReadAt}, &n.Running, &n.Queued)
	return n, err
}
