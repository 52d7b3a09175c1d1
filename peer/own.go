package peer

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"secbox/fault"
	"secbox/nodes"
)

// OwnHeader marks a request that a node makes itself, of another node: the node's id, the time in Unix milliseconds, a nonce, and the signature.
const OwnHeader = "Secbox-Node"

const (
	ownPurpose = "nodes' own requests 1" // of the key; the number is that of the form of marks
	maxNonces  = 1 << 20                 // that are remembered; more requests within maxSkew are refused
	seenWithin = 2 * time.Hour           // nodes that are asked were seen then; no lease is longer
)

// Own returns the URL and the header with which this node asks another one itself, for a path with its query. They are good once, for a minute.
// Such a request carries the rights of the installation: the receiver answers it by Sender alone. Errors are fault.NodeUnreachable.
func (p *Peers) Own(ctx context.Context, method, nodeID, uri string) (string, http.Header, error) {
	target, err := p.target(ctx, nodeID, "node "+nodeID)
	if err != nil {
		return "", nil, err
	}
	unsigned := p.cfg.Self + " " + strconv.FormatInt(p.cfg.Now().UnixMilli(), 10) + " " + rand.Text()
	return target.Scheme + "://" + target.Host + uri, http.Header{OwnHeader: {unsigned + " " + p.signOwn(method, uri, nodeID, unsigned)}}, nil
}

func (p *Peers) signOwn(method, uri, to, unsigned string) string {
	return p.cfg.Key.Sign(ownPurpose, strings.Join([]string{method, uri, to, unsigned}, "\n"))
}

// Sender returns the node that has made a request of this node itself: fault.NodeUnreachable if it is not a live node of the installation, or
// if the request is not new.
func (p *Peers) Sender(r *http.Request) (nodeID string, err error) {
	marks := r.Header.Values(OwnHeader)
	if len(marks) != 1 {
		return "", fault.New(fault.NodeUnreachable, "only nodes of the installation may make this request")
	}
	parts := strings.Split(marks[0], " ")
	if len(parts) != 4 || !hmac.Equal([]byte(parts[3]), []byte(p.signOwn(r.Method, r.RequestURI, p.cfg.Self, strings.Join(parts[:3], " ")))) {
		return "", fault.New(fault.NodeUnreachable, "the header %s is not signed for this node with its key; give all nodes the same audit.hmac_key_file, and each its own node.address", OwnHeader)
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	at := time.UnixMilli(ms)
	if skew := p.cfg.Now().Sub(at); err != nil || skew.Abs() > maxSkew {
		return "", fault.New(fault.NodeUnreachable, "the clocks of the nodes differ by more than %v; synchronize them", maxSkew)
	}
	if !p.isNew(parts[2], at) {
		return "", fault.New(fault.NodeUnreachable, "the header %s was used before, or too many were", OwnHeader)
	}
	n, err := p.look(r.Context(), parts[0])
	if err != nil {
		return "", err
	}
	if s := n.State(); s == nodes.StateRetired || s == nodes.StateSilent {
		return "", fault.New(fault.NodeUnreachable, "node %s has no lease", parts[0])
	}
	return parts[0], nil
}

// isNew remembers a nonce until its mark is too old.
func (p *Peers) isNew(nonce string, at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, used := p.nonces[nonce]; used {
		return false
	}
	if len(p.nonces) >= p.nextSweep {
		for nonce, at := range p.nonces {
			if p.cfg.Now().Sub(at) > maxSkew {
				delete(p.nonces, nonce)
			}
		}
		p.nextSweep = min(2*len(p.nonces)+1000, p.maxNonces) // a full map is swept, too
	}
	if len(p.nonces) >= p.maxNonces {
		return false
	}
	p.nonces[nonce] = at
	return true
}

// Others returns the ids of the other nodes that can be asked now.
func (p *Peers) Others(ctx context.Context) ([]string, error) {
	all, err := p.cfg.Nodes.List(ctx, seenWithin)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, n := range all {
		if p.Other(n.NodeID) && unable(n) == "" {
			ids = append(ids, n.NodeID)
		}
	}
	return ids, nil
}

// Transport sends the requests of Own.
func (p *Peers) Transport() http.RoundTripper { return p.transport }

// While returns a context that also ends, with fault.NodeUnreachable as its cause, when a node is retired: one that is frozen
// keeps its connections and never answers. The caller must call cancel.
func (p *Peers) While(ctx context.Context, nodeID string) (within context.Context, cancel context.CancelFunc) {
	within, end := context.WithCancelCause(ctx)
	go p.watch(within, nodeID, end)
	return within, func() { end(nil) }
}

// Tag returns eight hexadecimal digits for a node: for ids that must tell other nodes where to ask.
func Tag(nodeID string) string { return digest([]byte("node " + nodeID))[:8] }

// Tagged returns the node, among the others that can be asked, that has a tag; empty if there is none.
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
