// Package dockerclitest makes fake docker binaries, for tests of failures that a real engine does
// not produce on demand.
package dockerclitest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"secbox/engine/dockercli"
)

// Script makes a docker binary from a shell script, with the environment of the test.
func Script(t testing.TB, script string) *dockercli.CLI {
	t.Helper()
	cli, err := dockercli.Find(Program(t, script), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	return cli
}

// Program writes a shell script that stands in for docker, and returns its path.
func Program(t testing.TB, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker")
	// A process that is forked meanwhile would hold the file open for writing, and the system does
	// not execute such a file.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
