package schema

import (
	"runtime"
	"time"

	"secbox/fault"
)

// turns shares the processors among validations that take long. Such a validation works for a slice of its budget and then lets the one go on
// that has waited longest, so that it needs not wait for the end of longer ones.
type turns struct {
	long chan struct{} // holds one for each that takes long: they keep what they validate in memory
	now  chan struct{} // holds one for each of them that works
}

func newTurns(long, atOnce int) *turns {
	return &turns{make(chan struct{}, long), make(chan struct{}, atOnce)}
}

// maxLong is how many validations may take long at once.
const maxLong = 32

// processors are those of this process, whichever catalog a skill is in.
var processors = newTurns(maxLong, runtime.GOMAXPROCS(0))

// freeSlices is how much of its budget a validation spends before it takes turns: some 10 ms, which is more than most need.
const freeSlices = 16

// nextSlice waits for the evaluation's turn, once it takes long. It reports false when the evaluation must end.
func (e *evaluation) nextSlice() bool {
	switch {
	case e.crowded || e.ctx.Err() != nil:
		return false
	case e.turns == nil:
		return true
	case e.slices < freeSlices:
		e.slices++
		return true
	case !e.long:
		select {
		case e.turns.long <- struct{}{}:
			e.long = true
		default:
			e.crowded = true
			return false
		}
	case e.working:
		<-e.turns.now
		e.working = false
	}
	select {
	case e.turns.now <- struct{}{}: // in order of arrival
		e.working = true
		return true
	case <-e.ctx.Done():
		return false
	}
}

// leave gives up what the evaluation holds of the turns.
func (e *evaluation) leave() {
	if e.working {
		<-e.turns.now
	}
	if e.long {
		<-e.turns.long
	}
	e.working, e.long = false, false
}

func errCrowded() error {
	err := fault.New(fault.ServerBusy, "%d inputs and outputs of skills whose validation takes long are being validated already; try again shortly", maxLong)
	err.RetryAfter = 2 * time.Second
	return err
}
