package api

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/catalog"
	"secbox/packages/confine"
	"secbox/packages/library"
	"secbox/policy"
	"secbox/runner"
)

const (
	// executeTimeout limits a restricted command unless the policy's ceiling is lower.
	executeTimeout = 5 * time.Minute

	workRoot   = "/workspace/work" // the workspace in a container
	skillsRoot = workRoot + "/skills"

	noExitCode = -1 // of a command that was killed
)

// ExecuteInSkill runs a command in a skill's folder. It goes on if the client hangs up.
func (s *Server) ExecuteInSkill(ctx context.Context, in wire.ExecuteInSkillRequestObject) (wire.ExecuteInSkillResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, s.refuseCommand(ctx, library.Owner{AgentID: in.AgentID, UserID: in.UserID}, in.SkillID, in.Params.Command, in.Body, err)
	}
	if err := archive.CheckID(in.SkillID); err != nil && in.SkillID != archive.ReservedID { // it becomes part of a path
		return nil, err
	}
	root, moreRoots := skillsRoot+"/"+in.SkillID, []string(nil)
	if in.SkillID == archive.ReservedID { // the installation's own skill works on the workspace
		root, moreRoots = library.GlobalRoot, []string{workRoot}
	}
	req := restricted(o, root, in.Params.Command, in.Body)
	req.SkillID = in.SkillID
	err = confine.Check(req.Command.Name, req.Command.Args, req.Command.Cwd, moreRoots...)
	if err == nil {
		err = changesTool(req.Command.Name, req.Command.Args, req.Command.Cwd)
	}
	if err != nil {
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
	out := wire.ExecuteInSkill200JSONResponse{Body: wire.V1OutputAnswer{Status: envelopeSuccess, Data: output}}
	out.Headers.XExecID = &execID
	return out, nil
}

// changesTool refuses a command that would change the installation's own skill, wherever a path
// leads to it. What a script does is undone before the next command.
func changesTool(command string, args []string, cwd string) error {
	first := 0
	switch command {
	case "rm", "mv", "mkdir":
	case "cp":
		first = max(0, len(args)-1)
	default:
		return nil
	}
	for i, arg := range args[first:] {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if !path.IsAbs(arg) {
			arg = cwd + "/" + arg
		}
		at := path.Clean(arg)
		for _, skills := range []string{skillsRoot, catalog.SkillsDir} {
			name, _, _ := strings.Cut(strings.TrimPrefix(at, skills+"/"), "/")
			if at == library.GlobalRoot || strings.HasPrefix(at, library.GlobalRoot+"/") ||
				strings.HasPrefix(at, skills+"/") && archive.IsReserved(name) {
				e := *fault.From(archive.CheckID(archive.ReservedID))
				e.Fields = []fault.Field{{Field: fmt.Sprintf("args[%d]", first+i), Reason: e.Message}}
				return &e
			}
		}
	}
	return nil
}

// refuseCommand records a refused command; see Runner.Refuse.
func (s *Server) refuseCommand(ctx context.Context, o library.Owner, skillID, command string, args *[]string, why error) error {
	req := restricted(o, "", command, args)
	req.SkillID, req.RequestedBy = skillID, callFrom(ctx).caller.ID
	req.Digest = digest(req, nil)
	return s.cfg.Runner.Refuse(ctx, req, why)
}

// restricted returns the request for a command in a directory of a workspace.
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

// execute runs a command that has passed confine.Check.
func (s *Server) execute(ctx context.Context, req runner.Request) (wire.V1Output, string, error) {
	snapshot, err := s.cfg.Runner.Resolve(ctx, req)
	if err != nil {
		return wire.V1Output{}, "", err
	}
	req.Overrides.TimeoutMS = new(commandTimeout(snapshot).Milliseconds())
	req.RequestedBy = callFrom(ctx).caller.ID
	req.Digest = digest(req, nil)
	res, err := s.cfg.Runner.Run(context.WithoutCancel(ctx), req)
	if err != nil {
		return wire.V1Output{}, "", err
	}
	output, err := s.outputOf(ctx, res)
	return output, res.Record.ExecID, err
}

// commandTimeout returns executeTimeout, or the policy's ceiling if that is lower.
func commandTimeout(p policy.Snapshot) time.Duration {
	if ceiling, ok := p.Fields[policy.FieldTimeoutMS].Ceiling.(int64); ok {
		return min(executeTimeout, time.Duration(ceiling)*time.Millisecond)
	}
	return executeTimeout
}

// outputOf converts the result of an exec. These routes report success for every command that ran,
// however it ended, unless the engine failed.
func (s *Server) outputOf(ctx context.Context, res runner.Result) (wire.V1Output, error) {
	rec := res.Record
	out := wire.V1Output{ExitCode: noExitCode, StdoutTruncated: rec.StdoutTruncated, StderrTruncated: rec.StderrTruncated}
	switch rec.Status {
	case audit.Succeeded, audit.Failed, audit.OOMKilled:
		if rec.ExitCode != nil {
			out.ExitCode = *rec.ExitCode
		}
	case audit.Timeout, audit.Canceled:
	default:
		e := fault.New(fault.EngineUnavailable, "exec %s was started, but its outcome is unknown: %s", rec.ExecID, rec.Detail)
		e.ExecID = rec.ExecID
		return wire.V1Output{}, e
	}
	out.Stdout = s.captured(ctx, rec, "stdout", res.Stdout, rec.StdoutBytes)
	out.Stderror = s.captured(ctx, rec, "stderr", res.Stderr, rec.StderrBytes)
	if rec.Status != audit.Succeeded && rec.ErrorReason != audit.NonzeroExit {
		out.Stderror = withDetail(out.Stderror, rec.Detail)
	}
	return out, nil
}

// withDetail appends a line with the reason for a command's end to its standard error.
func withDetail(stderr, detail string) string {
	if detail == "" {
		return stderr
	}
	if stderr != "" && !strings.HasSuffix(stderr, "\n") {
		stderr += "\n"
	}
	return stderr + detail + "\n"
}

// captured returns all that was kept of a stream. The result has only the beginning, and clients of
// these routes cannot fetch the rest.
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
	s.log.Warn("cannot read the rest of an exec's output", "exec", rec.ExecID, "stream", stream, "error", err)
	return text(inline)
}
