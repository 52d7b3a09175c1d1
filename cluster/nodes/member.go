package nodes

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// DefaultLease is the Lease of a Config without one.
const DefaultLease = 15 * time.Second

const renewals = 5 // in the time of a lease

// Config configures a Member. All but Lease is required.
type Config struct {
	Store  Store
	Node   Node
	Lease  time.Duration // 0: DefaultLease
	Logger *slog.Logger

	// Fence is called when another node has retired the lease of this one. It kills what runs on
	// this node, refuses new work, and returns when all has ended; resume is called when there is a
	// new lease.
	Fence func(ctx context.Context) (resume func())

	// Drain is called when an operator begins to drain this node, and with false when the operator
	// undoes it. It must not block.
	Drain func(draining bool)

	// Retired is called after this node has retired another: jobs may wait that had been its.
	Retired func()
}

// Member is this process as one of the nodes: Join once, then Run until the end, then Leave.
type Member struct {
	cfg Config

	steps sync.Mutex // held for a step
	left  bool

	mu       sync.Mutex
	epoch    int64
	draining bool

	renewed time.Time // when the last renewal that succeeded was sent
	since   time.Time // from when on renewals have succeeded in time
	resume  func()    // not nil: Fence has returned, and there is no new lease yet
	down    bool      // the last step failed
}

// NewMember makes a Member.
func NewMember(cfg Config) *Member {
	if cfg.Lease <= 0 {
		cfg.Lease = DefaultLease
	}
	return &Member{cfg: cfg}
}

// Join begins the lease. A node that was drained before its process started is drained no longer.
func (m *Member) Join(ctx context.Context) error {
	sent, node := time.Now(), m.cfg.Node
	node.Draining = m.Draining()
	epoch, err := m.cfg.Store.Join(ctx, node, m.cfg.Lease)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.epoch = epoch
	m.mu.Unlock()
	m.renewed, m.since = sent, sent
	return nil
}

// Run renews the lease, and retires the expired leases of other nodes, until ctx ends.
func (m *Member) Run(ctx context.Context) {
	tick := time.NewTicker(m.cfg.Lease / renewals)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.report(ctx, m.step(ctx))
	}
}

// Leave ends the lease, when nothing runs on this node any longer.
func (m *Member) Leave(ctx context.Context) error {
	m.steps.Lock()
	defer m.steps.Unlock()
	if m.left || m.Epoch() == 0 {
		return nil
	}
	m.left = true
	return m.cfg.Store.Leave(ctx, m.cfg.Node.NodeID, m.Epoch())
}

// Epoch is the epoch of the present lease; 0 before Join.
func (m *Member) Epoch() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.epoch
}

// Draining reports whether an operator drains this node.
func (m *Member) Draining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}

func (m *Member) step(ctx context.Context) error {
	m.steps.Lock()
	defer m.steps.Unlock()
	if m.left {
		return nil
	}
	if m.resume == nil {
		held, err := m.renew(ctx)
		if err != nil {
			return err
		}
		if held {
			return m.retire(ctx)
		}
		m.cfg.Logger.Warn("this node has lost its lease: it did not renew it in time, and another node has ended its execs as lost; " +
			"those that still run are killed")
		m.resume = m.cfg.Fence(ctx)
	}
	if err := m.Join(ctx); err != nil {
		return err
	}
	m.resume()
	m.resume = nil
	m.cfg.Logger.Info("this node has a new lease", "epoch", m.Epoch())
	return nil
}

func (m *Member) renew(ctx context.Context) (held bool, err error) {
	sent := time.Now()
	held, draining, err := m.cfg.Store.Renew(ctx, m.cfg.Node.NodeID, m.Epoch(), m.cfg.Lease)
	if err != nil || !held {
		return held, err
	}
	if draining != m.Draining() {
		m.mu.Lock()
		m.draining = draining
		m.mu.Unlock()
		m.cfg.Drain(draining)
	}
	if sent.Sub(m.renewed) > m.cfg.Lease/2 {
		m.since = sent
	}
	m.renewed = sent
	return true, nil
}

// retire retires the leases of other nodes that have ended. It waits until this node has renewed
// its own in time for as long as a lease lasts: after an outage of the database all leases have
// ended, and all nodes may renew theirs first.
func (m *Member) retire(ctx context.Context) error {
	if m.renewed.Sub(m.since) < m.cfg.Lease {
		return nil
	}
	for ctx.Err() == nil {
		r, err := m.cfg.Store.Retire(ctx, m.cfg.Node.NodeID, m.cfg.Lease)
		if err != nil || r == nil {
			return err
		}
		m.cfg.Logger.Warn("the lease of another node has ended: its execs are lost, and its jobs that had not started wait again",
			"node", r.NodeID, "lost", len(r.Lost), "returned", r.Returned)
		m.cfg.Retired()
	}
	return nil
}

// report logs when the lease cannot be renewed and when it is renewed again, not every attempt.
func (m *Member) report(ctx context.Context, err error) {
	if ctx.Err() != nil || (err != nil) == m.down {
		return
	}
	if m.down = err != nil; m.down {
		m.cfg.Logger.Error("this node cannot renew its lease; execs are refused until it can", "err", err)
	} else {
		m.cfg.Logger.Info("this node renews its lease again")
	}
}
