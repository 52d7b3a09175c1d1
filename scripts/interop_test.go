package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// interop runs interop.sh with programs in a folder in place of programs of the same name.
func interop(t *testing.T, standIns string, args ...string) (said string, ok bool) {
	t.Helper()
	tmp := t.TempDir()
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	if err := build(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("./interop.sh", args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "PATH="+standIns+string(filepath.ListSeparator)+os.Getenv("PATH"), "SECBOX_PROGRAMS="+programs)
	out, err := cmd.CombinedOutput()
	if left, globErr := filepath.Glob(filepath.Join(tmp, "secbox*")); globErr != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, globErr)
	}
	return string(out), err == nil
}

// TestInterop runs the programs of others that take less than a minute together.
func TestInterop(t *testing.T) {
	t.Parallel()
	said, ok := interop(t, t.TempDir(), "--quick")
	if parts := regexp.MustCompile(`(?m)^ok `).FindAllString(said, -1); !ok || len(parts) < 9 {
		t.Errorf("%d parts are well, it said:\n%s", len(parts), said)
	}
}

// TestInteropFails: a program that finds something wrong is named with its reason, and the others
// run.
func TestInteropFails(t *testing.T) {
	t.Parallel()
	standIns := t.TempDir()
	if err := os.WriteFile(filepath.Join(standIns, "python3"), []byte("#!/bin/sh\necho 'too large: 500, not 413' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	said, ok := interop(t, standIns, "urllib", "webhook")
	if ok || !strings.Contains(said, "FAIL urllib: too large: 500, not 413\nok webhook\n") {
		t.Errorf("ok %v, it said:\n%s", ok, said)
	}
	if said, ok := interop(t, standIns, "nothing"); ok || !strings.Contains(said, "there is no part nothing: take conformance sdk") {
		t.Errorf("ok %v, it said:\n%s", ok, said)
	}
}
