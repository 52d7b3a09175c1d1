package machine

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"secbox/sandbox/remote/wire"
)

// Why a request is ended.
var (
	errCanceled   = errors.New("core-api canceled it")
	errUnexpected = errors.New("core-api no longer waits for it")
	errStopped    = errors.New("the runner was stopped on its machine")
)

// journal keeps the requests of a session across links: every request without an acknowledged
// result, and the ids of older requests. It also decides what to send next; one link at a time
// calls pop. Safe for concurrent use.
type journal struct {
	seed maphash.Seed
	wake chan struct{} // has an element when something may be ready

	mu      sync.Mutex
	held    map[string]*request
	working int // requests in held without a result
	seen    map[string]uint64
	order   []string // a ring of the keys of seen; the oldest at next
	next    int
	ready   []*request    // requests with something to send, each once
	stopped bool          // no more requests are taken
	settled chan struct{} // closed when stopped and nothing is held
}

// request is a request that was taken.
type request struct {
	id     string
	typ    wire.Type
	ctx    context.Context
	cancel context.CancelCauseFunc
	input  *input // of a command that takes input while it runs

	// Guarded by journal.mu.
	output   [2]*output // stdout and stderr of a command that was started
	answer   answer     // nil: still running
	release  func()     // frees the memory of the answer; set together with it
	sent     [2]int64
	acked    [2]int64 // of the input, on the present link
	part     int      // of the answer, to be sent next
	answered bool     // the present link has got all parts
	queued   bool
	late     bool // core-api does not wait for it
}

// answer is a result in one message or several.
type answer interface {
	// message returns a part of the result; more reports whether there are others after it. sent is
	// how much output of the two streams was sent, -1 if core-api does not want it.
	message(part int, sent [2]int64) (t wire.Type, body any, more bool)
}

func newJournal() *journal {
	return &journal{
		seed: maphash.MakeSeed(), wake: make(chan struct{}, 1), settled: make(chan struct{}),
		held: map[string]*request{}, seen: map[string]uint64{}, order: make([]string, 0, wire.KeptIDs),
	}
}

// decision is the answer to an arriving request.
type decision int

const (
	accepted decision = iota
	known             // running or done; it is, or was, answered
	reused            // another request has, or had, this id
	tooMany           // nothing was recorded: it may come again
	closing
)

// take records a request, so that it is run at most once in this session. content is its frame.
func (j *journal) take(ctx context.Context, m wire.Message, content []byte) (*request, decision) {
	digest := maphash.Bytes(j.seed, content)
	j.mu.Lock()
	defer j.mu.Unlock()
	if before, ok := j.seen[m.ID]; ok {
		r := j.held[m.ID]
		if r == nil || before != digest {
			return nil, reused
		}
		if r.answered {
			r.sent, r.part, r.answered = [2]int64{}, 0, false
			j.enqueue(r)
		}
		return r, known
	}
	switch {
	case j.stopped:
		return nil, closing
	case j.working >= wire.MaxInFlight:
		return nil, tooMany
	case len(j.held) >= wire.MaxHeld && !j.forgetLate():
		return nil, tooMany
	}
	r := &request{id: m.ID, typ: m.Type}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	if e, ok := m.Body.(*wire.Exec); ok && e.Input {
		r.input = newInput(func() { j.outputReady(r) })
	}
	j.held[m.ID] = r
	j.working++
	j.remember(m.ID, digest)
	return r, accepted
}

// remember keeps the last KeptIDs ids.
func (j *journal) remember(id string, digest uint64) {
	j.seen[id] = digest
	if len(j.order) < wire.KeptIDs {
		j.order = append(j.order, id)
		return
	}
	// Ids of held requests stay: skip them.
	for range wire.MaxHeld + 1 {
		oldest := j.order[j.next]
		if j.held[oldest] == nil {
			delete(j.seen, oldest)
			break
		}
		j.next = (j.next + 1) % wire.KeptIDs
	}
	j.order[j.next] = id
	j.next = (j.next + 1) % wire.KeptIDs
}

// finish records the result of a request; release is called when it is no longer needed.
func (j *journal) finish(r *request, a answer, release func()) {
	r.cancel(nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	r.answer, r.release = a, release
	j.working--
	j.enqueue(r)
}

// setOutput records the output of a command that is about to start.
func (j *journal) setOutput(r *request, stdout, stderr *output) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.output = [2]*output{stdout, stderr}
}

// outputReady records that a command has output to send, or input to acknowledge.
func (j *journal) outputReady(r *request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !r.late {
		j.enqueue(r)
	}
}

