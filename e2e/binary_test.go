package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// binaryDir holds the built core-api until TestMain removes it.
var binaryDir string

var buildBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "secbox-e2e-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path := filepath.Join(dir, "core-api")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "secbox/cmd/core-api")...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return path, cmd.Run()
})

// binary is core-api as a program, built once, with the race detector when the tests have it.
func binary(t testing.TB) string {
	t.Helper()
	path, err := buildBinary()
	if err != nil {
		t.Fatalf("build core-api: %v", err)
	}
	return path
}

// cli runs core-api with these arguments until it ends.
func cli(t testing.TB, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := coreAPI(t, environ, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("core-api did not start: %v", err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
