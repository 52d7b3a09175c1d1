package remote

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// request is one call on its way. Guarded by Hub.mu but for what never changes.
type request struct {
	id      string
	op      wire.Type
	path    string // for errors; of exec its directory
	user    sandbox.User
	changes bool          // something on the runner: nobody knows what has become of it when the answer is lost
	within  time.Duration // how long the answer may take
	m       *machine
	places  int
	done    chan struct{} // closed when over
	stopped chan struct{} // closed by stop

	seq      uint64
	frame    []byte // dropped when over
	sent     bool   // or being sent
	canceled bool   // the runner was told to give it up, and its word is waited for
	began    bool   // the runner has said something about it
	over     bool
	answer   any // a body of package wire, when err is nil; nil for ok
	err      error
	stopping error // why it was stopped

	exec     *execution      // of exec
	entries  []wire.DirEntry // of read_dir: what has come so far
	transfer *transfer       // of read_file and write_file, when there may be one
}

// call is what a method wants of a runner.
type call struct {
	id       string // of exec, when its spec names one
	op       wire.Type
	path     string
	body     any
	user     sandbox.User
	changes  bool
	within   time.Duration
	exec     *execution
	transfer *transfer
}

// do carries a call out: it waits for a place, has it sent, and waits for the answer. The request is over when it returns.
func (h *Hub) do(ctx context.Context, c call) (*request, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	m, err := h.pick(c.user)
	if err != nil {
		h.mu.Unlock()
		return nil, err
	}
	req := &request{
		id: c.id, op: c.op, path: c.path, user: c.user, changes: c.changes, within: c.within, m: m,
		done: make(chan struct{}), stopped: make(chan struct{}), exec: c.exec, transfer: c.transfer,
	}
	if req.id == "" {
		req.id = h.nextID()
	}
	h.mu.Unlock()
	if req.frame, err = wire.Encode(req.id, c.op, c.body); err != nil {
		if errors.Is(err, wire.ErrTooLong) {
			return nil, fault.BadField("stdin", "the command, its variables and its input are too long for a runner: all of it must fit into %d bytes",
				wire.MaxMessage)
		}
		return nil, err
	}
	req.places = weight(len(req.frame))
	if err := h.admit(ctx, req); err != nil {
		return nil, err
	}
	err = h.await(ctx, req)
	if t := req.transfer; t != nil {
		t.close()
	}
	return req, err
}

