package admission

import (
	"context"
	"io"
	"math"
	"time"

	"secbox/fault"
)

// WorkTimeout is how long one piece of work may have a processor.
const WorkTimeout = time.Minute

// NewProcessors makes a Gate for work that keeps processors busy. A client with a name has at most
// half of them at once. Any number may wait: their requests are limited before.
func NewProcessors(n int) *Gate {
	return NewShared(n, math.MaxInt, Share{AtOnce: max(1, n/2), Queue: math.MaxInt})
}

type workKey struct{}

// workers is whose work counts where.
type workers struct {
	gate   *Gate
	client func() string
}

// WithProcessors returns a context whose work takes turns at g on behalf of a client. The name may
// be unknown until the first turn.
func WithProcessors(ctx context.Context, g *Gate, client func() string) context.Context {
	return context.WithValue(ctx, workKey{}, workers{g, client})
}

// Turn has a processor for a piece of work, such as hashing a file. While it has one, the caller
// must wait for nothing but this machine's disk: not for locks, other turns, or the network; see
// Writer. It is for one goroutine.
type Turn struct {
	ctx     context.Context
	workers workers
	ticket  *Ticket   // nil: has no processor, or needs none
	since   time.Time // when it got the processor
	used    time.Duration
}

// Begin waits for a turn. The error is the cause of the end of ctx. The caller must call End.
func Begin(ctx context.Context) (*Turn, error) {
	t := newTurn(ctx)
	return t, t.enter()
}

func newTurn(ctx context.Context) *Turn {
	t := &Turn{ctx: ctx}
	t.workers, _ = ctx.Value(workKey{}).(workers)
	return t
}

func (t *Turn) enter() error {
	if err := context.Cause(t.ctx); err != nil {
		return err
	}
	if t.workers.gate == nil { // work of this server itself
		return nil
	}
	ticket, _ := t.workers.gate.EnterAs(t.workers.client()) // any number may wait
	if err := ticket.Wait(t.ctx); err != nil {
		return err
	}
	t.ticket, t.since = ticket, time.Now()
	return nil
}

// End gives the processor back. Safe to call twice.
func (t *Turn) End() {
	if t.ticket != nil {
		t.ticket.Leave()
		t.ticket = nil
		t.used += time.Since(t.since)
	}
}

// Next lets others have the processor between two pieces of work. It fails with the cause of the
// end of ctx, and with fault.ServerBusy after WorkTimeout.
func (t *Turn) Next() error {
	t.End()
	if t.used > WorkTimeout {
		return fault.New(fault.ServerBusy,
			"the request took more than %v of a processor's time; ask for less at once, or use a command in the sandbox", WorkTimeout)
	}
	return t.enter()
}

// Reader calls Next before each Read, whose caller works on what it has read.
func (t *Turn) Reader(r io.Reader) io.Reader { return turnReader{t, r} }

// Writer gives the processor back while w, which may wait for the network, writes. WorkTimeout
// begins anew after each Write.
func (t *Turn) Writer(w io.Writer) io.Writer { return turnWriter{t, w} }

type turnReader struct {
	turn *Turn
	r    io.Reader
}

func (r turnReader) Read(p []byte) (int, error) {
	if err := r.turn.Next(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

type turnWriter struct {
	turn *Turn
	w    io.Writer
}

func (w turnWriter) Write(p []byte) (int, error) {
	w.turn.End()
	n, err := w.w.Write(p)
	if err != nil {
		return n, err
	}
	w.turn.used = 0
	return n, w.turn.enter()
}

// InTurns returns a writer whose Write takes a turn, for a w that computes, such as a hash. The
// caller may wait for the network between writes.
func InTurns(ctx context.Context, w io.Writer) io.Writer { return worker{newTurn(ctx), w} }

type worker struct {
	turn *Turn
	w    io.Writer
}

func (w worker) Write(p []byte) (int, error) {
	if err := w.turn.Next(); err != nil {
		return 0, err
	}
	defer w.turn.End()
	return w.w.Write(p)
}

// Do runs one piece of work in a turn.
func Do(ctx context.Context, work func() error) error {
	t, err := Begin(ctx)
	if err != nil {
		return err
	}
	defer t.End()
	return work()
}

// Copy is io.Copy in a turn from a file of this machine to a writer that does not wait, such as a
// hash.
func Copy(ctx context.Context, w io.Writer, r io.Reader) (int64, error) {
	t, err := Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer t.End()
	return io.CopyBuffer(struct{ io.Writer }{w}, t.Reader(r), make([]byte, copyBytes))
}

// copyBytes is how much is copied before others may have the processor.
const copyBytes = 256 << 10
