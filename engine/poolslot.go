package engine

import (
	"context"
	"io"
	"sync"

	"secbox/fault"
)

// warmSlot is a slot with a container that waited.
type warmSlot struct {
	*pooled
	pool    *Pool
	spec    Spec
	refused bool // Run has given the container back: it may serve another exec by now
}

// Discard lets a container for any project wait again.
func (s *warmSlot) Discard() { s.pool.putBack(s.pooled) }

func (s *warmSlot) Warm() bool     { return !s.refused && s.pooled.Warm() }
func (s *warmSlot) Attached() bool { return !s.refused && s.pooled.Attached() }

func (s *warmSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	if err := s.awaitAssignment(); err != nil {
		s.refused = true
		s.pool.putBack(s.pooled)
		return Exit{}, &RunError{Dead: true, Err: fault.From(err)}
	}
	s.pool.addRunning(1)
	defer s.pool.addRunning(-1)
	s.pool.use(s.spec, s.pooled)
	exit, err := s.standby.Run(ctx, job, stdout, stderr)
	if s.attachFailed {
		s.pool.addUnattached()
	}
	return exit, err
}

// missSlot is a cold slot, whose start has priority over refills.
type missSlot struct {
	Slot
	pool    *Pool
	spec    Spec
	once    sync.Once
	running bool // set by OnStart, read after Run
}

func (s *missSlot) started() { s.once.Do(func() { s.pool.addMisses(-1) }) }

func (s *missSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	s.pool.use(s.spec, nil)
	onStart := job.OnStart
	job.OnStart = func() {
		s.running = true
		s.pool.addRunning(1)
		s.started()
		if onStart != nil {
			onStart()
		}
	}
	exit, err := s.Slot.Run(ctx, job, stdout, stderr)
	s.started()
	if s.running {
		s.pool.addRunning(-1)
	}
	return exit, err
}

func (s *missSlot) Discard() {
	s.Slot.Discard()
	s.started()
}
