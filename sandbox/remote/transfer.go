package remote

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"secbox/fault"
	"secbox/sandbox/remote/wire"
)

// transferBuffer is how much of large content is read and written at once, in bytes.
const transferBuffer = 256 << 10

// transfer is the large content of one request, in one direction. The runner dials for it, and again after a break; one of its HTTP requests
// is at work at a time, and a new one takes the place of one before it.
type transfer struct {
	hub      *Hub
	id       string
	incoming *incoming // content from the runner; else
	outgoing *outgoing // content to it
	req      *request  // set once, before the id is known to anybody

	turn  chan struct{} // has an element while a request is at work, or for good when closed
	over  chan struct{} // closed by stop
	last  atomic.Int64  // when bytes moved, in nanoseconds since the hub's start of it
	start time.Time

	mu      sync.Mutex
	stopped bool
	atWork  *worker
}

// worker is one HTTP request of the runner for a transfer.
type worker struct {
	rc     *http.ResponseController
	kicked atomic.Bool
}

// errKicked is a worker's when it is to make place.
var errKicked = errors.New("another request took this one's place")

func (h *Hub) newTransfer() *transfer {
	return &transfer{hub: h, id: random(16), turn: make(chan struct{}, 1), over: make(chan struct{}), start: time.Now()}
}

// begin ties the transfer to its request. Called before the id is given away.
func (t *transfer) begin(req *request) { t.req = req }

// ServeTransfer answers HEAD, PUT and GET of /ws/transfers/{id}.
func (h *Hub) ServeTransfer(w http.ResponseWriter, r *http.Request, id string, caller Caller) {
	h.mu.Lock()
	t := h.transfers[id]
	if t == nil || h.closed || t.req.m.key.user != caller.UserID || t.req.m.tokenID != caller.TokenID {
		h.mu.Unlock()
		http.Error(w, "there is no such transfer, or it has ended", http.StatusNotFound)
		return
	}
	h.work.Add(1)
	h.mu.Unlock()
	defer h.work.Done()

	serve := t.serveOut
	switch {
	case t.incoming != nil && r.Method == http.MethodHead:
		serve = t.serveOffset
	case t.incoming != nil && r.Method == http.MethodPut:
		serve = t.serveIn
	case t.outgoing == nil || r.Method != http.MethodGet:
		http.Error(w, "this transfer goes the other way", http.StatusMethodNotAllowed)
		return
	}
	me := &worker{rc: http.NewResponseController(w)}
	_ = me.rc.SetReadDeadline(time.Time{}) // the server's own limits are for what clients ask; those for a transfer's bytes are set as they come
	_ = me.rc.SetWriteDeadline(time.Time{})
	if err := t.take(r.Context(), me); err != nil {
		http.Error(w, "the transfer has ended", http.StatusConflict)
		return
	}
	defer t.release()
	serve(w, r, me)
}

// take makes a request the one at work: the one before it has to leave.
func (t *transfer) take(ctx context.Context, me *worker) error {
	t.mu.Lock()
	if t.stopped {
		t.mu.Unlock()
		return errKicked
	}
	if t.atWork != nil {
		t.atWork.kick()
	}
	t.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
	case <-t.over:
		return errKicked
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.atWork = me
	if t.stopped {
		t.atWork = nil
		<-t.turn
		return errKicked
	}
	return nil
}

func (t *transfer) release() {
	t.mu.Lock()
	t.atWork = nil
	t.mu.Unlock()
	<-t.turn
}

// stop ends the transfer: nobody begins any more, and who is at work leaves soon.
func (t *transfer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	t.stopped = true
	close(t.over)
	if t.atWork != nil {
		t.atWork.kick()
	}
}

// close ends the transfer and waits until nobody is at work: the caller's reader or writer is not touched after that.
func (t *transfer) close() {
	t.stop()
	t.turn <- struct{}{}
}

// moved reports whether bytes have moved, or could have, within a while.
func (t *transfer) moved(within time.Duration) bool {
	t.mu.Lock()
	busy := t.atWork != nil
	t.mu.Unlock()
	return busy || time.Since(t.start)-time.Duration(t.last.Load()) < within
}

// touch notes that bytes have moved.
func (t *transfer) touch() { t.last.Store(int64(time.Since(t.start))) }

// kick makes the worker's next read or write fail, also one that is under way.
func (w *worker) kick() {
	w.kicked.Store(true)
	_ = w.rc.SetReadDeadline(time.Unix(1, 0))
	_ = w.rc.SetWriteDeadline(time.Unix(1, 0))
}

// mayRead gives the runner some time to send a byte; mayWrite, to take some.
func (w *worker) mayRead(stall time.Duration) error {
	_ = w.rc.SetReadDeadline(time.Now().Add(stall))
	return w.check()
}

func (w *worker) mayWrite(stall time.Duration) error {
	_ = w.rc.SetWriteDeadline(time.Now().Add(stall))
	return w.check()
}

// check comes after a deadline was set, so that it cannot undo a kick.
func (w *worker) check() error {
	if w.kicked.Load() {
		return errKicked
	}
	return nil
}

// fail ends the request that the transfer is for, with an error of this side: the runner is told to give it up. What lies is a broken
// promise of the runner, for which its link is closed too. Called by who is at work, who can still answer.
func (t *transfer) fail(err error, lie bool) {
	t.mu.Lock()
	t.atWork = nil // leaves by itself
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
	req.m.left[req.id] = req.places
	req.places = 0
	h.finish(req, nil, err)
	if lie && l != nil {
		l.end(wire.StatusProtocol, fault.From(err).Message)
	}
}

// lied is the error of content that is not what the runner said of it.
func (t *transfer) lied(format string, args ...any) error {
	return fault.New(fault.RunnerProtocol, "%s sent something else than it said: %s", t.req.m.title(), fmt.Sprintf(format, args...))
}

func newHash() hash.Hash { return sha256.New() }

// beside does something while the caller does something else: hashing a piece takes as long as passing it on.
func beside(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}
