package console

import (
	"context"
	"time"
)

// While an exec runs, only its node has its output and can end it. Other nodes forward requests
// about it there.

const relayRetry = 5 * time.Second // before a stream asks a node again that did not answer

// forward answers a request about an exec that another node runs with the answer of that node.
func (c *Console) forward(req *request) (forwarded bool, err error) {
	rec, err := c.execOf(req)
	if err != nil {
		return false, err
	}
	node, _ := req.door.Away(req.ctx(), rec)
	if node == "" {
		return false, nil
	}
	return true, req.door.Forward(req.Response(), req.Request(), node)
}

// relay goes on with the events of an exec that another node runs, until they end; the browser
// comes again if that is not the end of the exec. It returns false if the stream stays here.
func (x *viewer) relay(ctx context.Context) bool {
	if time.Since(x.lastRelay) < relayRetry {
		return false
	}
	node, reachable := x.req.door.Away(ctx, x.watch.State().Record)
	if node == "" {
		return false
	}
	if reachable && x.out.Flush() == nil && x.req.door.Relay(x.raw, x.req.Request().WithContext(ctx), node, x.at.String()) {
		return true
	}
	x.lastRelay = time.Now()
	time.AfterFunc(relayRetry, x.watch.Wake)
	return false
}
