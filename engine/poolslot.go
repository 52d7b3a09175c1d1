package engine

import (
	"context"
	"io"
	"sync"
	"time"

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
	if err := s.begin(); err != nil {
		return Exit{}, err
	}
	s.pool.addRunning(1)
	defer s.pool.addRunning(-1)
	exit, err := s.standby.Run(ctx, job, stdout, stderr)
	if s.attachFailed {
		s.pool.addUnattached()
	}
	return exit, err
}

// Serve implements Keeper.
func (s *warmSlot) Serve(ctx context.Context, reports Reports) (*Resident, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	s.pool.addServing()
	r, err := s.standby.Serve(ctx, reports)
	if s.attachFailed {
		s.pool.addUnattached()
	}
	return r, err
}

// addServing counts a container that begins to serve as a running job, as long as one delays
// refills: its first job comes at once. Later it does nothing most of the time.
func (p *Pool) addServing() {
	p.addRunning(1)
	time.AfterFunc(refillDelay, func() { p.addRunning(-1) })
}

// begin notes that the container is used, unless its directories could not be prepared.
func (s *warmSlot) begin() error {
	if err := s.awaitAssignment(); err != nil {
		s.refused = true
		s.pool.putBack(s.pooled)
		return &RunError{Dead: true, Err: fault.From(err)}
	}
	s.pool.use(s.spec, s.pooled)
	return nil
}

// missSlot is a cold slot, whose start has priority over refills.
type missSlot struct {
	*coldSlot
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
	exit, err := s.coldSlot.Run(ctx, job, stdout, stderr)
	s.started()
	if s.running {
		s.pool.addRunning(-1)
	}
	return exit, err
}

// Serve implements Keeper.
func (s *missSlot) Serve(ctx context.Context, reports Reports) (*Resident, error) {
	defer s.started()
	s.pool.use(s.spec, nil)
	return s.coldSlot.Serve(ctx, reports)
}

func (s *missSlot) Discard() {
	s.coldSlot.Discard()
	s.started()
}
