package peer

import (
	"context"
	"sync"
	"time"

	"secbox/cluster/nodes"
	"secbox/fault"
)

const (
	freshFor   = 2 * time.Second
	watchEvery = 3 * time.Second
	maxKnown   = 1000 // nodes; more came and went
)

// known is a node as the database had it.
type known struct {
	mu   sync.Mutex // also while the row is read: one read serves all requests
	node nodes.Node
	err  error
	at   time.Time
}

// Reaches reports whether requests can be forwarded to a node: it is live and has an address.
func (p *Peers) Reaches(ctx context.Context, nodeID string) bool {
	n, err := p.lookup(ctx, nodeID, p.freshFor)
	return err == nil && whyUnreachable(n) == ""
}

// lookup returns a node as it was at most maxAge ago.
func (p *Peers) lookup(ctx context.Context, nodeID string, maxAge time.Duration) (nodes.Node, error) {
	p.mu.Lock()
	k := p.known[nodeID]
	if k == nil {
		if len(p.known) >= maxKnown {
			clear(p.known)
		}
		k = &known{}
		p.known[nodeID] = k
	}
	p.mu.Unlock()
	asked := p.cfg.Now() // before the wait for another read, which also answers this
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at.IsZero() || asked.Sub(k.at) >= maxAge {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout) // others wait for it, also when this client leaves
		defer cancel()
		k.at = p.cfg.Now()
		k.node, k.err = p.cfg.Nodes.Get(ctx, nodeID)
	}
	return k.node, k.err
}

// forget makes the next lookup read the row.
func (p *Peers) forget(nodeID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, nodeID)
}

// whyUnreachable says why a node cannot be asked; empty if it can.
func whyUnreachable(n nodes.Node) string {
	switch s := n.State(); {
	case n.Address == "":
		return "it has no node.address; set it, or send the request to that node"
	case s == nodes.StateRetired:
		return "it has no lease: it was stopped, or another node has ended its execs as lost"
	case s == nodes.StateSilent:
		return "its lease has ended, and another node is about to end its execs as lost"
	case n.Epoch == 0:
		return "it runs a version without channels of nodes; update core-api on it"
	}
	return ""
}

// watch cancels a request when the node is retired: a node that is frozen accepts connections and
// never answers. A node that is only silent may live: after an outage of the database all are.
func (p *Peers) watch(ctx context.Context, nodeID string, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(p.watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n, err := p.lookup(ctx, nodeID, p.freshFor); err == nil && n.State() == nodes.StateRetired {
			p.drop(nodeID)
			cancel(fault.New(fault.NodeUnreachable, "it has lost its lease"))
			return
		}
	}
}
