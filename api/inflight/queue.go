package inflight

import (
	"context"

	"secbox/fault"
	"secbox/internal/admission"
)

// Queue bounds work that costs the disk and a processor: unpacking archives, copying whole skills.
type Queue struct {
	gate    *admission.Gate
	waiting int             // at most
	each    admission.Share // of these, for one token
}

// NewQueue lets running requests work at once and waiting more wait, half of them of one token.
func NewQueue(running, waiting int) *Queue {
	each := admission.Share{AtOnce: (running + 1) / 2, Queue: (waiting + 1) / 2}
	return &Queue{admission.NewShared(running, waiting, each), waiting, each}
}

// Enter waits for a turn of a token. The caller must call leave when its work is done, which is
// safe to call twice. fault.SkillsBusy when the queue is full.
func (q *Queue) Enter(ctx context.Context, token string) (leave func(), err error) {
	ticket, its := q.gate.EnterAs(token)
	switch {
	case its:
		return nil,
			busy(fault.SkillsBusy,
				"token limit reached: %d requests already wait for skills to be unpacked or copied; wait for those and try again",
				q.each.Queue)
	case ticket == nil:
		return nil, busy(fault.SkillsBusy, "queue full: %d requests already wait for skills to be unpacked or copied; try again shortly",
			q.waiting)
	}
	if err := ticket.Wait(ctx); err != nil {
		return nil, err
	}
	return ticket.Leave, nil
}

// Turns bounds how many answers are made of the database and the disk at once. Tokens take turns:
// however many requests of one wait, a request of another one is next.
type Turns struct {
	gate  *admission.Gate
	queue int
	each  admission.Share
}

// NewTurns lets atOnce requests work and queue more wait, each of one token at most.
func NewTurns(atOnce, queue int, each admission.Share) *Turns {
	return &Turns{admission.NewShared(atOnce, queue, each), queue, each}
}

// Enter waits for a turn of a token. The caller must call leave when the answer is made, and before
// it is sent; it is safe to call twice. fault.ServerBusy when too many wait.
func (t *Turns) Enter(ctx context.Context, token string) (leave func(), err error) {
	ticket, its := t.gate.EnterAs(token)
	switch {
	case its:
		return nil,
			busy(fault.ServerBusy, "token limit reached: %d requests for lists and pages wait already; wait for those and try again",
				t.each.Queue)
	case ticket == nil:
		return nil, busy(fault.ServerBusy, "server limit reached: %d requests for lists and pages wait already; try again shortly", t.queue)
	}
	if err := ticket.Wait(ctx); err != nil {
		return nil, err
	}
	return ticket.Leave, nil
}
