package translog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"secbox/fault"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, KeyFile)
	origin := Origin("0b6f1f5e-7d53-4a0c-8f3f-7a1c9e110001")
	if _, err := ReadKey(path, origin); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	made, err := MakeKey(path, origin)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := ReadKey(path, origin); err != nil || read.Verifier != made.Verifier {
		t.Errorf("%q, %v; want %q", read.Verifier, err, made.Verifier)
	}
	verifier, err := note.NewVerifier(made.Verifier)
	if err != nil || verifier.Name() != origin || verifier.KeyHash() != made.Signer.KeyHash() {
		t.Errorf("%v, %v", verifier, err)
	}
	if _, err := MakeKey(path, origin); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second key: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.new")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if _, err := ReadKey(path, Origin("another")); !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), "audit.log_key_file") {
		t.Errorf("of another installation: %v", err)
	}
}

func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), KeyFile)
	if _, err := MakeKey(path, "secbox/x"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []string{
		"", "\n", "PRIVATE+KEY", string(text[:len(text)-8]), strings.Replace(string(text), "secbox/x", "secbox/y", 1),
		strings.ToLower(string(text)),
	} {
		if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadKey(path, "secbox/x")
		if !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), "damaged") ||
			damaged != "" && len(damaged) > 40 && strings.Contains(err.Error(), damaged[20:]) {
			t.Errorf("%q: %v", damaged, err)
		}
	}
}

// TestNewKeysHaveTheirPublicHalf: the base64 of a key may have any character, a plus among them.
func TestNewKeysHaveTheirPublicHalf(t *testing.T) {
	t.Parallel()
	for range 200 {
		text, verifier, err := note.GenerateKey(nil, "secbox/x")
		if err != nil {
			t.Fatal(err)
		}
		if key, err := ParseKey(text); err != nil || key.Verifier != verifier {
			t.Fatalf("%q, %v; want %q", key.Verifier, err, verifier)
		}
	}
}
