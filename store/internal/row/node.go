package row

import "secbox/audit"

// NodeColumns are the columns of nodes in the order of ScanNode.
const NodeColumns = "node_id, version, started_at, seen_at"

// ScanNode reads NodeColumns.
func ScanNode(scan func(dest ...any) error) (audit.Node, error) {
	var n audit.Node
	err := scan(&n.NodeID, &n.Version, timeInto{&n.StartedAt}, timeInto{&n.SeenAt})
	return n, err
}
