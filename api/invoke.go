package api

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"secbox/access/tokens"
	"secbox/api/gate"
	"secbox/api/problem"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/runner"
	"secbox/skills/invoke"
)

// InvokeSkill runs a skill. A client that hangs up ends the validation of the inputs, but not an
// exec that has begun.
func (s *Server) InvokeSkill(ctx context.Context, in wire.InvokeSkillRequestObject) (wire.InvokeSkillResponseObject, error) {
	async := prefersAsync(in.Params.Prefer)
	if in.Body.SessionID != "" {
		session, away, err := s.sessionHere(ctx, in.Body.SessionID, func(call *call, nodeID string) raw {
			return s.forwardedJSON(call, nodeID, in.Body)
		})
		if away || err != nil {
			return nil, err
		}
		bad := ofSession(&in.Body.SessionID, &in.Body.ProjectID, session)
		if async && in.Body.Stream {
			bad.Add("stream", "cannot be combined with Prefer: respond-async; follow the exec by GET /sandbox/execs/{exec_id}/events")
		}
		if err := bad.Err(); err != nil {
			return nil, err
		}
	}
	unawaited := async && in.Body.SessionID != ""
	req, err := invokeRequest(problem.Clip(in.ID), *in.Body, async && !unawaited, in.Params.IdempotencyKey, callFrom(ctx).caller)
	if err != nil {
		return nil, s.cfg.Runner.Refuse(ctx, runner.Request{
			ProjectID: req.ProjectID, ConversationID: req.ConversationID, UserID: req.UserID, SkillID: req.SkillID, TaskID: req.TaskID,
			Inputs: req.Files, RequestedBy: req.RequestedBy, Digest: req.Digest, SessionID: req.SessionID,
		}, err)
	}
	if req.CallbackURL, err = s.cfg.Webhooks.Resolve(ctx, req.RequestedBy, req.CallbackURL); err != nil {
		return nil, err
	}
	stream := in.Body.Stream
	*in.Body = wire.InvokeRequest{} // req has the contents; do not keep them twice while the exec runs
	start := func(ctx context.Context, open func(opened)) (runner.Result, error) {
		req.OnOpen, req.OnReplay = hooks(open)
		res, err := s.cfg.Invoker.Invoke(ctx, req)
		return res.Exec, err
	}
	if stream {
		return nil, callFrom(ctx).answer(s.streamRun(callFrom(ctx), start))
	}
	var res invoke.Result
	if unawaited {
		res.Exec, err = s.begin(ctx, start)
	} else {
		res, err = s.cfg.Invoker.Invoke(ctx, req)
	}
	if err != nil {
		return nil, err
	}
	if async {
		record, headers, err := s.accepted(ctx, res.Exec)
		return wire.InvokeSkill202JSONResponse{Body: record, Headers: wire.InvokeSkill202ResponseHeaders(headers)}, err
	}
	out := wire.InvokeSkill200JSONResponse{Body: wire.InvokeResult{Exec: execResult(res.Exec)}}
	if res.Outputs != nil {
		out.Body.Outputs = &res.Outputs
	}
	if res.Exec.Replayed {
		out.Headers.IdempotencyReplayed = new("true")
	}
	return out, nil
}

// invokeRequest is execRequest for a skill. It passes the inputs on as written; the invoker checks
// them against the skill's schema. Beside a fault.Forbidden the request is complete.
func invokeRequest(id string, body wire.InvokeRequest, async bool, idempotencyKey *string, caller tokens.Token) (invoke.Request, error) {
	var bad fault.Fields
	refuse := bad.Add
	req := invoke.Request{
		SkillID: id, ProjectID: body.ProjectID, ConversationID: body.ConversationID, UserID: body.UserID, RequestedBy: caller.ID,
		SessionID: body.SessionID,
		Inputs:    body.Inputs, Files: inputFiles("files", body.Files, refuse), Overrides: overrides(body.PolicyOverrides, refuse),
		IdempotencyKey: checkedKey(idempotencyKey, refuse), CallbackURL: body.CallbackURL,
	}
	checkStream(body.Stream, async, refuse)
	req.Queue = queueing(async, body.Priority, body.QueueTimeoutMS, refuse)
	body.TaskRef.Into(&req.TaskID, &req.ConversationID, refuse)
	if err := bad.Err(); err != nil {
		return invoke.Request{}, err
	}
	inputs := []byte("{}")
	if len(req.Inputs) > 0 {
		var err error
		if inputs, err = jsontext.AppendFormat(nil, req.Inputs, jsontext.ReorderRawObjects(true)); err != nil {
			return invoke.Request{}, fault.Wrap(fault.Internal, err, "cannot format the inputs") // the decoder accepted them
		}
	}
	req.Digest = digest(runner.Request{
		ProjectID: req.ProjectID, ConversationID: req.ConversationID, UserID: req.UserID, SkillID: req.SkillID, TaskID: req.TaskID,
		Inputs: req.Files, Overrides: req.Overrides, Queue: req.Queue, CallbackURL: req.CallbackURL, SessionID: req.SessionID,
	}, inputs)
	return req, gate.CheckProject(caller, req.ProjectID, req.ConversationID, req.UserID)
}
