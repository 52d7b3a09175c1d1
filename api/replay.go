package api

import (
	"cmp"
	"context"

	"secbox/api/gate"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/replay"
)

// ReplayExec runs an exec again. If the client hangs up, an exec that was admitted goes on.
func (s *Server) ReplayExec(ctx context.Context, in wire.ReplayExecRequestObject) (wire.ReplayExecResponseObject, error) {
	first, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	caller := callFrom(ctx).caller
	q := replay.Request{
		First: first, Env: in.Body.Env, Stdin: []byte(in.Body.Stdin), RequestedBy: caller.ID,
		Reserve: callFrom(ctx).reserve,
	}
	var bad fault.Fields
	q.IdempotencyKey = checkedKey(in.Params.IdempotencyKey, bad.Add)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if err := gate.CheckReplay(ctx, caller, first, s.cfg.Runner); err != nil {
		return nil, err
	}
	res, err := s.cfg.Replayer.Replay(ctx, q)
	if err != nil {
		return nil, err
	}
	out := wire.ReplayExec200JSONResponse{Body: wire.ReplayResult{
		Exec: execResult(res.Exec), Comparison: wire.Comparison{
			First: first.ExecID, Second: res.Exec.Record.ExecID,
			Points: notNil(res.Comparison),
		},
	}}
	if res.Outputs != nil {
		out.Body.Outputs = &res.Outputs
	}
	if res.Exec.Replayed {
		out.Headers.IdempotencyReplayed = new("true")
	}
	return out, nil
}

// GetComparison compares a replay with its first exec.
func (s *Server) GetComparison(ctx context.Context, in wire.GetComparisonRequestObject) (wire.GetComparisonResponseObject, error) {
	second, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	if second.ReplayOf == "" {
		return nil,
			fault.New(fault.NotReplayable,
				"exec %s is no replay, so there is nothing to compare it with; POST /sandbox/execs/%s/replay makes one", second.ExecID,
				second.ExecID)
	}
	first, err := s.record(ctx, second.ReplayOf)
	if err != nil {
		return nil, err
	}
	var busy error
	points := s.cfg.Replayer.Compare(ctx, first, second, func(bytes int64) error {
		err := callFrom(ctx).reserve(bytes)
		busy = cmp.Or(busy, err)
		return err
	})
	if busy != nil {
		return nil, busy
	}
	return wire.GetComparison200JSONResponse{First: first.ExecID, Second: second.ExecID, Points: notNil(points)}, nil
}
