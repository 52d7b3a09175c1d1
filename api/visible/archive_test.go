package visible

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/internal/admission"
	"secbox/runner"
)

// some are artifacts by path. Opening one takes a turn, as hashing it does.
type some map[string]string

func (s some) List() (list runner.ArtifactList) {
	for path, text := range s {
		list.Items = append(list.Items, runner.Artifact{Path: path, Size: int64(len(text))})
	}
	return list
}

func (s some) Open(ctx context.Context, path string) (io.ReadSeekCloser, runner.Artifact, error) {
	err := admission.Do(ctx, func() error { return nil })
	return closing{strings.NewReader(s[path])}, runner.Artifact{Path: path, Size: int64(len(s[path]))}, err
}

func (some) Close() error { return nil }

type closing struct{ io.ReadSeeker }

// Executable makes long ones executable.
func (c closing) Executable() bool {
	n, _ := c.Seek(0, io.SeekEnd)
	_, _ = c.Seek(0, io.SeekStart)
	return n > 10
}

func (closing) Close() error { return nil }

// slowReader is a client that takes its time.
type slowReader struct {
	t   *testing.T
	g   *admission.Gate
	got bytes.Buffer
}

func (s *slowReader) Write(p []byte) (int, error) {
	if _, free := s.g.Load(); free != 1 {
		s.t.Error("a processor waits for a client")
	}
	return s.got.Write(p)
}

// TestArchiveLeavesProcessors: an archive is made on one processor, which its client does not keep
// while it reads.
func TestArchiveLeavesProcessors(t *testing.T) {
	t.Parallel()
	g := admission.NewProcessors(1)
	ctx := admission.WithProcessors(t.Context(), g, func() string { return "a" })
	all := some{"a.txt": strings.Repeat("a line\n", 100_000), "b.txt": "b", "c.txt": ""}
	w := &slowReader{t: t, g: g}
	if err := WriteArtifacts(ctx, w, all, audit.Record{}); err != nil {
		t.Fatal(err)
	}
	if _, free := g.Load(); free != 1 {
		t.Error("it keeps the processor")
	}
	r, err := zip.NewReader(bytes.NewReader(w.got.Bytes()), int64(w.got.Len()))
	if err != nil || len(r.File) != len(all) {
		t.Fatal(r, err)
	}
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(in); err != nil || string(text) != all[f.Name] {
			t.Errorf("%s has %d bytes: %v", f.Name, len(text), err)
		}
		if executable := f.Mode() == 0o755; executable != (f.Name == "a.txt") {
			t.Errorf("%s has the mode %v", f.Name, f.Mode())
		}
	}
	gone, leave := context.WithCancel(ctx)
	leave()
	if err := WriteArtifacts(gone, io.Discard, all, audit.Record{}); err == nil {
		t.Error("it works for a client that has gone")
	}
}
