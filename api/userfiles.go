package api

import "context"

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
	if err := s.cfg.Library.SandboxEdit(ctx, o, in.Params.Path, content, lines); err != nil {
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
	files, err := s.cfg.Library.SandboxFiles(ctx, o)
	if err != nil {
		return nil, err
	}
	return ListSandboxFiles200JSONResponse{Status: saysSuccess, Data: notNil(files)}, nil
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
	content, err := s.cfg.Library.SandboxRead(ctx, o, in.Params.Path)
	if err != nil {
		return nil, err
	}
	answer, err := shown(content, lines)
	return ReadSandboxFile200JSONResponse(answer), err
}
