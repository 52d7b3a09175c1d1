package network

import (
	"cmp"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// Visitor is who uses a port of a session.
type Visitor struct {
	Token   string // id
	Link    string // id of the token's link by which the visitor comes; empty: with the token itself
	Address string // of the client, without a port
}

type visitor struct {
	Visitor
	port uint16
}

// visit is the row of all uses of a port by a visitor, until none is left for visitRest. A row for
// each request would be too many.
type visit struct {
	way     *Way
	row     audit.Connection
	stored  chan struct{} // closed when the row is, or failed
	err     error         // set before stored is closed
	out, in atomic.Int64

	uses, left int // connections, and how often there was none again; guarded by Way.mu
}

// visitRest is how long a visit lasts after its last connection.
const visitRest = time.Minute

// portIdle is how long a connection may be without a byte either way.
const portIdle = 10 * time.Minute

// Visit connects a visitor to a port of an exec by dial, with the visit on record before. The
// connection takes a place of its token, and the caller must close it. It fails with
// fault.SessionEnded for an exec that has no Way, fault.SessionLimit, fault.DatabaseUnavailable,
// and the error of dial.
func (n *Network) Visit(ctx context.Context, execID string, v Visitor, port uint16, dial func(context.Context) (net.Conn, error),
) (net.Conn, error) {
	n.mu.Lock()
	w := n.ways[execID]
	n.mu.Unlock()
	if w == nil {
		return nil, fault.New(fault.SessionEnded, "session %s has ended; start another one", execID)
	}
	if limit := n.enter(v.Token); limit != "" {
		e := fault.New(fault.SessionLimit, "%s", limit)
		e.RetryAfter = time.Second
		return nil, e
	}
	x, err := w.visit(ctx, visitor{v, port})
	if err != nil {
		n.leave(v.Token)
		return nil, err
	}
	leave := sync.OnceFunc(func() {
		n.leave(v.Token)
		x.leave(visitor{v, port})
	})
	conn, err := dial(ctx)
	if err != nil {
		leave()
		return nil, err
	}
	return &visitConn{conn, x, leave}, nil
}

// visit begins a use of a visit, which is on record when it returns.
func (w *Way) visit(ctx context.Context, v visitor) (*visit, error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, fault.New(fault.SessionEnded, "session %s has ended; start another one", w.exec.ID)
	}
	x := w.visits[v]
	first := x == nil
	if first {
		w.asked++
		w.visited++
		w.connecting.Add(1)
		x = &visit{way: w, stored: make(chan struct{}), row: audit.Connection{
			ExecID: w.exec.ID, Seq: w.asked, Protocol: audit.ProtocolPort, Host: cut(v.Token), Port: int64(v.port), Address: v.Address,
			Allowed: true, Rule: v.Link, StartedAt: w.network.cfg.Now(),
		}}
		w.visits[v] = x
	}
	x.uses++
	w.mu.Unlock()
	if first {
		x.err = w.recorder.open(w.ctx, x.row)
		close(x.stored)
		w.connecting.Done()
	}
	select {
	case <-x.stored:
	case <-ctx.Done():
		x.leave(v)
		return nil, context.Cause(ctx)
	}
	if x.err != nil {
		w.forget(v, x)
		return nil, fault.Wrap(fault.DatabaseUnavailable, x.err, "the use of the port could not be put on record, so it was not made; try again")
	}
	return x, nil
}

// forget removes a visit that could not be put on record: the next one is another.
func (w *Way) forget(v visitor, x *visit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.visits[v] == x {
		delete(w.visits, v)
		row := x.row
		row.Allowed, row.EndedAt, row.End, row.Detail = false, w.network.cfg.Now(), audit.ConnFailed, "it could not be put on record, so it was not made"
		w.recorder.save(row, true)
	}
}

func (x *visit) leave(v visitor) {
	x.way.mu.Lock()
	defer x.way.mu.Unlock()
	if x.uses--; x.uses == 0 && x.way.visits[v] == x {
		x.left++
		left := x.left
		time.AfterFunc(cmp.Or(x.way.network.cfg.VisitRest, visitRest), func() { x.way.endVisit(v, x, left) })
	}
}

// endVisit ends a visit that has not been used since it was left for the given time.
func (w *Way) endVisit(v visitor, x *visit, left int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && w.visits[v] == x && x.uses == 0 && x.left == left {
		delete(w.visits, v)
		x.end(audit.ConnClosed, "")
	}
}

// end ends the row, with Way.mu held.
func (x *visit) end(end audit.ConnEnd, detail string) {
	x.row.EndedAt, x.row.End, x.row.Detail = x.way.network.cfg.Now(), end, detail
	x.row.BytesOut, x.row.BytesIn = x.out.Load(), x.in.Load()
	x.way.visitedOut += x.row.BytesOut
	x.way.visitedIn += x.row.BytesIn
	x.way.recorder.save(x.row, false)
}

// endVisits ends all visits, with the exec, and returns what all have carried.
func (w *Way) endVisits() (out, in int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v, x := range w.visits {
		delete(w.visits, v)
		x.end(audit.ConnExecEnded, "the session has ended")
	}
	return w.visitedOut, w.visitedIn
}

// visitConn is a connection of a visit. It counts the bytes, and breaks off without traffic.
type visitConn struct {
	net.Conn
	visit *visit
	leave func()
}

// Read counts the bytes from the session.
func (c *visitConn) Read(p []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(portIdle))
	n, err := c.Conn.Read(p)
	c.visit.out.Add(int64(n))
	return n, err
}

// Write counts the bytes to the session.
func (c *visitConn) Write(p []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(portIdle))
	n, err := c.Conn.Write(p)
	c.visit.in.Add(int64(n))
	return n, err
}

// Close ends the connection.
func (c *visitConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
