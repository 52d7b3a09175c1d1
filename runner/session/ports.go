package session

import (
	"context"
	"errors"
	"net"
	"sync"

	"secbox/engine"
	"secbox/fault"
)

// ports are the connections to ports of a session's container. They begin with the first use and
// end with the last one.
type ports struct {
	opened chan struct{} // closed when dial is set
	dial   engine.Ports
	over   chan struct{} // closed at the end, when err is set
	err    error
	end    context.CancelFunc
	users  int // guarded by Set.mu
}

// mostDialed is how many connections to ports of one session are open at once.
const mostDialed = 128

// Dial connects to a port of the loopback of a session's container. Until the connection is closed,
// which the caller must do, the session does not end for idleness; a drain does not wait. Errors
// are fault.UpstreamFailed if no server accepts it, fault.SessionEnded, fault.SessionLimit, and the
// errors of engine.Resident's Run.
func (s *Set) Dial(ctx context.Context, id string, port uint16) (net.Conn, error) {
	s.mu.Lock()
	x := s.all[id]
	switch {
	case x == nil, x.over, s.draining != nil:
		s.mu.Unlock()
		return nil, Ended(id)
	case x.dialed >= mostDialed:
		s.mu.Unlock()
		return nil, busy("%d connections to ports of session %s are open, which is the most; close some", mostDialed, id)
	}
	x.dialed++
	x.idle.Stop()
	p := x.ports
	if p == nil {
		p = x.openPorts()
	}
	p.users++
	s.mu.Unlock()
	conn, err := p.connect(ctx, x, port)
	if err != nil {
		x.leavePort(p)
		return nil, err
	}
	return &portConn{Conn: conn, leave: sync.OnceFunc(func() { x.leavePort(p) })}, nil
}

// openPorts begins to take connections, with Set.mu held.
func (x *live) openPorts() *ports {
	ctx, end := context.WithCancel(context.Background())
	p := &ports{opened: make(chan struct{}), over: make(chan struct{}), end: end}
	x.ports = p
	x.leaving.Add(1)
	go func() {
		defer x.leaving.Done()
		p.err = x.resident.ServePorts(ctx, func(dial engine.Ports) {
			p.dial = dial
			close(p.opened)
		})
		end()
		x.of.mu.Lock()
		if x.ports == p {
			x.ports = nil
		}
		x.of.mu.Unlock()
		close(p.over)
	}()
	return p
}

func (p *ports) connect(ctx context.Context, x *live, port uint16) (net.Conn, error) {
	select {
	case <-p.opened:
	case <-p.over:
		lost, ok := errors.AsType[*engine.RunError](p.err)
		if p.err == nil || ok {
			return nil, fault.Wrap(fault.SessionEnded, lost, "session %s has ended; start another one", x.id)
		}
		return nil, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return p.dial.Dial(ctx, port)
}

// leavePort ends a use of Dial. The end of the session does not wait for it: a client may be slow.
func (x *live) leavePort(p *ports) {
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	if p.users--; p.users == 0 {
		if x.ports == p {
			x.ports = nil
		}
		p.end()
	}
	x.dialed--
	x.rest()
}

// portConn is a connection of Dial.
type portConn struct {
	net.Conn
	leave func()
}

func (c *portConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
