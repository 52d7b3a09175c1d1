package api

import (
	"context"
	"encoding/json"
	"time"

	"secbox/api/gate"
	"secbox/api/problem"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/fault"
	"secbox/runner"
	"secbox/runner/session"
	"secbox/sandbox/places"
)

// StartSession starts a session. It goes on if the client hangs up.
func (s *Server) StartSession(ctx context.Context, in wire.StartSessionRequestObject) (wire.StartSessionResponseObject, error) {
	req, err := sessionRequest(*in.Body, in.Params.IdempotencyKey, callFrom(ctx).caller.ID)
	if err != nil {
		return nil, err
	}
	if err := gate.CheckProject(callFrom(ctx).caller, req.ProjectID, req.ConversationID, req.UserID); err != nil {
		return nil, s.cfg.Runner.Refuse(ctx, req.Request, err)
	}
	if req.CallbackURL, err = s.cfg.Webhooks.Resolve(ctx, req.RequestedBy, req.CallbackURL); err != nil {
		return nil, err
	}
	rec, replayed, err := s.cfg.Runner.StartSession(ctx, req)
	if err != nil {
		return nil, err
	}
	out := wire.StartSession201JSONResponse{Body: s.sessionAnswer(rec)}
	out.Headers.Location = new("/sandbox/sessions/" + rec.ExecID)
	if replayed {
		out.Headers.IdempotencyReplayed = new("true")
	}
	return out, nil
}

func sessionRequest(body wire.SessionRequest, idempotencyKey *string, caller string) (runner.SessionRequest, error) {
	var bad fault.Fields
	req := runner.SessionRequest{
		Request: runner.Request{
			ProjectID: body.ProjectID, ConversationID: body.ConversationID, UserID: body.UserID, Image: body.Image,
			Command: runner.Command{Kind: runner.KindArgv, Name: runner.SessionCommand, Env: body.Env}, CallbackURL: body.CallbackURL,
			RequestedBy: caller, Overrides: overrides(body.PolicyOverrides, bad.Add), IdempotencyKey: checkedKey(idempotencyKey, bad.Add),
		},
		SessionTerms: runner.SessionTerms{
			Name: body.Name, Idle: sessionTime("idle_ms", body.IdleMS, &bad), TTL: sessionTime("ttl_ms", body.TTLMS, &bad),
		},
	}
	body.TaskRef.Into(&req.TaskID, &req.ConversationID, bad.Add)
	if err := bad.Err(); err != nil {
		return runner.SessionRequest{}, err
	}
	req.Command.Args = req.Arguments()
	req.Digest = digest(req.Request, nil)
	return req, nil
}

// sessionTime returns a time of a request; 0 for none.
func sessionTime(field string, ms *int64, bad *fault.Fields) time.Duration {
	if ms == nil {
		return 0
	}
	if *ms <= 0 {
		bad.Add(field, "must be a positive number of milliseconds")
		return 0
	}
	return time.Duration(min(*ms, tooLongMS)) * time.Millisecond
}

const tooLongMS = 365 * 24 * 3600 * 1000 // for a session, by any setting

// ListSessions lists the sessions that the caller may see.
func (s *Server) ListSessions(ctx context.Context, in wire.ListSessionsRequestObject) (wire.ListSessionsResponseObject, error) {
	page := wire.ListExecsParams{Limit: in.Params.Limit, Cursor: in.Params.Cursor}
	query := callFrom(ctx).request.URL.Query()
	ended := query.Get("status") == "ended" // a session's word for all of an exec's
	if ended {
		query.Del("status")
	}
	filter, after, limit, err := listQuery(query, page, s.cfg.Now())
	if err != nil {
		return nil, err
	}
	filter.Sessions = true
	if ended {
		filter.Statuses = audit.Ended
	}
	recs, next, err := s.execs.List(ctx, callFrom(ctx).caller, filter, after, limit)
	if err != nil {
		return nil, err
	}
	s.warnOfUnreadable(recs...)
	size := int64(0)
	for _, rec := range recs {
		size += int64(rec.Size())
	}
	if err := callFrom(ctx).reserve(2 * size); err != nil {
		return nil, err
	}
	out := wire.ListSessions200JSONResponse{Items: make([]wire.Session, len(recs))}
	for i, rec := range recs {
		out.Items[i] = s.sessionAnswer(rec)
	}
	if next != nil {
		out.NextCursor = new(visible.EncodeCursor(*next, ""))
	}
	return out, nil
}

