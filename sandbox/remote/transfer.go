package remote

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// transferBuffer is how much content is read and written at once, in bytes.
const transferBuffer = 256 << 10

// transfer is the large content of one request, in one direction. The runner makes an HTTP request
// for it, and a new request after a break. One is served at a time; a new one replaces the one
// before.
type transfer struct {
	hub      *Hub
	id       string
	incoming *incoming // from the runner, or
	outgoing *outgoing // to the runner
	hash     hash.Hash // of the content; only the current request may use it
	req      *request  // set before the id is sent

	turn  chan struct{}   // has an element while a request is served, and after close
	ctx   context.Context // ends with stop
	end   context.CancelFunc
	last  atomic.Int64 // when bytes last moved, in nanoseconds since start
	start time.Time

	mu      sync.Mutex
	current *transferRequest
}

// transferRequest is one HTTP request of the runner for a transfer.
type transferRequest struct {
	rc          *http.ResponseController
	interrupted atomic.Bool
}

// errInterrupted is the error of a request that was replaced or stopped.
var errInterrupted = errors.New("interrupted")

func (h *Hub) newTransfer() *transfer {
	t := &transfer{hub: h, id: h.cfg.TransferTag + random(16)[len(h.cfg.TransferTag):], turn: make(chan struct{}, 1), start: time.Now()}
	t.ctx, t.end = context.WithCancel(context.Background())
	return t
}

// begin chooses the digest that the runner knows.
func (t *transfer) begin(p *wire.Path, hello *wire.Hello) {
	if slices.Contains(hello.Can, wire.CanGMAC) {
		p.Digest = wire.DigestGMAC
	}
	t.hash = p.NewDigest()
}

// ServeTransfer answers HEAD, PUT and GET of /ws/transfers/{id}.
func (h *Hub) ServeTransfer(w http.ResponseWriter, r *http.Request, id string, caller Caller) {
	h.mu.Lock()
	t := h.transfers[id]
	if t == nil || h.closed || t.req.m.key.user != caller.UserID || t.req.m.tokenID != caller.TokenID {
		h.mu.Unlock()
		http.Error(w, "no such transfer, or it has ended", http.StatusNotFound)
		return
	}
	h.work.Add(1)
	h.mu.Unlock()
	defer h.work.Done()

	serve := t.serveGet
	switch {
	case t.incoming != nil && r.Method == http.MethodHead:
		serve = t.serveHead
	case t.incoming != nil && r.Method == http.MethodPut:
		serve = t.servePut
	case t.outgoing == nil || r.Method != http.MethodGet:
		http.Error(w, "this transfer goes in the other direction", http.StatusMethodNotAllowed)
		return
	}
	tr := &transferRequest{rc: http.NewResponseController(w)}
	_ = tr.rc.SetReadDeadline(time.Time{}) // the server's limits are for clients; a transfer extends its own deadlines
	_ = tr.rc.SetWriteDeadline(time.Time{})
	if err := t.take(r.Context(), tr); err != nil {
		http.Error(w, "the transfer has ended", http.StatusConflict)
		return
	}
	defer t.release()
	serve(w, r, tr)
}

// take makes tr the current request, after interrupting the one before.
func (t *transfer) take(ctx context.Context, tr *transferRequest) error {
	t.mu.Lock()
	if t.current != nil {
		t.current.interrupt()
	}
	t.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
	case <-t.ctx.Done():
		return errInterrupted
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		<-t.turn
		return errInterrupted
	}
	t.current = tr
	return nil
}

func (t *transfer) release() {
	t.mu.Lock()
	t.current = nil
	t.mu.Unlock()
	<-t.turn
}

// stop ends the transfer: the current request is interrupted, and no other is served.
func (t *transfer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end()
	if t.current != nil {
		t.current.interrupt()
	}
}

// close stops the transfer and waits for the current request: the caller's reader or writer is not
// used afterwards.
func (t *transfer) close() {
	t.stop()
	t.turn <- struct{}{}
}

// isActive reports whether a request is being served, or bytes moved recently.
func (t *transfer) isActive(within time.Duration) bool {
	t.mu.Lock()
	busy := t.current != nil
	t.mu.Unlock()
	return busy || time.Since(t.start)-time.Duration(t.last.Load()) < within
}

// touch records that bytes moved.
func (t *transfer) touch() { t.last.Store(int64(time.Since(t.start))) }

// interrupt makes the request's present and next read or write fail.
func (tr *transferRequest) interrupt() {
	tr.interrupted.Store(true)
	_ = tr.rc.SetReadDeadline(time.Unix(1, 0))
	_ = tr.rc.SetWriteDeadline(time.Unix(1, 0))
}

// extend sets a deadline in the future, unless the request was interrupted. It checks that
// afterwards, so that the new deadline cannot undo an interrupt.
func (tr *transferRequest) extend(setDeadline func(time.Time) error, stall time.Duration) error {
	_ = setDeadline(time.Now().Add(stall))
	if tr.interrupted.Load() {
		return errInterrupted
	}
	return nil
}

// fail ends the transfer's request with an error of this side, and tells the runner to give it up.
// After a violation of the protocol the link is closed too. Called by the current request, which
// can still answer.
func (t *transfer) fail(err error, violation bool) {
	t.mu.Lock()
	t.current = nil // it ends by itself
	t.mu.Unlock()
	h := t.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	req := t.req
	if req.over {
		return
	}
	l := req.m.link
	if l != nil {
		l.sendBody(req.id, wire.TypeCancel, nil)
	}
	req.m.abandoned[req.id] = req.permits
	req.permits = 0
	h.finish(req, nil, err)
	if violation && l != nil {
		l.end(wire.StatusProtocol, fault.From(err).Message)
	}
}

// violation is the error of content that differs from its announcement.
func (t *transfer) violation(format string, args ...any) error {
	return fault.New(fault.RunnerProtocol, "%s broke the protocol: %s", t.req.m.title(), fmt.Sprintf(format, args...))
}
