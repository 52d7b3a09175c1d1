package dockercli_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// listenUnix accepts connections and never answers.
func listenUnix(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hung") // t.TempDir is too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "d.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		_ = os.RemoveAll(dir)
	})
	return path
}
