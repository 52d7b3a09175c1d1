package api

import (
	"context"
	"slices"

	"secbox/api/remotefiles"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/packages/confine"
	"secbox/packages/library"
	"secbox/runner"
	"secbox/sandbox"
)

// ExecuteInSandbox runs a command in the user's sandbox. It goes on if the client hangs up.
func (s *Server) ExecuteInSandbox(ctx context.Context, in wire.ExecuteInSandboxRequestObject) (wire.ExecuteInSandboxResponseObject, error) {
	caller := callFrom(ctx).caller
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, s.refuseCommand(ctx, library.Owner{AgentID: in.AgentID, UserID: in.UserID}, "", in.Params.Command, in.Body, err)
	}
	spec := sandbox.ExecSpec{Command: in.Params.Command, Dir: sandbox.Root, User: sandbox.User{AgentID: o.AgentID, ID: o.UserID}}
	if in.Body != nil {
		spec.Args = *in.Body
	}
	choice, err := s.cfg.Sandboxes.Chosen(ctx, o.UserID)
	if err != nil {
		return nil, err
	}
	if traits := sandbox.TraitsOf(choice.Backend); traits.Unconfined {
		err = checkRelative(spec, traits)
	} else {
		err = confine.Check(spec.Command, spec.Args, sandbox.Root, library.GlobalRoot)
	}
	if err == nil && !sandbox.TraitsOf(choice.Backend).UserMachine {
		err = changesTool(spec.Command, spec.Args, sandbox.Root)
	}
	if err != nil {
		return nil, s.refuseCommand(ctx, o, "", in.Params.Command, in.Body, err)
	}
	snapshot, err := s.cfg.Runner.Resolve(ctx, runner.Request{ProjectID: o.ProjectID(), AgentID: o.AgentID, UserID: o.UserID})
	if err != nil {
		return nil, err
	}
	spec.Timeout = commandTimeout(snapshot)
	spec.MaxStdout, spec.MaxStderr = snapshot.Values.MaxStdoutBytes, snapshot.Values.MaxStderrBytes

	ctx = sandbox.WithRequest(context.WithoutCancel(ctx), sandbox.Request{RequestedBy: caller.ID})
	res, err := s.cfg.Sandboxes.Exec(ctx, spec)
	if err != nil {
		return nil, remotefiles.Fault(err)
	}
	out := wire.ExecuteInSandbox200JSONResponse{Body: wire.V1OutputAnswer{Status: envelopeSuccess, Data: outputOfSandbox(res)}}
	out.Headers.XExecID = &res.ExecID
	return out, nil
}

// noDirectory does not exist on any machine, so that no absolute path is below it.
const noDirectory = "/a-machine-of-the-user"

// checkRelative checks a command for a sandbox whose workspace is not at sandbox.Root: absolute
// paths are refused, and the message suggests relative ones.
func checkRelative(spec sandbox.ExecSpec, traits sandbox.Traits) error {
	err := confine.Check(spec.Command, spec.Args, noDirectory)
	if !fault.Is(err, fault.PathRefused) {
		return err
	}
	where := "is not in a container"
	if traits.UserMachine {
		where = "is on a machine of their own"
	}
	e := *fault.From(err)
	e.Fields = slices.Clone(e.Fields)
	for i := range e.Fields {
		e.Fields[i].Reason = "contains an absolute path or .., but the user's sandbox " + where + " and has no " + sandbox.Root +
			"; use paths relative to the workspace, without .., and put text that only looks like a path into a file"
		e.Message = e.Fields[i].Field + ": " + e.Fields[i].Reason
	}
	return &e
}

// outputOfSandbox converts the result of a command.
func outputOfSandbox(res *sandbox.ExecResult) wire.V1Output {
	out := wire.V1Output{
		Stdout: text([]byte(res.Stdout)), Stderror: text([]byte(res.Stderr)), ExitCode: res.ExitCode,
		StdoutTruncated: res.StdoutBytes > int64(len(res.Stdout)), StderrTruncated: res.StderrBytes > int64(len(res.Stderr)),
	}
	if res.TimedOut || res.ExitCode < 0 {
		out.ExitCode = noExitCode
	}
	if out.ExitCode != 0 {
		out.Stderror = withDetail(out.Stderror, text([]byte(res.Detail)))
	}
	return out
}
