package engine

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"secbox/engine/initproto"
	"secbox/fault"
)

// connections are the connections that a running job makes to the proxy in its container, or those
// of Ports to ports there.
type connections struct {
	wire    *initproto.Wire
	session *yamux.Session
	end     context.CancelFunc
	passing sync.WaitGroup
	ready   bool   // sandbox-init has a proxy, or accepts connections to ports
	begun   func() // called when ready is set; nil: nothing
}

// closingTimeout is how long the job may go on writing to a connection that was closed here. Then
// the connection breaks off.
const closingTimeout = 10 * time.Second

// maxStreams is how many connections init may have passed on at once, with those that are ending.
const maxStreams = 2 * initproto.MaxConnections

// newConnections begins to accept the job's connections; nil if the job has no network. The caller
// must call close.
func newConnections(job Job, send func(chunk []byte) error) (*connections, error) {
	if job.OnConnection == nil && job.ports == nil {
		return nil, nil
	}
	c := &connections{wire: initproto.NewWire(send)}
	mux := initproto.Mux()
	mux.StreamCloseTimeout = closingTimeout
	var err error
	if c.session, err = yamux.Server(c.wire, mux); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	c.end = end
	if job.ports != nil {
		c.begun = func() { job.ports(Ports{c.session.Open}) }
		return c, nil
	}
	c.passing.Go(func() {
		for {
			stream, err := c.session.AcceptStream()
			if err == nil && c.session.NumStreams() > maxStreams {
				err = initproto.ErrProtocol
			}
			if err != nil {
				_ = c.wire.Close()
				return
			}
			c.passing.Go(func() { job.OnConnection(ctx, stream) })
		}
	})
	return c, nil
}

// take takes the payload of a network frame.
func (c *connections) take(payload []byte) error {
	if c == nil {
		return fmt.Errorf("%w: network of a job that has none", initproto.ErrProtocol)
	}
	if !c.ready && c.begun != nil {
		c.begun()
	}
	c.ready = true
	return c.wire.Push(payload)
}

// check returns an error if the job that has ended had no proxy.
func (c *connections) check(e Exit) error {
	if c == nil || c.ready || e.StartError != "" {
		return nil
	}
	if c.begun != nil {
		return fault.New(fault.Unsupported, "the sandbox-init in the session's image is too old to reach its ports; rebuild the image (make images)")
	}
	return fault.New(fault.Internal, "the job had no network, because the sandbox-init in its image is too old; rebuild the image (make images)")
}

// close ends all connections and waits for OnConnection. It calls unblock, which ends a send, if
// the container does not read for the time of patience.
func (c *connections) close(patience time.Duration, unblock func()) {
	if c == nil {
		return
	}
	c.end()
	_ = c.wire.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = c.session.Close()
	}()
	late := time.AfterFunc(patience, unblock)
	defer late.Stop()
	<-closed
	c.passing.Wait()
}

var _ net.Conn = (*yamux.Stream)(nil)
