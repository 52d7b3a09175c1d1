package inflight

import (
	"context"

	"secbox/admission"
	"secbox/fault"
)

// Queue bounds work that costs the disk and a processor: unpacking archives, copying whole skills.
type Queue struct {
	gate    *admission.Gate
	waiting int // at most
}

// NewQueue lets running requests work at once and waiting more wait.
func NewQueue(running, waiting int) *Queue {
	return &Queue{admission.New(running, waiting), waiting}
}

// Enter waits for its turn. The caller must call leave when its work is done, which is safe to call twice. fault.SkillsBusy when the queue is
// full.
func (q *Queue) Enter(ctx context.Context) (leave func(), err error) {
	ticket := q.gate.Enter()
	if ticket == nil {
		return nil, busy(fault.SkillsBusy, "queue full: %d requests already wait for skills to be unpacked or copied; try again shortly", q.waiting)
	}
	if err := ticket.Wait(ctx); err != nil {
		return nil, err
	}
	return ticket.Leave, nil
}
