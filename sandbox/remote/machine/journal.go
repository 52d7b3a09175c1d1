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

// Why a request ends that did not end by itself.
var (
	errCanceled   = errors.New("core-api canceled it")
	errUnexpected = errors.New("core-api does not wait for it any more")
	errStopped    = errors.New("the runner was stopped on its machine")
)

// journal is what a runner knows of the requests of its session, whatever becomes of its links: those that were taken and whose results
// were not acknowledged, and the ids of those before. It also says what is to be sent next; one link at a time asks for that. Safe for
// concurrent use.
type journal struct {
	seed maphash.Seed
	wake chan struct{} // has a token when something may have become ready

	mu      sync.Mutex
	held    map[string]*request
	working int // of held, without a result
	seen    map[string]uint64
	order   []string // of seen, a ring; the oldest at next
	next    int
	ready   []*request    // with something to send, each once, in turn
	stopped bool          // nothing more is taken
	settled chan struct{} // closed when it was stopped and nothing is held any more
}

// request is one that was taken.
type request struct {
	id     string
	typ    wire.Type
	ctx    context.Context
	cancel context.CancelCauseFunc

	// The rest is the journal's.
	stdout, stderr *output // of a command that was started
	answer         answer  // nil until there is one
	release        func()  // gives back what the answer holds; not nil once there is one
	sent           [2]int64
	part           int  // of the answer, to be sent next
	answered       bool // all parts were given to the present link
	queued         bool
	late           bool // core-api does not wait for it
}

// answer is a result: one message, or several.
type answer interface {
	// message returns a part of it. more says that there are others behind it. r is the request, for what has been sent of its output.
	message(part int, sent [2]int64) (t wire.Type, body any, more bool)
}

func newJournal() *journal {
	return &journal{
		seed: maphash.MakeSeed(), wake: make(chan struct{}, 1), settled: make(chan struct{}),
		held: map[string]*request{}, seen: map[string]uint64{}, order: make([]string, 0, wire.KeptIDs),
	}
}

// verdict is what is to be done with a request that has arrived.
type verdict int

const (
	takeIt  verdict = iota
	known           // it is at work or done, and is or was answered
	reused          // the id belongs to another request, or to one that was acknowledged
	tooMany         // nothing was noted: it may come again
	closing
)

// take notes a request, so that it is carried out at most once in this session. content is its frame.
func (j *journal) take(ctx context.Context, m wire.Message, content []byte) (*request, verdict) {
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
			j.push(r)
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
	j.held[m.ID] = r
	j.working++
	j.remember(m.ID, digest)
	return r, takeIt
}

// remember keeps the last KeptIDs ids.
func (j *journal) remember(id string, digest uint64) {
	j.seen[id] = digest
	if len(j.order) < wire.KeptIDs {
		j.order = append(j.order, id)
		return
	}
	// One that is held stays known: it is looked for again when the ring has gone round.
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

// finish notes the result of a request; release is called when nobody needs it any more.
func (j *journal) finish(r *request, a answer, release func()) {
	r.cancel(nil)
	j.mu.Lock()
	defer j.mu.Unlock()
	r.answer, r.release = a, release
	j.working--
	j.push(r)
}

// writes notes where the output of a command is kept that is about to start.
func (j *journal) writes(r *request, stdout, stderr *output) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.stdout, r.stderr = stdout, stderr
}

// wrote notes that a command has written something that may go now.
func (j *journal) wrote(r *request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !r.late {
		j.push(r)
	}
}

func (j *journal) push(r *request) {
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

// pop returns the next message for the present link; nil when there is none. Requests take turns, one message each, so that a long
// output holds nobody up.
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
		r.sent, r.part = f.sent, f.part
		r.answered = f.last
		if f.more {
			j.push(r)
		}
		j.mu.Unlock()
		return f
	}
}

// frame is a message that is to be sent, and where its request is when it was.
type frame struct {
	id   string
	typ  wire.Type
	body any
	sent [2]int64
	part int
	last bool // the request is answered with it
	more bool // there is more to be sent already
}

// frame makes the request's next message: a piece of output, or a part of the result when what is left of the output fits into it. The
// receiver is a copy of what the journal has.
func (r request) frame() *frame {
	if r.late {
		r.sent = [2]int64{-1, -1}
	} else if f := r.piece(); f != nil {
		return f
	}
	if r.answer == nil {
		return nil
	}
	t, body, more := r.answer.message(r.part, r.sent)
	return &frame{id: r.id, typ: t, body: body, sent: r.sent, part: r.part + 1, last: !more, more: more}
}

// piece is some output, if there is more than the result itself should carry.
func (r *request) piece() *frame {
	for i, name := range streams {
		unsent := r.unsent(i, r.sent)
		if unsent <= 0 || r.answer != nil && unsent <= restBytes {
			continue
		}
		data := r.stream(i).from(r.sent[i], wire.MaxOutput)
		if len(data) == 0 {
			continue
		}
		f := &frame{id: r.id, typ: wire.TypeOutput, body: &wire.Output{Stream: name, Offset: r.sent[i], Data: data}, sent: r.sent, part: r.part}
		f.sent[i] += int64(len(data))
		f.more = r.answer != nil || r.unsent(0, f.sent) > 0 || r.unsent(1, f.sent) > 0
		return f
	}
	return nil
}

// restBytes is how much of each stream goes with the result itself, so that a short command is one message each way.
const restBytes = wire.MaxOutput

var streams = []string{wire.Stdout, wire.Stderr}

func (r *request) stream(i int) *output {
	if i == 0 {
		return r.stdout
	}
	return r.stderr
}

// unsent is how much of a stream was kept beyond what was sent.
func (r *request) unsent(i int, sent [2]int64) int64 {
	o := r.stream(i)
	if o == nil {
		return 0
	}
	_, kept, _ := o.sizes()
	return kept - sent[i]
}

// ids are those of the requests that are held, for the hello.
func (j *journal) ids() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Keys(j.held))
}

// attach begins a new link, on which core-api says what it waits for and what it has. What it does not wait for is ended, and answered once.
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
		r.part, r.answered, r.late = 0, false, !ok
		if !ok {
			unexpected++
			r.cancel(errUnexpected)
		} else {
			resumed++
			r.sent = [2]int64{r.clamp(0, e.Stdout), r.clamp(1, e.Stderr)}
		}
		if r.answer != nil || ok && (r.unsent(0, r.sent) > 0 || r.unsent(1, r.sent) > 0) {
			j.push(r)
		}
	}
	return resumed, unexpected
}

// clamp is how much core-api can have of a stream, whatever it says.
func (r *request) clamp(stream int, says int64) int64 {
	return min(says, max(0, r.unsent(stream, [2]int64{})))
}

// stop ends all that is at work; nothing is taken any more.
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

// cancel ends one request; it is answered nevertheless.
func (j *journal) cancel(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r := j.held[id]; r != nil {
		r.cancel(errCanceled)
	}
}

// acknowledge forgets a request whose result has arrived. One that has none yet cannot have.
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

// forgetLate makes room among the results that nobody has waited for.
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

// close gives back what is held still. Called when nothing is at work any more.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.held {
		j.forget(r)
	}
}
