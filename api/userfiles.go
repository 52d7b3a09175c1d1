package api

import (
	"context"

	"secbox/sandbox"
	"secbox/skills/library"
)

// userFiles are the plain files of a user as /v1/sandbox shows them: paths are relative to the workspace, as they came from strangers.
// Errors carry a fault code: UnknownFile, PathRefused, InvalidRequest, FileTooLarge, TreeTooLarge, and those of where the files are.
type userFiles interface {
	SandboxFiles(ctx context.Context, o library.Owner) ([]string, error)
	SandboxRead(ctx context.Context, o library.Owner, path string) ([]byte, error)
	SandboxReadLines(ctx context.Context, o library.Owner, path string, r library.LineRange) ([]string, error)
	SandboxEdit(ctx context.Context, o library.Owner, path string, content []byte, lines *library.LineRange) error
}

// filesOf are those of a user: with the library, which knows of skills, as long as they are on this side; else on the user's own machine.
func (s *Server) filesOf(ctx context.Context, o library.Owner) (userFiles, error) {
	choice, err := s.cfg.Sandboxes.Chosen(ctx, o.UserID)
	if err != nil {
		return nil, err
	}
	if !sandbox.TraitsOf(choice.Backend).UserMachine {
		return s.cfg.Library, nil
	}
	l, err := s.cfg.Sandboxes.Locate(ctx, sandbox.User{AgentID: o.AgentID, ID: o.UserID})
	switch {
	case err != nil:
		return nil, sandboxFault(err)
	case !sandbox.TraitsOf(l.Backend).UserMachine: // chosen just now
		return s.cfg.Library, nil
	}
	return remoteFiles{s.cfg.Sandboxes, l.User, &s.edits}, nil
}

// EditSandboxFile writes a file of a user's workspace, or some of its lines.
func (s *Server) EditSandboxFile(ctx context.Context, in EditSandboxFileRequestObject) (EditSandboxFileResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	lines, err := replaced(in.Params.Start, in.Params.End)
	if err != nil {
		return nil, err
	}
	content, err := s.plainText(ctx)
	if err != nil {
		return nil, err
	}
	files, err := s.filesOf(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := files.SandboxEdit(ctx, o, in.Params.Path, content, lines); err != nil {
		return nil, err
	}
	return EditSandboxFile200JSONResponse(said("Sandbox file updated successfully.")), nil
}

// ListSandboxFiles lists the files of a user's workspace.
func (s *Server) ListSandboxFiles(ctx context.Context, in ListSandboxFilesRequestObject) (ListSandboxFilesResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
	if err != nil {
		return nil, err
	}
	files, err := s.filesOf(ctx, o)
	if err != nil {
		return nil, err
	}
	list, err := files.SandboxFiles(ctx, o)
	if err != nil {
		return nil, err
	}
	return ListSandboxFiles200JSONResponse{Status: saysSuccess, Data: notNil(list)}, nil
}

// ReadSandboxFile shows a file of a user's workspace, or some of its lines.
func (s *Server) ReadSandboxFile(ctx context.Context, in ReadSandboxFileRequestObject) (ReadSandboxFileResponseObject, error) {
	o, err := owner(in.UserID, in.AgentID, callFrom(ctx).caller)
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
	answer, err := callFrom(ctx).shown(lines, func() ([]byte, error) {
		return files.SandboxRead(ctx, o, in.Params.Path)
	}, func(r library.LineRange) ([]string, error) {
		return files.SandboxReadLines(ctx, o, in.Params.Path, r)
	})
	return ReadSandboxFile200JSONResponse(answer), err
}