func (j *journal) enqueue(r *request) {
	if r.queued || r.answered {
		return
	}
	r.queued = true
	j.ready = append(j.ready, r)
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// pop returns the next message for the present link; nil: there is none. Requests take turns, one
// message each, so that long output does not delay the others.
func (j *journal) pop() *frame {
	for {
		j.mu.Lock()
		if len(j.ready) == 0 {
			j.ready = nil
			j.mu.Unlock()
			return nil
		}
		r := j.ready[0]
		j.ready = j.ready[1:]
		r.queued = false
		held := j.held[r.id] == r
		now := *r
		j.mu.Unlock()
		if !held {
			continue
		}
		f := now.frame()
		if f == nil {
			continue
		}
		j.mu.Lock()
		r.sent, r.part, r.acked = f.sent, f.part, f.acked
		r.answered = f.last
		if f.more {
			j.enqueue(r)
		}
		j.mu.Unlock()
		return f
	}
}

// frame is a message to send, and the state of its request after it.
type frame struct {
	id    string
	typ   wire.Type
	body  any
	sent  [2]int64
	acked [2]int64
	part  int
	last  bool // it completes the answer
	more  bool // the request has more to send already
}

// frame returns the request's next message: a piece of output, or a part of the result once the
// rest of the output fits into it. r is a copy of the journal's request.
func (r request) frame() *frame {
	if r.late {
		r.sent = [2]int64{-1, -1}
	} else if f := r.ack(); f != nil {
		return f
	} else if f := r.piece(); f != nil {
		return f
	}
	if r.answer == nil {
		return nil
	}
	t, body, more := r.answer.message(r.part, r.sent)
	return &frame{id: r.id, typ: t, body: body, sent: r.sent, acked: r.acked, part: r.part + 1, last: !more, more: more}
}

// piece returns a piece of output, if there is more than fits into the result.
func (r *request) piece() *frame {
	for i, name := range streams {
		unsent := r.unsent(i, r.sent)
		if unsent <= 0 || r.answer != nil && unsent <= restBytes {
			continue
		}
		data := r.output[i].read(r.sent[i], wire.MaxOutput)
		if len(data) == 0 {
			continue
		}
		f := &frame{
			id: r.id, typ: wire.TypeOutput, body: &wire.Output{Stream: name, Offset: r.sent[i], Data: data}, sent: r.sent,
			acked: r.acked, part: r.part,
		}
		f.sent[i] += int64(len(data))
		f.more = r.answer != nil || r.unsent(0, f.sent) > 0 || r.unsent(1, f.sent) > 0
		return f
	}
	return nil
}

// restBytes is how much of each stream goes into the result, so that a short command needs one
// message each way.
const restBytes = wire.MaxOutput

var streams = []string{wire.Stdout, wire.Stderr}

// unsent returns how many kept bytes of a stream were not sent.
func (r *request) unsent(i int, sent [2]int64) int64 {
	o := r.output[i]
	if o == nil {
		return 0
	}
	_, kept, _ := o.sizes()
	return kept - sent[i]
}

// heldIDs returns the ids of the held requests, for the hello.
func (j *journal) heldIDs() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Keys(j.held))
}

// attach starts a new link: expects is what core-api waits for, and how much output it has. Other
// requests are canceled, and answered once.
func (j *journal) attach(expects []wire.Expected) (resumed, unexpected int) {
	waits := make(map[string]wire.Expected, len(expects))
	for _, e := range expects {
		waits[e.ID] = e
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.ready {
		r.queued = false
	}
	j.ready = nil
	for id, r := range j.held {
		e, ok := waits[id]
		r.part, r.answered, r.late, r.acked = 0, false, !ok, [2]int64{-1, -1}
		if !ok {
			unexpected++
			r.cancel(errUnexpected)
		} else {
			resumed++
			r.sent = [2]int64{r.clamp(0, e.Stdout), r.clamp(1, e.Stderr)}
		}
		if r.answer != nil || ok && (r.input != nil || r.unsent(0, r.sent) > 0 || r.unsent(1, r.sent) > 0) {
			j.enqueue(r)
		}
	}
	return resumed, unexpected
}

// clamp bounds the number of bytes that core-api claims to have of a stream.
func (r *request) clamp(stream int, says int64) int64 {
	return min(says, max(0, r.unsent(stream, [2]int64{})))
}

// stop cancels all requests. No more are taken.
func (j *journal) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped {
		return
	}
	j.stopped = true
	for _, r := range j.held {
		r.cancel(errStopped)
	}
	if len(j.held) == 0 {
		close(j.settled)
	}
}

// cancel cancels one request; it is still answered.
func (j *journal) cancel(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.held[id]; r != nil {
		r.cancel(errCanceled)
	}
}

// acknowledge forgets a request whose result has arrived. A request without a result is kept.
func (j *journal) acknowledge(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.held[id]; r != nil && r.answer != nil {
		j.forget(r)
	}
}

func (j *journal) forget(r *request) {
	delete(j.held, r.id)
	r.release()
	if j.stopped && len(j.held) == 0 {
		close(j.settled)
	}
}

// forgetLate forgets the results that core-api did not wait for, and reports whether there were
// any.
func (j *journal) forgetLate() bool {
	found := false
	for _, r := range j.held {
		if r.late && r.answered {
			j.forget(r)
			found = true
		}
	}
	return found
}

// close forgets all requests. Called when none runs.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.held {
		j.forget(r)
	}
}
