package lockfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"secbox/internal/lockfile"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestTry(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	for range 2 {
		if err := lockfile.Try(a); err != nil {
			t.Fatal(err)
		}
		if err := lockfile.Try(b); !errors.Is(err, lockfile.ErrLocked) {
			t.Errorf("locked twice: %v", err)
		}
		lockfile.Unlock(a)
		if err := lockfile.Try(b); err != nil {
			t.Error(err)
		}
		lockfile.Unlock(b)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	if err := lockfile.Try(a); err != nil {
		t.Fatal(err)
	}
	if err := lockfile.Close(a); err != nil {
		t.Fatal(err)
	}
	if err := lockfile.Try(b); err != nil {
		t.Error(err)
	}
	if err := lockfile.Close(a); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	if err := lockfile.Try(a); err == nil || errors.Is(err, lockfile.ErrLocked) {
		t.Errorf("locked a closed file: %v", err)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	if err := lockfile.Try(a); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, lockfile.ErrLocked)
	defer cancel()
	if err := lockfile.Wait(ctx, b); !errors.Is(err, lockfile.ErrLocked) {
		t.Errorf("after the timeout: %v", err)
	}
	lockfile.Unlock(a)
	if err := lockfile.Wait(t.Context(), b); err != nil {
		t.Error(err)
	}
}
