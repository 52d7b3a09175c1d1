package schema

import (
	"runtime"
	"time"

	"secbox/fault"
)

// scheduler shares the processors among long validations. Each works for a slice of its budget and
// then lets the one go on that has waited longest, so that a shorter validation does not wait for
// the end of a longer one.
type scheduler struct {
	admitted chan struct{} // holds one element per long validation: each keeps its value in memory
	running  chan struct{} // holds one element per long validation that is working
}

func newScheduler(admitted, running int) *scheduler {
	return &scheduler{make(chan struct{}, admitted), make(chan struct{}, running)}
}

// maxLong is the number of long validations in progress.
const maxLong = 32

// processScheduler is shared by all schemas of the process.
var processScheduler = newScheduler(maxLong, runtime.GOMAXPROCS(0))

// freeSlices is the part of its budget that a validation spends before it counts as long: about 10
// ms, which is more than most need.
const freeSlices = 16

// nextSlice waits for the evaluation's turn, once it is long. It reports false when the evaluation
// must end.
func (e *evaluation) nextSlice() bool {
	switch {
	case e.refused || e.ctx.Err() != nil:
		return false
	case e.scheduler == nil:
		return true
	case e.slices < freeSlices:
		e.slices++
		return true
	case !e.admitted:
		select {
		case e.scheduler.admitted <- struct{}{}:
			e.admitted = true
		default:
			e.refused = true
			return false
		}
	case e.running:
		<-e.scheduler.running
		e.running = false
	}
	select {
	case e.scheduler.running <- struct{}{}: // in order of arrival
		e.running = true
		return true
	case <-e.ctx.Done():
		return false
	}
}

// leave returns the evaluation's places in the scheduler.
func (e *evaluation) leave() {
	if e.running {
		<-e.scheduler.running
	}
	if e.admitted {
		<-e.scheduler.admitted
	}
	e.running, e.admitted = false, false
}

func errBusy() error {
	err := fault.New(fault.ServerBusy, "%d long JSON validations are in progress already; try again shortly", maxLong)
	err.RetryAfter = 2 * time.Second
	return err
}
