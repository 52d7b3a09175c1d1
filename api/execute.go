package api

import (
	"context"
	"io"
	"time"

	"secbox/audit"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/skills/archive"
	"secbox/skills/confine"
	"secbox/skills/library"
)

const (
	// executePatience is how long a restricted command may take, where no ceiling is lower.
	executePatience = 5 * time.Minute

	workRoot   = "/workspace/work" // where a container sees a workspace
	skillsRoot = workRoot + "/skills"

	noExitCode = -1 // of a command that did not end by itself
)

// ExecuteInSkill runs a command in a skill's folder.
func (s *Server) ExecuteInSkill(ctx context.Context, in ExecuteInSkillRequestObject) (ExecuteInSkillResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, s.refuseCommand(ctx, library.Owner{AgentID: in.AgentID, UserID: in.UserID}, in.SkillID, in.Params.Command, in.Body, err)
	}
	if err := archive.CheckID(in.SkillID); err != nil && in.SkillID != archive.ReservedID { // it becomes a part of paths below
		return nil, err
	}
	root, also := skillsRoot+"/"+in.SkillID, []string(nil)
	if in.SkillID == archive.ReservedID { // the installation's own, whose work is done in the workspace
		root, also = library.GlobalRoot, []string{workRoot}
	}
	req := restricted(o, root, in.Params.Command, in.Body)
	req.SkillID = in.SkillID
	if err := confine.Check(req.Command.Name, req.Command.Args, req.Command.Cwd, also...); err != nil {
		return nil, s.refuseCommand(ctx, o, in.SkillID, in.Params.Command, in.Body, err)
	}
	if err := s.cfg.Library.Materialise(ctx, o, in.SkillID); err != nil {
		return nil, err
	}
	if in.SkillID == archive.ReservedID {
		if req.SkillDigest, err = s.cfg.Library.GlobalDigest(); err != nil {
			return nil, err
		}
	}
	output, execID, err := s.execute(ctx, req)
	if err != nil {
		return nil, err
	}
	out := ExecuteInSkill200JSONResponse{Body: V1OutputAnswer{Status: saysSuccess, Data: output}}
	out.Headers.XExecID = &execID
	return out, nil
}

// refuseCommand puts a restricted command on record that is refused; see Runner.Refuse.
func (s *Server) refuseCommand(ctx context.Context, o library.Owner, skillID, command string, args *[]string, why error) error {
	req := restricted(o, "", command, args)
	req.SkillID, req.RequestedBy = skillID, callFrom(ctx).caller.ID
	req.Digest = digest(req, nil)
	return s.cfg.Runner.Refuse(ctx, req, why)
}

// restricted is the exec of a command in a directory of a workspace.
func restricted(o library.Owner, root, command string, args *[]string) runner.Request {
	req := runner.Request{
		ProjectID: o.ProjectID(), AgentID: o.AgentID, UserID: o.UserID,
		Command: runner.Command{Kind: runner.KindArgv, Name: command, Cwd: root},
	}
	if args != nil {
		req.Command.Args = *args
	}
	return req
}

// execute runs a command that was checked. A client that hangs up does not stop it.
func (s *Server) execute(ctx context.Context, req runner.Request) (V1Output, string, error) {
	timeout, err := s.executeTimeout(ctx, req)
	if err != nil {
		return V1Output{}, "", err
	}
	req.Overrides.TimeoutMS = &timeout
	req.RequestedBy = callFrom(ctx).caller.ID
	req.Digest = digest(req, nil)
	res, err := s.cfg.Runner.Run(context.WithoutCancel(ctx), req)
	if err != nil {
		return V1Output{}, "", err
	}
	output, err := s.outputOf(ctx, res)
	return output, res.Record.ExecID, err
}

// executeTimeout is five minutes in milliseconds, or the ceiling if that is lower.
func (s *Server) executeTimeout(ctx context.Context, req runner.Request) (int64, error) {
	snapshot, err := s.cfg.Runner.Resolve(ctx, req)
	if err != nil {
		return 0, err
	}
	timeout := executePatience.Milliseconds()
	if ceiling, ok := snapshot.Fields[policy.FieldTimeoutMS].Ceiling.(int64); ok {
		timeout = min(timeout, ceiling)
	}
	return timeout, nil
}

// outputOf is an exec that ended, as these routes tell it: whatever ended it, it is a success that it was run, unless the engine failed.
func (s *Server) outputOf(ctx context.Context, res runner.Result) (V1Output, error) {
	rec := res.Record
	out := V1Output{ExitCode: noExitCode, StdoutTruncated: rec.StdoutTruncated, StderrTruncated: rec.StderrTruncated}
	switch rec.Status {
	case audit.Succeeded, audit.Failed, audit.OOMKilled:
		if rec.ExitCode != nil {
			out.ExitCode = *rec.ExitCode
		}
	case audit.Timeout, audit.Canceled:
	default:
		e := fault.New(fault.EngineUnavailable, "exec %s was started, but how it ended is not known: %s", rec.ExecID, rec.Detail)
		e.ExecID = rec.ExecID
		return V1Output{}, e
	}
	out.Stdout = s.captured(ctx, rec, "stdout", res.Stdout, rec.StdoutBytes)
	out.Stderror = s.captured(ctx, rec, "stderr", res.Stderr, rec.StderrBytes)
	if rec.Status != audit.Succeeded && rec.ErrorReason != audit.NonzeroExit && rec.Detail != "" {
		if out.Stderror != "" && out.Stderror[len(out.Stderror)-1] != '\n' {
			out.Stderror += "\n"
		}
		out.Stderror += rec.Detail + "\n"
	}
	return out, nil
}

// captured is all that was kept of a stream. A result carries its beginning only, and these clients have no other way to the rest.
func (s *Server) captured(ctx context.Context, rec audit.Record, stream string, inline []byte, seen int64) string {
	if seen <= runner.InlineBytes {
		return text(inline)
	}
	content, _, err := s.cfg.Runner.OpenOutput(ctx, rec, stream)
	if err == nil {
		defer content.Close()
		var all []byte
		if all, err = io.ReadAll(content); err == nil { // bounded by the policy
			return text(all)
		}
	}
	s.log.Warn("the rest of an exec's output cannot be read", "exec", rec.ExecID, "stream", stream, "error", err)
	return text(inline)
}
