package api

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"secbox/fault"
	"secbox/runner"
)

// GetStdout sends the captured standard output.
func (s *Server) GetStdout(ctx context.Context, in GetStdoutRequestObject) (GetStdoutResponseObject, error) {
	return s.output(ctx, in.ExecID, "stdout")
}

// GetStderr sends the captured standard error.
func (s *Server) GetStderr(ctx context.Context, in GetStderrRequestObject) (GetStderrResponseObject, error) {
	return s.output(ctx, in.ExecID, "stderr")
}

func (s *Server) output(ctx context.Context, execID, stream string) (download, error) {
	rec, err := s.record(ctx, execID)
	if err != nil {
		return download{}, err
	}
	content, _, err := s.cfg.Runner.OpenOutput(ctx, rec, stream)
	if err != nil {
		return download{}, err
	}
	// A browser shows it as text and nothing else: nosniff, and a sandbox without scripts.
	return download{request: callFrom(ctx).request, content: content, contentType: "text/plain; charset=utf-8", modified: rec.EndedAt}, nil
}

// DownloadArtifact sends one artifact. It may be a page that a job wrote, so no browser is ever to show it.
func (s *Server) DownloadArtifact(ctx context.Context, in DownloadArtifactRequestObject) (DownloadArtifactResponseObject, error) {
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	left, err := s.cfg.Runner.Artifacts(ctx, rec)
	if err != nil {
		return nil, err
	}
	defer left.Close()
	content, artifact, err := left.Open(ctx, in.Path)
	if err != nil {
		return nil, err
	}
	return download{
		request: callFrom(ctx).request, content: content, contentType: "application/octet-stream", modified: rec.EndedAt,
		attachment: path.Base(artifact.Path), sha256: artifact.SHA256,
	}, nil
}

// GetManifest sends manifest.json as it was published.
func (s *Server) GetManifest(ctx context.Context, in GetManifestRequestObject) (GetManifestResponseObject, error) {
	return s.published(ctx, in.ExecID, runner.ManifestFile)
}

// GetMeta sends meta.json as it was published.
func (s *Server) GetMeta(ctx context.Context, in GetMetaRequestObject) (GetMetaResponseObject, error) {
	return s.published(ctx, in.ExecID, runner.MetaFile)
}

func (s *Server) published(ctx context.Context, execID, name string) (download, error) {
	rec, err := s.record(ctx, execID)
	if err != nil {
		return download{}, err
	}
	content, file, err := s.cfg.Runner.OpenPublished(ctx, rec, name)
	if err != nil {
		return download{}, err
	}
	request := callFrom(ctx).request.Clone(ctx)
	request.Header.Del("Range") // part of a JSON document is none
	return download{
		request: request, content: content, contentType: "application/json", modified: rec.EndedAt, sha256: file.SHA256,
	}, nil
}

// download is an answer of bytes that a job wrote, whole or a range of them.
type download struct {
	request     *http.Request
	content     io.ReadSeekCloser
	contentType string
	attachment  string    // the name to save it under; empty: not an attachment
	sha256      string    // the entity tag; empty: none
	modified    time.Time // zero: still growing
}

// VisitGetStdoutResponse writes the answer.
func (d download) VisitGetStdoutResponse(w http.ResponseWriter) error { return d.serve(w) }

// VisitGetStderrResponse writes the answer.
func (d download) VisitGetStderrResponse(w http.ResponseWriter) error { return d.serve(w) }

// VisitGetManifestResponse writes the answer.
func (d download) VisitGetManifestResponse(w http.ResponseWriter) error { return d.serve(w) }

// VisitGetMetaResponse writes the answer.
func (d download) VisitGetMetaResponse(w http.ResponseWriter) error { return d.serve(w) }

// VisitDownloadArtifactResponse writes the answer.
func (d download) VisitDownloadArtifactResponse(w http.ResponseWriter) error { return d.serve(w) }

func (d download) serve(w http.ResponseWriter) error {
	defer d.content.Close()
	h := w.Header()
	h.Set("Content-Type", d.contentType)
	h.Set("Content-Security-Policy", "sandbox; "+basicCSP)
	h.Set("Cache-Control", "private, no-cache")
	if d.attachment != "" {
		h.Set("Content-Disposition", attachment(d.attachment))
	}
	if d.sha256 != "" {
		h.Set("ETag", `"sha256:`+d.sha256+`"`)
	}
	r := d.request
	if strings.Contains(r.Header.Get("Range"), ",") { // several ranges may be answered with the whole, and are
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	http.ServeContent(&rangeWriter{ResponseWriter: w, request: r}, r, "", d.modified, d.content)
	return nil
}

// rangeWriter turns net/http's plain text for a bad range into a problem document.
type rangeWriter struct {
	http.ResponseWriter
	request *http.Request
	refused bool
}

// WriteHeader writes the header, or the whole problem document.
func (w *rangeWriter) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; w.refused {
		writeProblem(w.ResponseWriter, w.request, fault.New(fault.RangeUnsatisfiable,
			"the range %q is malformed or begins beyond the end; Content-Range says how many bytes there are", clip(w.request.Header.Get("Range"))))
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write writes the content, but not net/http's own words.
func (w *rangeWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// attachment is a Content-Disposition that saves under the name (RFC 6266), with a plain fallback for old clients. The name comes from a
// job: separators and control characters do not survive.
func attachment(name string) string {
	var plain, safe strings.Builder
	for _, r := range strings.ToValidUTF8(name, "_") {
		switch {
		case r < ' ' || r == 0x7f || strings.ContainsRune(`/\:*?"<>|`, r):
			r = '_'
		case r >= 0x80 && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f:
			r = '_' // C1 controls and marks that turn the direction of what a person reads
		}
		safe.WriteRune(r)
		if r > '~' || r == '%' || r == ';' {
			r = '_'
		}
		plain.WriteRune(r)
	}
	trim := func(s string) string {
		if s = strings.TrimLeft(s, "."); strings.Trim(s, "_ .") == "" {
			return "artifact"
		}
		return s
	}
	return `attachment; filename="` + trim(plain.String()) + `"; filename*=UTF-8''` + strings.ReplaceAll(url.QueryEscape(trim(safe.String())), "+", "%20")
}
