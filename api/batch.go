package api

import (
	"context"
	"fmt"
	"time"

	"secbox/access/tokens"
	"secbox/api/problem"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

const (
	maxBatch    = 1000 // execs
	maxBatchKey = 250  // bytes; with "/999" a key has at most maxIdempotencyKey
)

// RunExecs puts the execs of a batch into the queue.
func (s *Server) RunExecs(ctx context.Context, in wire.RunExecsRequestObject) (wire.RunExecsResponseObject, error) {
	var bad fault.Fields
	key := checkedKey(in.Params.IdempotencyKey, bad.Add)
	if len(key) > maxBatchKey {
		bad.Add("Idempotency-Key", "of a batch must have at most %d characters", maxBatchKey)
	}
	if n := len(in.Body.Execs); n < 1 || n > maxBatch {
		bad.Add("execs", "has %d execs; 1 to %d are possible", n, maxBatch)
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	caller := callFrom(ctx).caller
	outcomes := make([]runner.Outcome, len(in.Body.Execs))
	var reqs []runner.Request
	var at []int // the number of each of reqs in the batch
	for n := range in.Body.Execs {
		req, err := s.batched(ctx, in.Body.Execs[n], caller)
		if err != nil {
			outcomes[n].Err = err
			continue
		}
		if key != "" {
			req.IdempotencyKey = fmt.Sprintf("%s/%d", key, n)
		}
		reqs, at = append(reqs, req), append(at, n)
	}
	clear(in.Body.Execs) // reqs have the contents
	ran, err := s.cfg.Runner.RunAll(ctx, reqs)
	if err != nil {
		return nil, err
	}
	for i, o := range ran {
		outcomes[at[i]] = o
	}
	out := wire.RunExecs200JSONResponse{Items: make([]wire.ExecBatchItem, len(outcomes))}
	for n, o := range outcomes {
		if o.Err == nil {
			out.Accepted++
			out.Items[n] = wire.ExecBatchItem{ExecID: o.Record.ExecID, Status: o.Record.Status, Replayed: o.Replayed}
			continue
		}
		out.Refused++
		e := fault.From(o.Err)
		if e.Code == fault.Internal {
			s.cfg.Logger.Error("an exec of a batch failed", "exec", n, "error", o.Err)
		}
		out.Items[n].Error = new(problem.Of(e))
	}
	return out, nil
}

// batched converts an exec of a batch, and puts one that is refused on record as RunExec does.
func (s *Server) batched(ctx context.Context, body wire.ExecRequest, caller tokens.Token) (runner.Request, error) {
	var bad fault.Fields
	for name, given := range map[string]bool{
		"session_id": body.SessionID != "", "background": body.Background, "stream": body.Stream, "exec.tty": body.Exec.TTY != nil,
		"exec.stdin_stream": body.Exec.StdinStream,
	} {
		if given {
			bad.Add(name, "is not possible in a batch: use POST /sandbox/execs")
		}
	}
	if err := bad.Err(); err != nil {
		return runner.Request{}, err
	}
	req, err := execRequest(body, true, nil, caller)
	if err != nil {
		return req, s.cfg.Runner.Refuse(ctx, req, err)
	}
	req.CallbackURL, err = s.cfg.Webhooks.Resolve(ctx, req.RequestedBy, req.CallbackURL)
	return req, err
}

// WaitTask waits until all execs of a task have ended.
func (s *Server) WaitTask(ctx context.Context, in wire.WaitTaskRequestObject) (wire.WaitTaskResponseObject, error) {
	timeout, err := waitTimeout(in.Params.TimeoutMS)
	if err != nil {
		return nil, err
	}
	task, err := s.taskInTurn(ctx, in.Params.TaskID)
	for until := time.Now().Add(timeout); err == nil && task.Unended != "" && time.Until(until) > 0 && ctx.Err() == nil; {
		var newest audit.Record // most likely the last to end
		if newest, err = s.record(ctx, task.Unended); err == nil {
			_, err = s.waitEnd(ctx, newest, time.Until(until))
		}
		if err == nil {
			task, err = s.taskInTurn(ctx, in.Params.TaskID)
		}
	}
	if err != nil {
		return nil, err
	}
	out := wire.WaitTask200JSONResponse{TaskID: in.Params.TaskID, Ended: task.Unended == "", Statuses: task.Statuses}
	for status, n := range task.Statuses {
		if out.Total += n; !status.Final() {
			out.Unended += n
		}
	}
	return out, nil
}

// taskInTurn counts the execs of a task, which are many, as one of the operations that take turns.
func (s *Server) taskInTurn(ctx context.Context, taskID string) (audit.Task, error) {
	caller := callFrom(ctx).caller
	leave, err := s.turns.Enter(ctx, caller.ID)
	if err != nil {
		return audit.Task{}, err
	}
	defer leave()
	return s.execs.Task(ctx, caller, taskID)
}
