package engine

import (
	"context"
	"io"
	"sync"
)

// warmSlot is a slot with a container that waited.
type warmSlot struct {
	*pooled
	pool *Pool
	spec Spec
}

// Discard lets a container for any project wait again.
func (s *warmSlot) Discard() { s.pool.putBack(s.pooled) }

func (s *warmSlot) Run(ctx context.Context, job Job, stdout, stderr io.Writer) (Exit, error) {
	s.pool.addRunning(1)
	defer s.pool.addRunning(-1)
	s.pool.use(s.spec, s.pooled)
	return s.standby.Run(ctx, job, stdout, stderr)
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