// admit waits for a place and queues the request.
func (h *Hub) admit(ctx context.Context, req *request) error {
	m := req.m
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.mayQueue(req); err != nil {
		return err
	}
	w, err := m.places.enter(req.places, req.user)
	if err != nil {
		return err
	}
	h.mu.Unlock()
	select {
	case <-w.ready:
		err = w.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	h.mu.Lock()
	if err == nil {
		err = h.mayQueue(req)
	}
	if err != nil {
		m.places.leave(w)
		return err
	}
	h.last++
	req.seq = h.last
	m.pending[req.id] = req
	if req.transfer != nil {
		req.transfer.begin(req)
		h.transfers[req.transfer.id] = req.transfer
	}
	m.link.send(item{frame: req.frame, req: req})
	return nil
}

func (h *Hub) mayQueue(req *request) error {
	switch m := req.m; {
	case h.closed:
		return errShuttingDown()
	case m.link == nil:
		return m.offline()
	case m.knows(req.id):
		return fault.New(fault.SandboxBusy, "a command with the id %s is with the runner already", req.id)
	}
	return nil
}

// await waits for the answer, and for the runner's word on what was done when ctx ends before.
func (h *Hub) await(ctx context.Context, req *request) error {
	timer := time.NewTimer(req.within)
	defer timer.Stop()
	var cause error
	for cause == nil {
		select {
		case <-req.done:
			return req.err
		case <-req.stopped:
			cause = req.stopping
		case <-ctx.Done():
			cause = ctx.Err()
		case <-timer.C:
			if t := req.transfer; t != nil && t.moved(h.cfg.Grace+h.cfg.Stall) {
				timer.Reset(req.within)
				continue
			}
			cause = fault.New(fault.RunnerOffline, "%s did not answer within %s", req.m.title(), req.within)
		}
	}
	if h.cancel(req, cause) {
		timer.Reset(min(cancelGrace, h.cfg.Grace))
		select {
		case <-req.done:
		case <-timer.C:
			h.leave(req, cause)
		}
	}
	<-req.done
	result, ran := req.answer.(*wire.ExecResult)
	switch {
	case ran && result.Canceled && fault.Is(cause, fault.RunnerOffline): // which says that nothing was done
		return fault.Wrap(fault.OutcomeUnknown, cause, "%s, and has killed the command then: what it had done by then is done", fault.From(cause).Message)
	case errors.Is(req.err, errCanceled), ran && result.Canceled:
		return cause
	case fault.Is(req.err, fault.OutcomeUnknown) && !errors.Is(req.err, cause):
		return fault.Wrap(fault.OutcomeUnknown, cause, "%s", fault.From(req.err).Message)
	}
	return req.err // it was done before the cancel came, or could not be
}

// errCanceled is in the chain when the runner says that it has given a request up, and that nothing of it was done.
var errCanceled = errors.New("canceled")

// cancel tells the runner that the answer is not needed. It reports whether its word must be waited for: otherwise the request is over.
func (h *Hub) cancel(req *request, cause error) (wait bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := req.m
	switch {
	case req.over:
		return false
	case !req.sent:
		h.finish(req, nil, cause)
		return false
	case m.link == nil:
		h.leaveBehind(req, cause)
		return false
	}
	if req.transfer != nil {
		req.transfer.stop()
	}
	m.link.sendBody(req.id, wire.TypeCancel, nil)
	if !req.changes {
		h.leaveBehind(req, cause)
		return false
	}
	req.canceled = true
	return true
}

// leave gives up waiting for the runner's word.
func (h *Hub) leave(req *request, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaveBehind(req, cause)
}

// leaveBehind ends a request that the runner still holds. Its places are free when the runner has answered.
func (h *Hub) leaveBehind(req *request, cause error) {
	if req.over {
		return
	}
	if req.changes {
		cause = fault.Wrap(fault.OutcomeUnknown, cause, "%s was told to stop and has not answered: it may be done in part or whole", req.m.title())
	}
	req.m.left[req.id] = req.places
	req.places = 0
	h.finish(req, nil, cause)
}

// stop has the waiting goroutine cancel the request. Called with Hub.mu held.
func (r *request) stop(cause error) {
	if r.stopping == nil {
		r.stopping = cause
		close(r.stopped)
	}
}

// finish is the end of a request. Called with Hub.mu held.
func (h *Hub) finish(req *request, answer any, err error) {
	if req.over {
		return
	}
	req.over, req.answer, req.err, req.frame = true, answer, err, nil
	delete(req.m.pending, req.id)
	if t := req.transfer; t != nil {
		delete(h.transfers, t.id)
	}
	if l := req.m.link; l != nil && !req.sent {
		l.withdraw(req)
	}
	req.m.places.release(req.places)
	close(req.done)
	if m := req.m; m.link == nil && len(m.pending) == 0 && !h.closed {
		h.drop(m)
	}
}

// expected is what the welcome says of a request that the runner holds.
func (r *request) expected() wire.Expected {
	e := wire.Expected{ID: r.id}
	if r.exec != nil {
		e.Stdout, e.Stderr = r.exec.stdout.got, r.exec.stderr.got
	}
	r.entries = nil // a list comes again from its beginning
	return e
}

// knows reports whether an id is in use.
func (m *machine) knows(id string) bool {
	_, left := m.left[id]
	_, late := m.late[id]
	return left || late || m.pending[id] != nil
}

// where checks a path before it is sent, as sandbox.Clean does, and refuses what is on this side only.
func (h *Hub) where(op, path string) error {
	for _, root := range h.cfg.ReadOnlyRoots {
		if path == root || strings.HasPrefix(path, root+"/") {
			return fault.New(fault.Unsupported, "%s is not on the user's machine; only %s is", root, sandbox.Root)
		}
	}
	if _, err := sandbox.Clean(op, path, sandbox.Root); err != nil {
		return err
	}
	if !utf8.ValidString(path) { // JSON cannot carry it
		return &fs.PathError{Op: op, Path: path, Err: fs.ErrInvalid}
	}
	return nil
}
