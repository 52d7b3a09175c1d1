package peer

import (
	"context"
	"fmt"
	"time"
)

const seenWithin = 2 * time.Hour // nodes that are asked were seen then; no lease is longer

// Others returns the ids of the other nodes that can be asked now.
func (p *Peers) Others(ctx context.Context) ([]string, error) {
	all, err := p.cfg.Nodes.List(ctx, seenWithin)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, n := range all {
		if p.Other(n.NodeID) && whyUnreachable(n) == "" {
			ids = append(ids, n.NodeID)
		}
	}
	return ids, nil
}

// While returns a context that also ends, with fault.NodeUnreachable as its cause, when a node is
// retired. A frozen node keeps its connections and never answers. The caller must call cancel.
func (p *Peers) While(ctx context.Context, nodeID string) (within context.Context, cancel context.CancelFunc) {
	within, end := context.WithCancelCause(ctx)
	go p.watch(within, nodeID, end)
	return within, func() { end(nil) }
}

// Tag returns eight hexadecimal digits for a node: for ids that must tell other nodes where to ask.
func Tag(nodeID string) string { return digest([]byte("node " + nodeID))[:8] }

// Tagged returns the node, among the others that can be asked, that has a tag; empty if there is
// none.
func (p *Peers) Tagged(ctx context.Context, tag string) (string, error) {
	ids, err := p.Others(ctx)
	if err != nil {
		return "", fmt.Errorf("find the node of a transfer: %w", err)
	}
	for _, id := range ids {
		if Tag(id) == tag {
			return id, nil
		}
	}
	return "", nil
}
