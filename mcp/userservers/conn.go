package userservers

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"secbox/sandbox"
)

const (
	maxRequests = 16 // of the server that wait for their refusal
	maxProgress = 64 // notifications that wait to be shown; further ones are dropped

	methodProgress     = "notifications/progress"
	methodToolsChanged = "notifications/tools/list_changed"
)

var (
	errOutput   = errors.New("has written as much as the policy allows a command")
	errRequests = errors.New("sends more requests than it reads answers")
	errStuck    = errors.New("does not read its input")
	errSilent   = errors.New("did not answer")
)

// transport is the SDK's transport over the pipes of a process, with bounds on what the server
// sends. The SDK queues notifications and requests without a bound, so the connection drops
// messages that have no use, and messages that come faster than they are handled.
type transport struct {
	process  *sandbox.Process
	patience time.Duration            // for the server to read a message
	output   int64                    // bytes of standard output after which the sandbox drops the rest
	broken   func(reason error)       // called when the connection cannot be used any more; it must end the process
	read     atomic.Int64             // bytes of standard output so far
	over     atomic.Bool              // standard output has ended, as it does with the process
	noise    tail                     // what was written to standard output beside messages
	pending  map[string]*atomic.Int64 // notifications that wait, by method
	asked    atomic.Int64             // requests of the server without an answer
}

func newTransport(p *sandbox.Process, output int64, patience time.Duration, broken func(error)) *transport {
	return &transport{
		process: p, output: output, patience: patience, broken: broken,
		pending: map[string]*atomic.Int64{methodProgress: {}, methodToolsChanged: {}},
	}
}

// Connect implements mcp.Transport.
func (t *transport) Connect(ctx context.Context) (mcp.Connection, error) {
	pipes := &mcp.IOTransport{
		Reader: &messagesOnly{from: countedReader{t}, noise: &t.noise}, Writer: t.process.Stdin,
		MaxLineLength: maxMessage,
	}
	c, err := pipes.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Connection: c, t: t}, nil
}

// countedReader reads standard output and ends with errOutput where the sandbox begins to drop it.
type countedReader struct{ t *transport }

func (r countedReader) Read(p []byte) (int, error) {
	n, err := r.t.process.Stdout.Read(p)
	if err != nil {
		r.t.over.Store(true)
	} else if r.t.read.Add(int64(n)) >= r.t.output {
		err = errOutput
	}
	return n, err
}

func (r countedReader) Close() error { return r.t.process.Stdout.Close() }

type conn struct {
	mcp.Connection
	t       *transport
	closing sync.Once
	closed  error
}

// Read implements mcp.Connection.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		message, err := c.Connection.Read(ctx)
		if err != nil {
			if !c.t.over.Load() && !errors.Is(err, io.EOF) { // it is not a message; EOF is the end of the process or of the connection
				c.t.broken(err)
			}
			return nil, err
		}
		request, ok := message.(*jsonrpc.Request)
		switch {
		case !ok:
			return message, nil
		case request.IsCall():
			if c.t.asked.Add(1) > maxRequests {
				c.t.broken(errRequests)
				return nil, errRequests
			}
			return message, nil
		case c.t.admit(request.Method):
			return message, nil
		}
	}
}

// admit reports whether a notification is of use, and counts it. One waiting notification is enough
// for all changes of the list.
func (t *transport) admit(method string) bool {
	most := int64(maxProgress)
	if method == methodToolsChanged {
		most = 1
	}
	waiting := t.pending[method]
	if waiting == nil {
		return false
	}
	if waiting.Add(1) > most {
		waiting.Add(-1)
		return false
	}
	return true
}

// handled is called when a notification is handled.
func (t *transport) handled(method string) {
	if waiting := t.pending[method]; waiting != nil {
		waiting.Add(-1)
	}
}

// Write implements mcp.Connection. It does not end with ctx: half a message would break the stream.
// A server that does not read is ended.
func (c *conn) Write(ctx context.Context, message jsonrpc.Message) error {
	late := time.AfterFunc(c.t.patience, func() { c.t.broken(errStuck) })
	defer late.Stop()
	written := make(chan struct{})
	defer close(written)
	defer context.AfterFunc(ctx, func() {
		select {
		case <-written:
		case <-time.After(cancelWait):
			c.t.broken(errStuck)
		}
	})()
	if _, ok := message.(*jsonrpc.Response); ok {
		defer c.t.asked.Add(-1)
	}
	err := c.Connection.Write(ctx, message)
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok && err == nil {
		sent.Store(true)
	}
	return err
}

// sentKey is the key of an *atomic.Bool in the context of a call, which becomes true when the whole
// call is sent.
type sentKey struct{}

// Close implements mcp.Connection.
func (c *conn) Close() error {
	c.closing.Do(func() { c.closed = c.Connection.Close() })
	return c.closed
}

// refuse is the client's receiving middleware: it refuses what servers ask of a client, except for
// ping.
func (t *transport) refuse(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		defer t.handled(method)
		switch method {
		case "ping", methodProgress, methodToolsChanged:
			return next(ctx, method, req)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this client answers no requests of servers"}
	}
}
