package sqlite

import (
	"context"
	"time"

	"secbox/audit"
	"secbox/store/internal/row"
)

// Nodes implements audit.Store.
func (s records) Nodes(ctx context.Context, within time.Duration) ([]audit.Node, error) {
	return all(ctx, s.db, row.ScanNode,
		"SELECT "+row.NodeColumns+" FROM nodes WHERE seen_at > $1 ORDER BY node_id", encodeTime(s.db.now().Add(-within)))
}
