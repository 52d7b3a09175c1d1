package api

import (
	"context"
	"io"

	"secbox/api/remotefiles"
	"secbox/api/wire"
	"secbox/packages/library"
	"secbox/sandbox"
)

// userFiles are the plain files of a user's workspace. Paths are relative to the workspace and
// unchecked. Errors are UnknownFile, PathRefused, InvalidRequest, FileTooLarge, TreeTooLarge, and
// the errors of the backend.
type userFiles interface {
	SandboxFiles(ctx context.Context, o library.Owner) ([]string, error)
	SandboxRead(ctx context.Context, o library.Owner, path string) ([]byte, error)
	SandboxReadLines(ctx context.Context, o library.Owner, path string, r library.LineRange) ([]string, error)
	SandboxEdit(ctx context.Context, o library.Owner, path string, content []byte, lines *library.LineRange) (library.Digests, error)

	// SandboxOpen opens a file to read it piece by piece. The caller closes it.
	SandboxOpen(ctx context.Context, o library.Owner, path string) (library.Opened, error)

	// SandboxWrite replaces a file with the content of r, or leaves it as it is. size is r's, -1 if
	// unknown. The present content must have the digest was, or be library.Absent, unless was is
	// empty: FileChanged. Of the Digests it sets Before.
	SandboxWrite(ctx context.Context, o library.Owner, path string, r io.Reader, size int64, was string) (library.Digests, error)
}

// filesOf returns the files of the user that a path names: the library's, or those on the user's
// own machine.
func (s *Server) filesOf(ctx context.Context, o library.Owner) (userFiles, error) {
	choice, err := s.cfg.Sandboxes.Chosen(ctx, o.UserID)
	if err != nil {
		return nil, err
	}
	if !sandbox.TraitsOf(choice.Backend).UserMachine {
		return s.cfg.Library, nil
	}
	l, err := s.cfg.Sandboxes.Locate(ctx, sandbox.User{AgentID: o.AgentID, ID: o.UserID})
	if err != nil {
		return nil, remotefiles.Fault(err)
	}
	if !sandbox.TraitsOf(l.Backend).UserMachine { // the choice has just changed
		return s.cfg.Library, nil
	}
	return s.remoteFiles(ctx, l.User), nil
}

func (s *Server) remoteFiles(ctx context.Context, user sandbox.User) userFiles {
	return remotefiles.Files{Sandbox: s.cfg.Sandboxes, User: user, Edits: &s.edits, Reserve: callFrom(ctx).reserve}
}

// changeFile changes a file of a user's workspace on record: do runs only after the row is open,
// and the digests that it returns, also beside an error, are in the row when changeFile returns.
// known are those from the request. changeFile returns the id of the row.
func (s *Server) changeFile(ctx context.Context, o library.Owner, operation, path string, known sandbox.Digests,
	do func(context.Context, userFiles) (library.Digests, error),
) (execID string, err error) {
	call := callFrom(ctx)
	ctx = sandbox.WithRequest(ctx, sandbox.Request{RequestedBy: call.caller.ID})
	change := sandbox.Change{
		User: sandbox.User{AgentID: o.AgentID, ID: o.UserID}, Tool: operation, Path: sandbox.Root + "/" + path,
		Digests: known,
	}
	execID, err = s.cfg.Sandboxes.Change(ctx, change, func(ctx context.Context, at sandbox.Location) (sandbox.Digests, error) {
		if call.body != nil {
			defer call.body.EndWith(ctx)()
		}
		var files userFiles = s.cfg.Library
		if sandbox.TraitsOf(at.Backend).UserMachine {
			files = s.remoteFiles(ctx, at.User)
		}
		digests, err := do(ctx, files)
		return sandbox.Digests{Before: digests.Before, After: digests.After, Size: digests.Size}, err
	})
	return execID, remotefiles.Fault(err)
}

// ListSandboxFiles lists the files of a user's workspace.
func (s *Server) ListSandboxFiles(ctx context.Context, in wire.ListSandboxFilesRequestObject) (wire.ListSandboxFilesResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	files, err := s.filesOf(ctx, o)
	if err != nil {
		return nil, err
	}
	list, err := files.SandboxFiles(ctx, o)
	return wire.ListSandboxFiles200JSONResponse{Status: envelopeSuccess, Data: notNil(list)}, err
}

// ReadSandboxFile sends a file of a user's workspace, or some of its lines.
func (s *Server) ReadSandboxFile(ctx context.Context, in wire.ReadSandboxFileRequestObject) (wire.ReadSandboxFileResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	lines, err := lineRange(in.Params.Start, in.Params.End)
	if err != nil {
		return nil, err
	}
	files, err := s.filesOf(ctx, o)
	if err != nil {
		return nil, err
	}
	answer, err := callFrom(ctx).contentAnswer(lines, func() ([]byte, error) {
		return files.SandboxRead(ctx, o, in.Params.Path)
	}, func(r library.LineRange) ([]string, error) {
		return files.SandboxReadLines(ctx, o, in.Params.Path, r)
	})
	return wire.ReadSandboxFile200JSONResponse(answer), err
}

// EditSandboxFile writes a file of a user's workspace, or replaces some of its lines.
func (s *Server) EditSandboxFile(ctx context.Context, in wire.EditSandboxFileRequestObject) (wire.EditSandboxFileResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	lines, content, err := s.edit(ctx, in.Params.Start, in.Params.End)
	if err != nil {
		return nil, err
	}
	execID, err := s.changeFile(ctx, o, "editSandboxFile", in.Params.Path, sandbox.Digests{},
		func(ctx context.Context, files userFiles) (library.Digests, error) {
			return files.SandboxEdit(ctx, o, in.Params.Path, content, lines)
		})
	out := wire.EditSandboxFile200JSONResponse{Body: message("Sandbox file updated successfully.")}
	out.Headers.XExecID = &execID
	return out, err
}
