package scripts

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// demo runs demo.sh; programs in the folder replace those of the same name. It returns the output.
func demo(t *testing.T, standIns string) (said string, ok bool) {
	t.Helper()
	tmp := t.TempDir()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "./demo.sh")
	// A shell that is set up for another server must not reach into the demo.
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "PATH="+standIns+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"CORE_API_SANDBOX_MAX_QUEUED_EXECS=nonsense", "DATABASE_URL=postgres://127.0.0.1:1/none")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	left, globErr := filepath.Glob(filepath.Join(tmp, "secbox*"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("the demo left %v", left)
	}
	if id := regexp.MustCompile(`exec +([0-9a-f-]{36})`).FindStringSubmatch(out.String()); id != nil {
		containers, err := exec.CommandContext(t.Context(), "docker", "ps", "-aq", "--filter", "label=secbox.exec="+id[1]).Output()
		if err != nil || len(containers) > 0 {
			t.Errorf("the demo left containers %q, %v", containers, err)
		}
	}
	return out.String(), err == nil
}

func TestDemo(t *testing.T) {
	t.Parallel()
	said, ok := demo(t, t.TempDir())
	if !ok {
		t.Fatalf("it said:\n%s", said)
	}
	for _, want := range []string{
		"succeeded, exit code 0", "2 rows, total 42", "summary.json", "403 policy_denied", "SQLite", "What to type next", "is true",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it did not say %q; it said:\n%s", want, said)
		}
	}
}

func TestDemoFails(t *testing.T) {
	t.Parallel()
	standIns := t.TempDir()
	for _, name := range []string{"sha256sum", "shasum"} {
		if err := os.WriteFile(filepath.Join(standIns, name), []byte("#!/bin/sh\necho 0000  -\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	said, ok := demo(t, standIns)
	if ok || !strings.Contains(said, "✗ not true: the hash of the downloaded bytes is the recorded one") || !strings.Contains(said, "1 of the things above are not true") {
		t.Errorf("ok %v, it said:\n%s", ok, said)
	}
}
