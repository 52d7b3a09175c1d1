package console_test

import (
	"strings"
	"testing"
	"time"

	"secbox/audit"
)

// TestOutputOfSandboxes: pages say that the output of a command in a sandbox is shown while it
// runs, and not stored.
func TestOutputOfSandboxes(t *testing.T) {
	t.Parallel()
	f := newFake().fill(1)
	rec := &f.records[0]
	rec.ArtifactsPath, rec.ManifestDigest, rec.Backend, rec.Status, rec.ExitCode, rec.EndedAt, rec.StdoutBytes = "", "", "none", audit.Running, nil,
		time.Time{}, 0
	f.output["stdout"] = []byte("begun\n")
	url := f.serve(t) + "/console/execs/" + rec.ExecID
	page := get(t, url)
	for _, want := range []string{"begun\n", "the first 64 KiB are shown while it runs", `data-at="6-0"`} {
		if !strings.Contains(page, want) {
			t.Errorf("while it runs, the page lacks %q", want)
		}
	}

	rec.Status, rec.ExitCode, rec.EndedAt, rec.StdoutBytes = audit.Succeeded, new(int), rec.StartedAt.Add(time.Second), 200_000
	f.output["stdout"] = nil
	const gone = "What is shown here is not stored"
	if page := get(t, url+"?shown=6-0"); !strings.Contains(page, "The command wrote 195.3 KiB") || !strings.Contains(page, gone) ||
		strings.Contains(page, "were not kept") || strings.Contains(page, "/output/stdout/file") {
		t.Error("a live page does not say that its output is gone later")
	}
	if page := get(t, url); !strings.Contains(page, "The command wrote 195.3 KiB") || !strings.Contains(page, "is not stored") ||
		strings.Contains(page, gone) || !strings.Contains(page, "Nothing was written") {
		t.Error("a page does not say why it has no output")
	}
	rec.Status, rec.StdoutBytes = audit.Lost, 0
	if page := get(t, url); !strings.Contains(page, "It is not known what the command wrote") {
		t.Error("a page of a lost command says what it wrote")
	}
	f.records[0] = record(1)
	if page := get(t, url); strings.Contains(page, "is not stored") {
		t.Error("the page of an exec speaks of a sandbox")
	}
}
