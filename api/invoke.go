package api

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"secbox/fault"
	"secbox/runner"
	"secbox/skills/invoke"
	"secbox/tokens"
)

// InvokeSkill runs a skill. A client that hangs up does not stop it, as with RunExec, but ends the validation of its inputs.
func (s *Server) InvokeSkill(ctx context.Context, in InvokeSkillRequestObject) (InvokeSkillResponseObject, error) {
	req, err := invokeRequest(clip(in.ID), *in.Body, in.Params.IdempotencyKey, callFrom(ctx).caller)
	if err != nil {
		return nil, s.cfg.Runner.Refuse(ctx, runner.Request{
			ProjectID: req.ProjectID, ConversationID: req.ConversationID, UserID: req.UserID, SkillID: req.SkillID, TaskID: req.TaskID,
			Inputs: req.Files, RequestedBy: req.RequestedBy, Digest: req.Digest,
		}, err)
	}
	*in.Body = InvokeRequest{} // the contents are in req now; do not hold them twice while the exec runs
	res, err := s.cfg.Invoker.Invoke(ctx, req)
	if err != nil {
		return nil, err
	}
	out := InvokeSkill200JSONResponse{Body: InvokeResult{Exec: execResult(res.Exec)}}
	if res.Outputs != nil {
		out.Body.Outputs = &res.Outputs
	}
	if res.Exec.Replayed {
		out.Headers.IdempotencyReplayed = new("true")
	}
	return out, nil
}

// invokeRequest is execRequest for the invoke of a skill. The inputs go on as they were written; the skill's schema is the invoker's to check.
// The request is whole when the error is fault.Forbidden.
func invokeRequest(id string, body InvokeRequest, idempotencyKey *string, caller tokens.Token) (invoke.Request, error) {
	var bad fault.Fields
	refuse := bad.Add
	req := invoke.Request{
		SkillID: id, ProjectID: body.ProjectID, ConversationID: body.ConversationID, UserID: body.UserID, RequestedBy: caller.ID,
		Inputs: body.Inputs, Files: inputFiles("files", body.Files, refuse), Overrides: overrides(body.PolicyOverrides, refuse),
		IdempotencyKey: checkedKey(idempotencyKey, refuse),
	}
	body.TaskRef.into(&req.TaskID, &req.ConversationID, refuse)
	if err := bad.Err(); err != nil {
		return invoke.Request{}, err
	}
	inputs := []byte("{}")
	if len(req.Inputs) > 0 {
		var err error
		if inputs, err = jsontext.AppendFormat(nil, req.Inputs, jsontext.ReorderRawObjects(true)); err != nil {
			return invoke.Request{}, fault.Wrap(fault.Internal, err, "the inputs cannot be formatted") // they came through the decoder
		}
	}
	req.Digest = digest(runner.Request{
		ProjectID: req.ProjectID, ConversationID: req.ConversationID, UserID: req.UserID, SkillID: req.SkillID, TaskID: req.TaskID,
		Inputs: req.Files, Overrides: req.Overrides,
	}, inputs)
	return req, mayUse(caller, req.ProjectID, req.ConversationID, req.UserID)
}
