package statedir_test

import (
	"os"
	"path/filepath"
	"testing"

	"secbox/fault"
	"secbox/internal/statedir"
)

func TestSecondProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state")
	first, err := statedir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := statedir.Open(path); !fault.Is(err, fault.StateDirInUse) {
		t.Fatalf("a second holder got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatalf("closing twice: %v", err)
	}
	again, err := statedir.Open(path)
	if err != nil {
		t.Fatalf("after the holder left: %v", err)
	}
	defer again.Close()
	if again.NodeID() != first.NodeID() {
		t.Fatalf("the node's id changed from %s to %s", first.NodeID(), again.NodeID())
	}
}

func TestDamagedID(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	if err := os.WriteFile(filepath.Join(path, "node_id"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := statedir.Open(path); !fault.Is(err, fault.InvalidSettings) {
		t.Fatalf("got %v", err)
	}
}
