package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

// Records on one page of a list.
const (
	defaultLimit = 50
	maxLimit     = 500

	listedRequest = 1 << 10 // bytes of the request of each
)

// RunExec runs one exec. If the client hangs up, only its wait for an earlier exec with the same
// Idempotency-Key ends.
func (s *Server) RunExec(ctx context.Context, in wire.RunExecRequestObject) (wire.RunExecResponseObject, error) {
	async := prefersAsync(in.Params.Prefer)
	if in.Body.SessionID != "" {
		session, away, err := s.sessionHere(ctx, in.Body.SessionID, func(call *call, nodeID string) raw {
			return s.forwardedJSON(call, nodeID, in.Body)
		})
		if away || err != nil {
			return nil, err
		}
		if err := enterSession(in.Body, session); err != nil {
			return nil, err
		}
	} else if in.Body.Background {
		return nil, fault.BadField("background", "needs a session_id: the exec ends with its session")
	}
	tty := in.Body.Exec.TTY != nil
	unawaited := tty || in.Body.SessionID != "" && (async || in.Body.Background)
	req, err := execRequest(*in.Body, async && !unawaited, in.Params.IdempotencyKey, callFrom(ctx).caller)
	if err != nil {
		return nil, s.cfg.Runner.Refuse(ctx, req, err)
	}
	if req.CallbackURL, err = s.cfg.Webhooks.Resolve(ctx, req.RequestedBy, req.CallbackURL); err != nil {
		return nil, err
	}
	stream := in.Body.Stream
	if stream && unawaited {
		return nil, fault.BadField("stream", "cannot be combined with background, exec.tty and Prefer: respond-async; follow the exec by "+
			"GET /sandbox/execs/{exec_id}/events")
	}
	*in.Body = wire.ExecRequest{}                          // req has the contents; do not keep them twice while the exec runs
	if body := callFrom(ctx).body; body != nil && !async { // what waits is sealed in the memory of the decoder
		body.Decoded()
	}
	start := func(ctx context.Context, open func(opened)) (runner.Result, error) {
		req.OnOpen, req.OnReplay = hooks(open)
		return s.cfg.Runner.Run(ctx, req)
	}
	if stream {
		return nil, callFrom(ctx).answer(s.streamRun(callFrom(ctx), start))
	}
	var res runner.Result
	if unawaited {
		res, err = s.begin(ctx, start)
	} else {
		res, err = s.cfg.Runner.Run(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	if async || unawaited {
		record, headers, err := s.accepted(ctx, res)
		return wire.RunExec202JSONResponse{Body: record, Headers: headers}, err
	}
	out := wire.RunExec200JSONResponse{Body: execResult(res)}
	if res.Replayed {
		out.Headers.IdempotencyReplayed = new("true")
	}
	return out, nil
}

// ListExecs lists the records that the caller may see.
func (s *Server) ListExecs(ctx context.Context, in wire.ListExecsRequestObject) (wire.ListExecsResponseObject, error) {
	filter, after, limit, err := listQuery(callFrom(ctx).request.URL.Query(), in.Params, s.cfg.Now())
	if err != nil {
		return nil, err
	}
	recs, next, err := s.execs.List(ctx, callFrom(ctx).caller, filter, after, limit)
	if err != nil {
		return nil, err
	}
	s.warnOfUnreadable(recs...)
	size, ids := int64(0), make([]string, len(recs))
	for i, rec := range recs {
		size += int64(rec.Size())
		ids[i] = rec.RequestedBy
	}
	if err := callFrom(ctx).reserve(2 * size); err != nil {
		return nil, err
	}
	names, err := s.tokenNames(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := wire.ListExecs200JSONResponse{Items: make([]wire.ExecRecord, len(recs))}
	execIDs := make([]string, len(recs))
	for i, rec := range recs {
		execIDs[i] = rec.ExecID
	}
	removed, err := s.execs.ArtifactsRemoved(ctx, execIDs...)
	if err != nil {
		return nil, err
	}
	for i, rec := range recs {
		rec.Request = audit.RequestText([]byte(rec.Request), listedRequest)
		out.Items[i] = execRecord(rec, names)
		out.Items[i].ArtifactsRemovedAt = timestamp(removed[rec.ExecID])
	}
	if next != nil {
		out.NextCursor = new(visible.EncodeCursor(*next, ""))
	}
	return out, nil
}

func listQuery(query url.Values, p wire.ListExecsParams, now time.Time) (f audit.Filter, after *audit.Cursor, limit int, err error) {
	var bad fault.Fields
	f = audit.ParseFilter(query.Get, now, &bad)
	limit, err = pageLimit(p.Limit)
	bad.Merge(err)
	if err := bad.Err(); err != nil {
		return audit.Filter{}, nil, 0, err
	}
	if s := value(p.Cursor); s != "" {
		after, err = visible.DecodeCursor(s, "")
	}
	return f, after, limit, err
}

// GetExec sends one record.
func (s *Server) GetExec(ctx context.Context, in wire.GetExecRequestObject) (wire.GetExecResponseObject, error) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	out, err := s.wholeRecord(ctx, rec)
	return wire.GetExec200JSONResponse(out), err
}

// wholeRecord converts a record for the API, with what other tables know about it.
func (s *Server) wholeRecord(ctx context.Context, rec audit.Record) (wire.ExecRecord, error) {
	removed, err := s.execs.ArtifactsRemoved(ctx, rec.ExecID)
	if err != nil {
		return wire.ExecRecord{}, err
	}
	s.warnOfUnreadable(rec)
	names, err := s.tokenNames(ctx, []string{rec.RequestedBy})
	out := execRecord(rec, names)
	out.ArtifactsRemovedAt = timestamp(removed[rec.ExecID])
	return out, err
}

// tokenNames returns the names of tokens by id. A worker gets its own name only.
func (s *Server) tokenNames(ctx context.Context, ids []string) (map[string]string, error) {
	return s.execs.Names(ctx, callFrom(ctx).caller, ids...)
}

// CancelExec cancels an exec and does not wait for its end.
func (s *Server) CancelExec(ctx context.Context, in wire.CancelExecRequestObject) (wire.CancelExecResponseObject, error) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	call := callFrom(ctx)
	node := s.away(call, rec)
	if node == "" {
		err := s.cfg.Runner.Cancel(ctx, rec.ExecID)
		if fault.Is(err, fault.ExecEnded) { // or another node has begun it a moment ago
			if now, again := s.record(ctx, in.ExecID); again == nil {
				node = s.away(call, now)
			}
		}
		if node == "" {
			return wire.CancelExec202JSONResponse{ExecID: rec.ExecID, Status: rec.Status}, err
		}
	}
	return nil, call.answer(s.forwarded(call, node))
}

// ResolvePolicy sends the policy that an exec would have.
func (s *Server) ResolvePolicy(ctx context.Context, in wire.ResolvePolicyRequestObject) (wire.ResolvePolicyResponseObject, error) {
	req, err := resolveRequest(*in.Body, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.cfg.Runner.Resolve(ctx, req)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(snapshot)
	if err != nil {
		return nil, err
	}
	// the generated type would encode the json.RawMessage as a list of numbers
	return nil, callFrom(ctx).answer(func(w http.ResponseWriter) error {
		w.Header().Set("Content-Type", jsonType)
		w.WriteHeader(http.StatusOK)
		_, err := w.Write(body)
		return err
	})
}

// record returns the record of an exec. An exec that the caller may not see looks like an unknown
// one.
func (s *Server) record(ctx context.Context, execID string) (audit.Record, error) {
	return s.execs.Get(ctx, callFrom(ctx).caller, execID)
}
