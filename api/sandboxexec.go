package api

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/sandbox"
	"secbox/skills/confine"
	"secbox/skills/library"
)

// ExecuteInSandbox runs a command where the user works. A client that hangs up does not stop it.
func (s *Server) ExecuteInSandbox(ctx context.Context, in ExecuteInSandboxRequestObject) (ExecuteInSandboxResponseObject, error) {
	caller := callFrom(ctx).caller
	o, err := owner(in.UserID, in.AgentID, caller)
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
	if err != nil {
		return nil, s.refuseCommand(ctx, o, "", in.Params.Command, in.Body, err)
	}
	snapshot, err := s.cfg.Runner.Resolve(ctx, runner.Request{ProjectID: o.ProjectID(), AgentID: o.AgentID, UserID: o.UserID})
	if err != nil {
		return nil, err
	}
	spec.Timeout = executePatience
	if ceiling, ok := snapshot.Fields[policy.FieldTimeoutMS].Ceiling.(int64); ok {
		spec.Timeout = min(spec.Timeout, time.Duration(ceiling)*time.Millisecond)
	}
	spec.MaxStdout, spec.MaxStderr = snapshot.Values.MaxStdoutBytes, snapshot.Values.MaxStderrBytes

	ctx = sandbox.WithRequest(context.WithoutCancel(ctx), sandbox.Request{RequestedBy: caller.ID})
	res, err := s.cfg.Sandboxes.Exec(ctx, spec)
	if err != nil {
		return nil, sandboxFault(err)
	}
	out := ExecuteInSandbox200JSONResponse{Body: V1OutputAnswer{Status: saysSuccess, Data: outputOfSandbox(res)}}
	out.Headers.XExecID = &res.ExecID
	return out, nil
}

// elsewhere is a directory that no machine has, so that no absolute path lies below it.
const elsewhere = "/a-machine-of-the-user"

// checkRelative judges a command where the workspace has another path than sandbox.Root: no absolute path can be good there, and the advice
// names none.
func checkRelative(spec sandbox.ExecSpec, traits sandbox.Traits) error {
	err := confine.Check(spec.Command, spec.Args, elsewhere)
	if !fault.Is(err, fault.PathRefused) {
		return err
	}
	where := "in no container"
	if traits.UserMachine {
		where = "on a machine of their own"
	}
	e := *fault.From(err)
	e.Fields = slices.Clone(e.Fields)
	for i := range e.Fields {
		e.Fields[i].Reason = "holds an absolute path, or one that goes up, and the user works " + where + ", where " + sandbox.Root + " lies elsewhere; write paths relative to the workspace, without .."
		e.Message = e.Fields[i].Field + ": " + e.Fields[i].Reason
	}
	return &e
}

// outputOfSandbox is a command that has ended, as these routes tell it: whatever ended it, it is a success that it was run.
func outputOfSandbox(res *sandbox.ExecResult) V1Output {
	out := V1Output{
		Stdout: text([]byte(res.Stdout)), Stderror: text([]byte(res.Stderr)), ExitCode: res.ExitCode,
		StdoutTruncated: res.StdoutBytes > int64(len(res.Stdout)), StderrTruncated: res.StderrBytes > int64(len(res.Stderr)),
	}
	if res.TimedOut || res.ExitCode < 0 {
		out.ExitCode = noExitCode
	}
	if res.Detail != "" && out.ExitCode != 0 {
		if out.Stderror != "" && !strings.HasSuffix(out.Stderror, "\n") {
			out.Stderror += "\n"
		}
		out.Stderror += text([]byte(res.Detail)) + "\n"
	}
	return out
}

// sandboxFault is an error of a sandbox as clients know it: what concerns a file becomes a fault that names the path as the client gave it.
func sandboxFault(err error) error {
	var known *fault.Error
	var path *fs.PathError
	if errors.As(err, &known) || !errors.As(err, &path) {
		return err
	}
	name := strings.TrimPrefix(strings.TrimPrefix(path.Path, sandbox.Root), "/")
	if name == "" {
		name = "."
	}
	bad := func(code fault.Code, reason string) error {
		e := fault.BadField("path", "%s", reason)
		e.Code = code
		return e
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.UnknownFile, "there is no file %q: the list of files has those that there are", clip(name))
	case errors.Is(err, fs.ErrPermission):
		return bad(fault.PathRefused, "leads out of the workspace, or to what may not be used there")
	case errors.Is(err, fs.ErrExist):
		return fault.New(fault.InputConflict, "something else than a directory is in the way of %q; remove it, or use another path", clip(name))
	case errors.Is(err, fs.ErrInvalid):
		return bad(fault.InvalidRequest, "names no plain file, or is no path where the user works")
	}
	return err
}
