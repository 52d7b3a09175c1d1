package api

import (
	"context"
	"encoding/json"
	"net/http"

	"secbox/api/sse"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/runner"
)

// run is an exec that a request began, and whose events are its answer. The answer passes through
// these states:
//
//	 waiting ------- the run fails -----------> refused    the answer is the error
//	    |
//	    | the exec is queued or runs,
//	    | or the run has its result
//	    v
//	following ------ client gone, record -----> cut off    no more events
//	    |   ^        removed, server closes
//	    |   |
//	    |   | the run has opened another exec
//	    v   |
//	 settling        the exec has ended; the run's result is still to come
//	    |
//	    | the run has its result
//	    v
//	  ended          the "end" event was sent
//
// execStream.begin is the waiting state, execStream.serve sends the events of the states below it,
// and run.other is the settling state. An exec that the run opens while the answer is waiting
// replaces the exec before it. If the run fails while the answer is following, and the exec has no
// end on record, the answer goes straight to ended, and the "end" event has the error.
//
// The run continues in every state. The request is in progress until the run has its result; if the
// run has panicked, the request panics, too.
type run struct {
	opened chan opened   // gets each exec that has a row: another one when an invoke is tried again, because the skill was replaced
	done   chan struct{} // closed when there is a result
	result runner.Result // after done
	err    error         // the same
	panic  any           // the same
}

// opened is an exec that has a row.
type opened struct {
	execID   string
	replayed bool // an earlier request with the same Idempotency-Key began it
}

// beginner runs an exec to its end, and calls open when the exec has a row.
type beginner func(ctx context.Context, open func(opened)) (runner.Result, error)

// hooks are the callbacks of a request for open.
func hooks(open func(opened)) (onOpen, onReplay func(execID string)) {
	return func(execID string) { open(opened{execID, false}) }, func(execID string) { open(opened{execID, true}) }
}

// streamRun answers a request with the events of the exec that begin runs; with begin's error while
// nothing has run. When the client has gone, the exec goes on, and the request is in progress until
// it ends.
func (s *Server) streamRun(call *call, begin beginner) raw {
	var r *run
	answer := s.stream(call, func(ctx context.Context, out *sse.Stream, _ http.ResponseWriter) error {
		r = &run{opened: make(chan opened, 8), done: make(chan struct{})} // an invoke is tried less often
		go r.start(ctx, begin)
		x := execStream{server: s, call: call, out: out, run: r}
		defer x.unwatch()
		if err := x.begin(ctx); err != nil || r.broken() {
			return err
		}
		return x.serve(ctx)
	})
	return func(w http.ResponseWriter) error {
		err := answer(w)
		if r != nil {
			if <-r.done; r.panic != nil {
				panic(r.panic)
			}
		}
		return err
	}
}

func (r *run) start(ctx context.Context, begin beginner) {
	defer close(r.done)
	defer func() { r.panic = recover() }()
	r.result, r.err = begin(ctx, func(o opened) { r.opened <- o })
}

// ended reports whether there is a result.
func (r *run) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// broken reports whether the run has ended by a panic.
func (r *run) broken() bool { return r.ended() && r.panic != nil }

// other waits until the run has a result, or has opened another exec than the one with an id.
func (r *run) other(ctx context.Context, execID string) (o opened, found bool) {
	for {
		done := r.ended() || ctx.Err() != nil // what was opened before is in the channel
		select {
		case o = <-r.opened:
			if o.execID != execID {
				return o, true
			}
			continue
		default:
		}
		if done {
			return opened{}, false
		}
		select {
		case o = <-r.opened:
			if o.execID != execID {
				return o, true
			}
		case <-r.done:
		case <-ctx.Done():
		}
	}
}

// begin waits until an exec of the run waits for its turn, runs or has ended. It returns the error
// of a run that was refused before that.
func (x *execStream) begin(ctx context.Context) error {
	for {
		var changed <-chan struct{}
		if x.watch != nil {
			now := x.watch.State()
			if s := now.Record.Status; s == audit.Queued || s == audit.Running && (now.Started || x.replayed) {
				break
			}
			changed = x.watch.Changed()
		}
		select {
		case o := <-x.run.opened:
			if err := x.follow(ctx, o); err != nil {
				return err
			}
			continue
		case <-changed:
			continue
		case <-x.run.done:
		}
		if x.run.err != nil || x.run.panic != nil {
			return x.run.err
		}
		x.replayed = x.run.result.Replayed
		if x.watch == nil {
			x.watch = x.server.cfg.Live.Watch(x.run.result.Record)
		}
		break
	}
	if x.replayed {
		x.out.Header().Set("Idempotency-Replayed", "true")
	}
	return nil
}

// follow watches an exec that the run has opened, from its beginning.
func (x *execStream) follow(ctx context.Context, o opened) error {
	x.unwatch()
	rec, err := x.server.execs.Get(ctx, x.call.caller, o.execID)
	if err != nil {
		return err
	}
	watch := x.server.cfg.Live.Watch(rec)
	x.watch, x.at, x.status, x.replayed = watch, [2]int64{}, "", o.replayed
	go func() {
		<-x.run.done
		watch.Wake()
	}()
	return nil
}

func (x *execStream) unwatch() {
	if x.watch != nil {
		x.watch.Close()
		x.watch = nil
	}
}

// unrecorded returns the error of a run whose exec has no end on record.
func (x *execStream) unrecorded(ctx context.Context, execID string) error {
	if x.run == nil || !x.run.ended() || x.run.err == nil {
		return nil
	}
	if now, err := x.server.execs.Get(ctx, x.call.caller, execID); err == nil && now.Status.Final() {
		return nil // Live has it soon
	}
	return x.run.err
}

// complete adds to the last event what only the request that began the exec gets.
func (r *run) complete(end *wire.ExecState) {
	if r == nil || !r.ended() || r.err != nil {
		return
	}
	end.Artifacts = new(notNil(r.result.Artifacts))
	if r.result.Results != nil {
		end.Results = new(json.RawMessage(r.result.Results))
	}
	end.Omitted, end.OmittedCount = new(notNil(r.result.NotKept)), new(r.result.NotKeptCount)
	if r.result.Output != nil {
		end.Outputs = new(json.RawMessage(r.result.Output))
	}
}
