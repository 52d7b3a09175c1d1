package api

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"secbox/audit"
	"secbox/fault"
	"secbox/runner"
)

// ListArtifacts lists what an exec left, or sends all of it as a zip.
func (s *Server) ListArtifacts(ctx context.Context, in ListArtifactsRequestObject) (ListArtifactsResponseObject, error) {
	format := value(in.Params.Format)
	if format != "" && format != "json" && format != "zip" {
		return nil, fault.BadField("format", "is %q; allowed are json and zip", clip(format))
	}
	rec, err := s.record(ctx, in.ExecID)
	if err != nil {
		return nil, err
	}
	left, err := s.cfg.Runner.Artifacts(ctx, rec)
	if err != nil {
		return nil, err
	}
	if format == "zip" {
		if err := checkAll(ctx, left); err != nil {
			left.Close()
			return nil, err
		}
		return zipAnswer{request: callFrom(ctx).request, left: left, rec: rec}, nil
	}
	defer left.Close()
	list := left.List()
	return ListArtifacts200JSONResponse{Body: ArtifactList{
		ExecID: rec.ExecID, Items: artifacts(list.Items), TotalBytes: list.TotalBytes, Truncated: list.Truncated,
	}}, nil
}

// checkAll finds an altered file while the answer can still say so.
func checkAll(ctx context.Context, left runner.Artifacts) error {
	for _, item := range left.List().Items {
		content, _, err := left.Open(ctx, item.Path)
		if err != nil {
			return err
		}
		content.Close()
	}
	return nil
}

// zipAnswer is all artifacts of an exec as one archive, made while it is sent.
type zipAnswer struct {
	request *http.Request
	left    runner.Artifacts
	rec     audit.Record
}

// VisitListArtifactsResponse writes the archive. An error after the first byte cuts the connection, so that half an archive is not taken
// for a whole one.
func (a zipAnswer) VisitListArtifactsResponse(w http.ResponseWriter) error {
	defer a.left.Close()
	h := w.Header()
	h.Set("Content-Type", "application/zip")
	h.Set("Content-Security-Policy", "sandbox; "+basicCSP)
	h.Set("Content-Disposition", attachment(a.rec.ExecID+".zip"))
	if a.request.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	archive := zip.NewWriter(w)
	for _, item := range a.left.List().Items {
		if err := a.add(archive, item.Path); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (a zipAnswer) add(archive *zip.Writer, path string) error {
	content, artifact, err := a.left.Open(a.request.Context(), path)
	if err != nil {
		return err
	}
	defer content.Close()
	modified := a.rec.EndedAt
	if modified.IsZero() {
		modified = time.Unix(0, 0)
	}
	entry, err := archive.CreateHeader(&zip.FileHeader{Name: zipName(path), Method: zip.Deflate, Modified: modified.UTC()})
	if err != nil {
		return err
	}
	if n, err := io.Copy(entry, content); err != nil {
		return err
	} else if n != artifact.Size {
		return fmt.Errorf("artifact %q of exec %s has %d bytes, its manifest says %d", path, a.rec.ExecID, n, artifact.Size)
	}
	return nil
}

// zipName is a name that no unpacker can be led astray by: relative, without "." and "..", without separators, drives and devices of
// other systems, valid UTF-8. What is unsafe is percent-encoded, and so is "%", so that two files never get one name.
func zipName(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		var b strings.Builder
		for j, r := range part {
			size := max(1, utf8.RuneLen(r))
			if r == utf8.RuneError {
				_, size = utf8.DecodeRuneInString(part[j:])
			}
			unsafe := r < ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|%`, r) || r == utf8.RuneError && size == 1 ||
				(r == '.' || r == ' ') && j+1 == len(part) // a trailing dot or blank vanishes on Windows; this covers "." and ".."
			for k := range size {
				if unsafe {
					fmt.Fprintf(&b, "%%%02X", part[j+k])
				} else {
					b.WriteByte(part[j+k])
				}
			}
		}
		if parts[i] = b.String(); part == "" {
			parts[i] = "%" // nothing before or between slashes; "%" alone is no encoding of anything
		}
	}
	return strings.Join(parts, "/")
}
