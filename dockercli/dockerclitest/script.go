// Package dockerclitest makes fake docker binaries, for tests of failures that a real engine does not produce on demand.
package dockerclitest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"secbox/dockercli"
)

// Script makes a docker binary from a shell script.
func Script(t testing.TB, script string) *dockercli.CLI {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker")
	// A process that is forked meanwhile would hold the file open for writing, and the system does not execute such a file.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	cli, err := dockercli.Find(path, os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	return cli
}