// GetSession sends a session.
func (s *Server) GetSession(ctx context.Context, in wire.GetSessionRequestObject) (wire.GetSessionResponseObject, error) {
	rec, away, err := s.sessionHere(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	return wire.GetSession200JSONResponse(s.sessionAnswer(rec)), nil
}

// EndSession ends a session, and does not wait for its end.
func (s *Server) EndSession(ctx context.Context, in wire.EndSessionRequestObject) (wire.EndSessionResponseObject, error) {
	rec, away, err := s.sessionHere(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	if rec.Status.Final() {
		return nil, session.Ended(rec.ExecID)
	}
	return wire.EndSession202JSONResponse{ExecID: rec.ExecID, Status: rec.Status}, s.cfg.Runner.Cancel(ctx, rec.ExecID)
}

// ExtendSession sets when a session ends.
func (s *Server) ExtendSession(ctx context.Context, in wire.ExtendSessionRequestObject) (wire.ExtendSessionResponseObject, error) {
	var bad fault.Fields
	idle, ttl := sessionTime("idle_ms", in.Body.IdleMS, &bad), sessionTime("ttl_ms", in.Body.TTLMS, &bad)
	if in.Body.IdleMS == nil && in.Body.TTLMS == nil {
		bad.Add("ttl_ms", "is required, unless idle_ms is given")
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	rec, away, err := s.sessionHere(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	if err := s.cfg.Runner.ExtendSession(rec.ExecID, idle, ttl, func() error {
		e, err := admin.New(ctx, admin.SessionExtended, rec.ExecID, in.Body)
		if err != nil {
			return err
		}
		return s.cfg.AdminEvents.Record(ctx, e)
	}); err != nil {
		return nil, err
	}
	return wire.ExtendSession200JSONResponse(s.sessionAnswer(rec)), nil
}

// EndContext ends an interpreter of a session.
func (s *Server) EndContext(ctx context.Context, in wire.EndContextRequestObject) (wire.EndContextResponseObject, error) {
	rec, away, err := s.sessionHere(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	if !s.cfg.Runner.EndContext(rec.ExecID, in.Name) {
		return nil, fault.New(fault.UnknownContext, "session %s has no context %s; the session lists those that run", rec.ExecID,
			problem.Clip(in.Name))
	}
	return wire.EndContext204Response{}, nil
}

// GetSessionUsage sends what a session used.
func (s *Server) GetSessionUsage(ctx context.Context, in wire.GetSessionUsageRequestObject) (wire.GetSessionUsageResponseObject, error) {
	rec, away, err := s.sessionHere(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	used, err := s.cfg.Runner.SessionUsage(ctx, rec)
	if err != nil {
		return nil, s.execs.UnlessRemoved(ctx, rec, err)
	}
	out := wire.GetSessionUsage200JSONResponse{Samples: make([]wire.UsageSample, len(used.Samples))}
	for i, one := range used.Samples {
		out.Samples[i] = wire.UsageSample{At: timestamp(one.At), CPUUS: one.CPUUS, MemoryBytes: one.MemoryBytes}
	}
	return out, nil
}

// ListSessionProcesses lists the processes of a session.
func (s *Server) ListSessionProcesses(ctx context.Context, in wire.ListSessionProcessesRequestObject) (
	wire.ListSessionProcessesResponseObject, error,
) {
	rec, away, err := s.sessionHere(ctx, in.SessionID, s.forwarded)
	if away || err != nil {
		return nil, err
	}
	all, more, err := places.Session{In: s.cfg.Runner.Inside(rec.ExecID)}.Processes(ctx)
	if err != nil {
		return nil, places.Fault(err)
	}
	out := wire.ListSessionProcesses200JSONResponse{Items: make([]wire.Process, len(all)), More: more}
	for i, p := range all {
		out.Items[i] = wire.Process{
			PID: p.PID, ParentPID: p.Parent, Command: p.Command, State: p.State, CPUUS: p.CPU.Microseconds(), MemoryBytes: p.MemoryBytes,
			StartedAt: timestamp(p.StartedAt),
		}
	}
	return out, nil
}

// session returns the record of a session. One that the caller may not see, and an exec that is
// none, look like an unknown one.
func (s *Server) session(ctx context.Context, id string) (audit.Record, error) {
	rec, err := s.record(ctx, id)
	if err == nil && !rec.IsSession() || fault.Is(err, fault.UnknownExec) {
		e := fault.New(fault.UnknownExec, "there is no session %s that you may see; GET /sandbox/sessions lists yours", problem.Clip(id))
		e.Fields = []fault.Field{{Field: "session_id", Reason: "is no session that you may see"}}
		err = e
	}
	return rec, err
}

// sessionHere returns the record of a session of this node that the token may see. If another node
// runs it, away is set, and the answer is the other node's, to what forward sends it.
func (s *Server) sessionHere(ctx context.Context, id string, forward func(call *call, nodeID string) raw,
) (rec audit.Record, away bool, err error) {
	rec, err = s.session(ctx, id)
	if err != nil {
		return rec, false, err
	}
	call := callFrom(ctx)
	if node := s.away(call, rec); node != "" {
		return rec, true, call.answer(forward(call, node))
	}
	return rec, false, nil
}

// enterSession completes a request for an exec in a session.
func enterSession(body *wire.ExecRequest, session audit.Record) error {
	bad := ofSession(&body.SessionID, &body.ProjectID, session)
	if body.SkillID != "" {
		bad.Add("skill_id", "cannot be combined with session_id; leave one of them out")
	}
	return bad.Err()
}

// ofSession sets the fields of a request that are its session's.
func ofSession(id, projectID *string, session audit.Record) (bad fault.Fields) {
	if *projectID != "" && *projectID != session.ProjectID {
		bad.Add("project_id", "is not the session's project; leave it out")
	}
	*id, *projectID = session.ExecID, session.ProjectID
	return bad
}

// begin runs an exec whose client does not wait for its end, and returns its record as soon as it
// runs.
func (s *Server) begin(ctx context.Context, start func(ctx context.Context, open func(opened)) (runner.Result, error),
) (runner.Result, error) {
	r := &run{opened: make(chan opened, 8), done: make(chan struct{})}
	go func() {
		r.start(context.WithoutCancel(ctx), start)
		if r.panic != nil {
			s.log.Error("an exec in the background panicked", "panic", r.panic)
		}
	}()
	select {
	case o := <-r.opened:
		rec, err := s.record(ctx, o.execID)
		return runner.Result{Record: rec, Replayed: o.replayed}, err
	case <-r.done:
		if r.panic != nil {
			return runner.Result{}, fault.New(fault.Internal, "the exec ended by an internal error")
		}
		return r.result, r.err
	}
}

// sessionAnswer converts the record of a session, with what this node knows of it.
func (s *Server) sessionAnswer(rec audit.Record) wire.Session {
	terms := runner.TermsOf(rec)
	out := wire.Session{
		Contexts:  []wire.SessionContext{},
		SessionID: rec.ExecID, Name: terms.Name, Status: "running", Detail: rec.Detail, ProjectID: rec.ProjectID,
		ConversationID: rec.ConversationID, AgentID: rec.AgentID, UserID: rec.UserID, TaskID: rec.TaskID, RequestedBy: rec.RequestedBy,
		NodeID: rec.NodeID, Image: rec.Image, ImageID: rec.ImageID, CreatedAt: timestamp(rec.CreatedAt), EndedAt: timestamp(rec.EndedAt),
		IdleMS: terms.Idle.Milliseconds(), TTLMS: terms.TTL.Milliseconds(),
	}
	if len(rec.PolicySnapshot) > 0 {
		out.PolicySnapshot = new(json.RawMessage(rec.PolicySnapshot))
	}
	if rec.Status.Final() {
		out.Status, out.EndReason = "ended", runner.EndReason(rec)
		return out
	}
	if state, err := s.cfg.Runner.Session(rec.ExecID); err == nil {
		out.IdleMS, out.TTLMS = state.Idle.Milliseconds(), state.TTL.Milliseconds()
		out.ExpiresAt, out.IdleExpiresAt = timestamp(state.ExpiresAt), timestamp(state.IdleExpiresAt)
		out.Execs, out.ExecsRunning = &state.Execs, &state.Running
		for _, c := range state.Contexts {
			out.Contexts = append(out.Contexts, wire.SessionContext{
				Name: c.Name, Kind: c.Kind, Execs: c.Cells, StartedAt: timestamp(c.StartedAt),
			})
		}
	}
	return out
}
