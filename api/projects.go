package api

import (
	"context"
	"encoding/base64"

	"secbox/api/gate"
	"secbox/api/wire"
	"secbox/fault"
)

// ListProjects lists the projects on the disk that the token may use.
func (s *Server) ListProjects(ctx context.Context, in wire.ListProjectsRequestObject) (wire.ListProjectsResponseObject, error) {
	limit, err := pageLimit(in.Params.Limit)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(value(in.Params.Cursor))
	if err != nil {
		return nil, fault.New(fault.InvalidCursor, "the cursor is not the next_cursor of a list of projects")
	}
	caller := callFrom(ctx).caller
	list, more, err := s.cfg.Projects.List(ctx, string(after), limit, func(id string) bool { return caller.MayUse(id, "", "") })
	if err != nil {
		return nil, err
	}
	out := wire.ListProjects200JSONResponse{Items: make([]wire.Project, len(list))}
	for i, p := range list {
		out.Items[i] = wire.Project{ProjectID: p.ID, Bytes: p.Bytes, UsedAt: timestamp(p.UsedAt)}
	}
	if more {
		out.NextCursor = new(base64.RawURLEncoding.EncodeToString([]byte(list[len(list)-1].ID)))
	}
	return out, nil
}

// RemoveProject removes the files of a project.
func (s *Server) RemoveProject(ctx context.Context, in wire.RemoveProjectRequestObject) (wire.RemoveProjectResponseObject, error) {
	if err := gate.CheckProject(callFrom(ctx).caller, in.ProjectID, "", ""); err != nil {
		return nil, err
	}
	bytes, err := s.cfg.Projects.Remove(ctx, in.ProjectID)
	return wire.RemoveProject200JSONResponse{ProjectID: in.ProjectID, Bytes: bytes}, err
}
