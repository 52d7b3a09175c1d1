// Package dockerclitest makes docker binaries that do what a test wants: for what a real engine does not do on demand.
package dockerclitest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"secbox/dockercli"
)

// Script is a docker binary that does what the shell script says.
func Script(t testing.TB, script string) *dockercli.CLI {
	t.Helper()
	path := filepath.Join(t.TempDir(), "docker")
	// No process may be forked meanwhile: it would hold the file open for writing, and the system starts no such file.
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
