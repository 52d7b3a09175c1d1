package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"

	"secbox/api/content"
	"secbox/api/problem"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

// GetStdout sends the captured standard output.
func (s *Server) GetStdout(ctx context.Context, in wire.GetStdoutRequestObject) (wire.GetStdoutResponseObject, error) {
	return nil, s.output(ctx, in.ExecID, "stdout")
}

// GetStderr sends the captured standard error.
func (s *Server) GetStderr(ctx context.Context, in wire.GetStderrRequestObject) (wire.GetStderrResponseObject, error) {
	return nil, s.output(ctx, in.ExecID, "stderr")
}

func (s *Server) output(ctx context.Context, execID, stream string) error {
	if s.cfg.Peers != nil {
		rec, err := s.record(ctx, execID)
		if err != nil {
			return err
		}
		if node := s.away(callFrom(ctx), rec); node != "" {
			return callFrom(ctx).answer(s.forwarded(callFrom(ctx), node))
		}
	}
	return s.file(ctx, execID, stream, "", func(rec audit.Record) (content.File, error) {
		in, _, err := s.cfg.Runner.OpenOutput(ctx, rec, stream)
		return content.File{Content: in, Type: "text/plain; charset=utf-8"}, err
	})
}

// GetManifest sends manifest.json as it was published.
func (s *Server) GetManifest(ctx context.Context, in wire.GetManifestRequestObject) (wire.GetManifestResponseObject, error) {
	return nil, s.published(ctx, in.ExecID, runner.ManifestFile, jsonType)
}

// GetMeta sends meta.json as it was published.
func (s *Server) GetMeta(ctx context.Context, in wire.GetMetaRequestObject) (wire.GetMetaResponseObject, error) {
	return nil, s.published(ctx, in.ExecID, runner.MetaFile, jsonType)
}

// GetCast sends the recording of a terminal.
func (s *Server) GetCast(ctx context.Context, in wire.GetCastRequestObject) (wire.GetCastResponseObject, error) {
	return nil, s.published(ctx, in.ExecID, runner.CastFile, castType)
}

const castType = "application/x-asciicast"

func (s *Server) published(ctx context.Context, execID, name, kind string) error {
	return s.file(ctx, execID, name, "", func(rec audit.Record) (content.File, error) {
		in, file, err := s.cfg.Runner.OpenPublished(ctx, rec, name)
		return content.File{Content: in, Type: kind, SHA256: file.SHA256, Whole: true}, err // part of a JSON document is not JSON
	})
}

// DownloadArtifact sends one artifact. A job may have written an HTML page, so browsers must save
// it instead of showing it.
func (s *Server) DownloadArtifact(ctx context.Context, in wire.DownloadArtifactRequestObject) (wire.DownloadArtifactResponseObject, error) {
	return nil, s.file(ctx, in.ExecID, "artifact", in.Path, func(rec audit.Record) (content.File, error) {
		all, err := s.cfg.Runner.Artifacts(ctx, rec)
		if err != nil {
			return content.File{}, err
		}
		defer all.Close()
		in, artifact, err := all.Open(ctx, in.Path)
		return content.File{Content: in, Type: "application/octet-stream", SaveAs: path.Base(artifact.Path), SHA256: artifact.SHA256}, err
	})
}

// file answers with a file of an exec. what and path are for the event of the download.
func (s *Server) file(ctx context.Context, execID, what, path string, open func(audit.Record) (content.File, error)) error {
	rec, err := s.record(ctx, execID)
	if err != nil {
		return err
	}
	f, err := open(rec)
	if err != nil {
		return s.execs.UnlessRemoved(ctx, rec, err)
	}
	if err := s.recordDownload(ctx, rec, what, path); err != nil {
		f.Content.Close()
		return err
	}
	f.Modified = rec.EndedAt
	call := callFrom(ctx)
	return call.answer(func(w http.ResponseWriter) error { return f.Serve(w, call.request) })
}

// ListArtifacts lists the artifacts of an exec, or sends all of them as a ZIP.
func (s *Server) ListArtifacts(ctx context.Context, in wire.ListArtifactsRequestObject) (wire.ListArtifactsResponseObject, error) {
	format := value(in.Params.Format)
	if format != "" && format != "json" && format != "zip" {
		return nil, fault.BadField("format", "is %q; allowed are json and zip", problem.Clip(format))
	}
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	all, err := s.cfg.Runner.Artifacts(ctx, rec)
	if err != nil {
		return nil, s.execs.UnlessRemoved(ctx, rec, err)
	}
	call := callFrom(ctx)
	if format == "zip" {
		err := visible.CheckArtifacts(ctx, all)
		if err == nil {
			err = s.recordDownload(ctx, rec, "artifacts", "")
		}
		if err != nil {
			all.Close()
			return nil, s.execs.UnlessRemoved(ctx, rec, err)
		}
		return nil, call.answer(func(w http.ResponseWriter) error {
			defer all.Close()
			return content.ServeStream(w, call.request, "application/zip", rec.ExecID+".zip",
				func() error { return visible.WriteArtifacts(ctx, w, all, rec) })
		})
	}
	return nil, call.answer(func(w http.ResponseWriter) error {
		defer all.Close() // the list counts as memory until it is sent
		return writeArtifacts(w, rec.ExecID, all.List())
	})
}

// writeArtifacts writes an ArtifactList, each item for itself: encoded as a whole, it would need as
// much memory again.
func writeArtifacts(w http.ResponseWriter, execID string, list runner.ArtifactList) error {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, 16<<10)
	fmt.Fprintf(out, `{"exec_id":%q,"items":[`, execID) // an id has no character that is escaped
	items := json.NewEncoder(out)
	for i, item := range list.Items {
		if i > 0 {
			_ = out.WriteByte(',') // Flush returns the error
		}
		if err := items.Encode(item); err != nil {
			return err
		}
	}
	fmt.Fprint(out, `],"omitted":`)
	if err := items.Encode(notNil(list.NotKept)); err != nil {
		return err
	}
	fmt.Fprintf(out, `,"omitted_count":%d,"total_bytes":%d,"truncated":%t}`+"\n", list.NotKeptCount, list.TotalBytes, list.Truncated)
	return out.Flush()
}
