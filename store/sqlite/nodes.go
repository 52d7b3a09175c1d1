package sqlite

import (
	"context"
	"time"

	"secbox/audit"
	"secbox/store/internal/row"
)

// Nodes implements audit.Store.
func (s records) Nodes(ctx context.Context, within time.Duration) ([]audit.Node, error) {
	nodes := []audit.Node{}
	err := s.db.lookUp(ctx, func(scan func(...any) error) error {
		n, err := row.ScanNode(scan)
		nodes = append(nodes, n)
		return err
	}, "SELECT "+row.NodeColumns+" FROM nodes WHERE seen_at > $1 ORDER BY node_id", stamp(s.db.now().Add(-within)))
	if err != nil {
		return nil, err
	}
	return nodes, nil
}
