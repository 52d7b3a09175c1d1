package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// binaryDir holds the built programs until TestMain removes it.
var binaryDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "secbox-e2e-") })

// build builds a program under a name, or takes it from the folder in SECBOX_E2E_PROGRAMS: where
// scripts/reach runs the tests, there is no Go. With CGO_ENABLED=0 it shares what
// images/build-core-api.sh compiles.
func build(pkg, name string, environ []string, flags ...string) (path string, err error) {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if built := os.Getenv("SECBOX_E2E_PROGRAMS"); built != "" {
		return filepath.Join(built, name), nil
	}
	dir, err := binaryDir()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	cmd := exec.Command("go", slices.Concat([]string{"build", "-buildvcs=false", "-o", path}, flags, []string{pkg})...)
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return path, cmd.Run()
}

var tested = sync.OnceValues(func() (string, error) {
	if raceEnabled {
		return build("secbox/cmd/core-api", "core-api", nil, "-race")
	}
	return released()
})

var released = sync.OnceValues(func() (string, error) {
	return build("secbox/cmd/core-api", "core-api-as-released", []string{"CGO_ENABLED=0"}, "-trimpath")
})

var secbox = sync.OnceValues(func() (string, error) {
	return build("secbox/cmd/secbox", "secbox", []string{"CGO_ENABLED=0"}, "-trimpath")
})

// binary is core-api as a program, built once, with the race detector when the tests have it.
func binary(t testing.TB) string {
	t.Helper()
	path, err := tested()
	if err != nil {
		t.Fatalf("build core-api: %v", err)
	}
	return path
}

// releasedBinary is core-api without a race detector, for tests of how much memory it takes.
func releasedBinary(t testing.TB) string {
	t.Helper()
	path, err := released()
	if err != nil {
		t.Fatalf("build core-api: %v", err)
	}
	return path
}

// secboxBinary is the user's program, built once.
func secboxBinary(t testing.TB) string {
	t.Helper()
	path, err := secbox()
	if err != nil {
		t.Fatalf("build secbox: %v", err)
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
