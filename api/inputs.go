package api

import (
	"context"
	"path"

	"secbox/api/content"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/runner"
)

// ListInputs lists the inputs of an exec, and says which contents are kept.
func (s *Server) ListInputs(ctx context.Context, in wire.ListInputsRequestObject) (wire.ListInputsResponseObject, error) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	list, err := s.cfg.Replayer.Inputs(ctx, rec, 0, runner.MaxInputs, callFrom(ctx).reserve)
	if err != nil {
		return nil, s.execs.UnlessRemoved(ctx, rec, err)
	}
	out := wire.ListInputs200JSONResponse{
		ExecID: rec.ExecID, Items: make([]wire.ExecInput, len(list.Items)), TotalBytes: list.TotalBytes,
		Truncated: list.Truncated,
	}
	for i, item := range list.Items {
		out.Items[i] = wire.ExecInput{Path: item.Path, Size: item.Size, SHA256: item.SHA256, Mode: item.Mode, Kept: item.Kept}
	}
	return out, nil
}

// DownloadInput sends the kept content of one input. A client may have sent an HTML page, so
// browsers must save it instead of showing it.
func (s *Server) DownloadInput(ctx context.Context, in wire.DownloadInputRequestObject) (wire.DownloadInputResponseObject, error) {
	return nil, s.file(ctx, in.ExecID, "input", in.Path, func(rec audit.Record) (content.File, error) {
		f, item, err := s.cfg.Replayer.OpenInput(ctx, rec, in.Path, callFrom(ctx).reserve)
		return content.File{Content: f, Type: "application/octet-stream", SaveAs: path.Base(item.Path), SHA256: item.SHA256}, err
	})
}
