package visible

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"time"

	"secbox/api/content"
	"secbox/audit"
	"secbox/internal/admission"
	"secbox/runner"
)

// CheckArtifacts finds an altered file before the first byte of an archive is sent.
func CheckArtifacts(ctx context.Context, all runner.Artifacts) error {
	for _, item := range all.List().Items {
		in, _, err := all.Open(ctx, item.Path)
		if err != nil {
			return err
		}
		in.Close()
	}
	return nil
}

// WriteArtifacts writes all artifacts of an exec as a ZIP, in which executable files are
// executable. CheckArtifacts and the event of the download come before it.
func WriteArtifacts(ctx context.Context, w io.Writer, all runner.Artifacts, rec audit.Record) error {
	turn, err := admission.Begin(ctx)
	if err != nil {
		return err
	}
	defer turn.End()
	archive := zip.NewWriter(turn.Writer(w))
	for _, item := range all.List().Items {
		turn.End() // opening the file hashes it in a turn of its own
		if err := addArtifact(ctx, turn, archive, all, rec, item.Path); err != nil {
			return err
		}
	}
	return archive.Close()
}

func addArtifact(ctx context.Context, turn *admission.Turn, archive *zip.Writer, all runner.Artifacts, rec audit.Record,
	path string,
) error {
	in, artifact, err := all.Open(ctx, path)
	if err != nil {
		return err
	}
	defer in.Close()
	modified := rec.EndedAt
	if modified.IsZero() {
		modified = time.Unix(0, 0)
	}
	header := &zip.FileHeader{Name: content.ZipName(path), Method: zip.Deflate, Modified: modified.UTC()}
	header.SetMode(0o644)
	if f, ok := in.(interface{ Executable() bool }); ok && f.Executable() {
		header.SetMode(0o755)
	}
	entry, err := archive.CreateHeader(header)
	if err != nil {
		return err
	}
	if n, err := io.Copy(entry, turn.Reader(in)); err != nil {
		return err
	} else if n != artifact.Size {
		return fmt.Errorf("artifact %q of exec %s has %d bytes, its manifest says %d", path, rec.ExecID, n, artifact.Size)
	}
	return nil
}
