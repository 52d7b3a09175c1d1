package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// request is one call to a runner. Guarded by Hub.mu, except for the call.
type request struct {
	call
	m       *machine
	permits int64
	done    chan struct{} // closed when over
	stopped chan struct{} // closed by stop

	seq      uint64
	frame    []byte // dropped when over
	sent     bool   // or being sent
	canceled bool   // a cancel was sent, and the answer is awaited
	began    bool   // the runner has sent a message about it
	over     bool
	answer   any // a body of package wire, when err is nil; nil for ok
	err      error
	stopping error // the argument of stop

	entries []wire.DirEntry // of read_dir: received so far
}

// call describes a request to make.
type call struct {
	id       string // of exec, if its spec has one; otherwise do makes one
	op       wire.Type
	path     string // for errors; the directory of exec
	body     any    // dropped when it is encoded
	user     sandbox.User
	timeout  time.Duration // for the answer
	exec     *execution    // of exec
	input    *input        // of exec with input, and where it comes from
	stdin    io.Reader
	signals  <-chan syscall.Signal
	transfer *transfer // of read_file and write_file, if needed
}

// changes reports whether the request changes something on the runner: without an answer the
// outcome is unknown.
func (c call) changes() bool { return c.op.Needs() != "" }

// do makes a request: it waits for permits, queues the message, and waits for the answer. The
// request is over when do returns.
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
	req := &request{call: c, m: m, done: make(chan struct{}), stopped: make(chan struct{})}
	req.body = nil
	if req.id == "" {
		h.last++
		req.id = fmt.Sprintf("%s-%d", h.idPrefix, h.last)
	}
	if t := c.transfer; t != nil {
		t.begin(c.body.(*wire.Path), m.hello)
	}
	h.mu.Unlock()
	if req.frame, err = wire.Encode(req.id, c.op, c.body); err != nil {
		if errors.Is(err, wire.ErrTooLong) {
			return nil,
				fault.BadField("stdin", "the command, its variables and its input together exceed the %d bytes of a message to a runner",
					wire.MaxMessage)
		}
		return nil, err
	}
	req.permits = weight(len(req.frame))
	if req.input != nil {
		req.permits += wire.StdinWindow / permitBytes
	}
	if err := h.admit(ctx, req); err != nil {
		return nil, err
	}
	if req.input != nil {
		h.feed(req, req.stdin, req.signals)
	}
	err = h.await(ctx, req)
	if t := req.transfer; t != nil {
		t.close()
	}
	return req, err
}

// admit waits for permits and queues the request.
func (h *Hub) admit(ctx context.Context, req *request) error {
	m := req.m
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.mayQueue(req); err != nil {
		return err
	}
	if err := m.permits.take(ctx, &h.mu, req.permits, req.user); err != nil {
		return err
	}
	if err := h.mayQueue(req); err != nil { // while it waited, mu was unlocked
		m.permits.Release(req.permits)
		return err
	}
	h.last++
	req.seq = h.last
	m.pending[req.id] = req
	if req.transfer != nil {
		req.transfer.req = req
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
	case m.hasID(req.id):
		return fault.New(fault.SandboxBusy, "the runner already has a command with the id %s", req.id)
	}
	return nil
}

// await waits for the answer. When ctx ends first, it cancels the request and waits for the runner
// to report how far it came.
func (h *Hub) await(ctx context.Context, req *request) error {
	timer := time.NewTimer(req.timeout)
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
			if t := req.transfer; t != nil && t.isActive(h.cfg.Grace+h.cfg.Stall) {
				timer.Reset(req.timeout)
				continue
			}
			cause = fault.New(fault.RunnerOffline, "%s did not answer within %s", req.m.title(), req.timeout)
		}
	}
	if h.cancel(req, cause) {
		timer.Reset(min(cancelGrace, h.cfg.Grace))
		select {
		case <-req.done:
		case <-timer.C:
			h.mu.Lock()
			h.abandon(req, cause)
			h.mu.Unlock()
		}
	}
	<-req.done
	result, ran := req.answer.(*wire.ExecResult)
	switch {
	case ran && result.Canceled && fault.Is(cause, fault.RunnerOffline): // whose code says that nothing was done
		return fault.Wrap(fault.OutcomeUnknown, cause, "%s, and then killed the command, which may be done in part",
			fault.From(cause).Message)
	case errors.Is(req.err, errCanceled), ran && result.Canceled:
		return cause
	case fault.Is(req.err, fault.OutcomeUnknown) && !errors.Is(req.err, cause):
		return fault.Wrap(fault.OutcomeUnknown, cause, "%s", fault.From(req.err).Message)
	}
	return req.err // it was done before the cancel arrived
}

// errCanceled is in the chain when the runner gave up a request and did nothing.
var errCanceled = errors.New("canceled")

// cancel tells the runner to give the request up, and reports whether to wait for its answer; if
// not, the request is over.
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
		h.abandon(req, cause)
		return false
	}
	if req.transfer != nil {
		req.transfer.stop()
	}
	m.link.sendBody(req.id, wire.TypeCancel, nil)
	if !req.changes() {
		h.abandon(req, cause)
		return false
	}
	req.canceled = true
	return true
}

// abandon ends a request that the runner still holds. Its permits are returned when the runner
// answers. h.mu is held.
func (h *Hub) abandon(req *request, cause error) {
	if req.over {
		return
	}
	if req.changes() {
		cause = fault.Wrap(fault.OutcomeUnknown, cause,
			"%s was told to stop and has not answered: the request may be done in part or whole", req.m.title())
	}
	req.m.abandoned[req.id] = req.permits
	req.permits = 0
	h.finish(req, nil, cause)
}

// stop makes the waiting goroutine cancel the request. Hub.mu is held.
func (r *request) stop(cause error) {
	if r.stopping == nil {
		r.stopping = cause
		close(r.stopped)
	}
}

// finish ends a request. Hub.mu is held.
func (h *Hub) finish(req *request, answer any, err error) {
	if req.over {
		return
	}
	req.over, req.answer, req.err, req.frame = true, answer, err, nil
	delete(req.m.pending, req.id)
	if t := req.transfer; t != nil {
		delete(h.transfers, t.id)
	}
	if l := req.m.link; l != nil && (!req.sent || req.input != nil) {
		l.withdraw(req)
	}
	req.m.permits.Release(req.permits)
	close(req.done)
	if m := req.m; m.link == nil && len(m.pending) == 0 && !h.closed {
		h.drop(m)
	}
}

// expected describes a request that the runner holds, for the welcome.
func (r *request) expected() wire.Expected {
	e := wire.Expected{ID: r.id}
	if r.exec != nil {
		e.Stdout, e.Stderr = r.exec.stdout.got, r.exec.stderr.got
	}
	r.entries = nil // a list is sent again from its beginning
	return e
}

// hasID reports whether an id is in use.
func (m *machine) hasID(id string) bool {
	_, left := m.abandoned[id]
	_, late := m.late[id]
	return left || late || m.pending[id] != nil
}

// checkPath checks a path as sandbox.Clean does, and refuses paths that exist on this side only.
func (h *Hub) checkPath(op, path string) error {
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
