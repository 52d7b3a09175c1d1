//go:build unix

package translog_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"secbox/audit/translog"
	"secbox/fault"
)

// TestKeysAreInMemory: no request waits for the file of a key that was read, and none for a file
// that is no key.
func TestKeysAreInMemory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), translog.KeyFile)
	read := func(bool) (translog.Key, error) { return translog.ReadKey(path, origin) }
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	keys := translog.NewKeys(read)
	if _, err := keys.Held(); !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	made, err := translog.MakeKey(path, origin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Held(); err == nil {
		t.Error("a request has read the file")
	}
	if v, err := keys.Verifier(); err != nil || v.KeyHash() != made.Signer.KeyHash() {
		t.Error(err)
	}
	if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	if key, err := keys.Held(); err != nil || key.Verifier != made.Verifier {
		t.Errorf("%v", err)
	}
	if _, err := keys.Verifier(); err != nil {
		t.Error(err)
	}
	if _, err := keys.Reload(true); err == nil {
		t.Error("a pipe is a key")
	}
	if _, err := keys.Held(); err != nil {
		t.Errorf("after a reading that failed: %v", err)
	}
}
