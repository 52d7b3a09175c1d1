//go:build unix

package secrets_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/network/secrets"
)

// TestPipeIsNoFile: a pipe without a writer is refused, not waited for.
func TestPipeIsNoFile(t *testing.T) {
	t.Parallel()
	unusable(t, secrets.Source{File: pipe(t)}, "no regular file")
}

// TestCommandEndsWithItsProcesses: a command that takes too long leaves no process.
func TestCommandEndsWithItsProcesses(t *testing.T) {
	t.Parallel()
	path := pipe(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := secrets.Output(ctx, []string{"/bin/sh", "-c", "sleep 1000 > " + path + " & wait"})
		ended <- err
	}()
	writer, err := os.Open(path) // waits for the process
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	cancel()
	if err := <-ended; err == nil {
		t.Error("it succeeded")
	}
	_ = writer.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadAll(writer); err != nil {
		t.Errorf("a process is left: %v", err)
	}
}

func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
