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
	for _, test := range []struct {
		held, wanted lockfile.Mode
		want         error
	}{
		{lockfile.Shared, lockfile.Shared, nil},
		{lockfile.Shared, lockfile.Exclusive, lockfile.ErrLocked},
		{lockfile.Exclusive, lockfile.Shared, lockfile.ErrLocked},
		{lockfile.Exclusive, lockfile.Exclusive, lockfile.ErrLocked},
	} {
		if err := lockfile.Try(a, test.held); err != nil {
			t.Fatal(err)
		}
		if err := lockfile.Try(b, test.wanted); !errors.Is(err, test.want) {
			t.Errorf("held exclusively %v, wanted exclusively %v: %v", test.held, test.wanted, err)
		}
		lockfile.Unlock(a)
		lockfile.Unlock(b)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	if err := lockfile.Try(a, lockfile.Exclusive); err != nil {
		t.Fatal(err)
	}
	if err := lockfile.Close(a); err != nil {
		t.Fatal(err)
	}
	if err := lockfile.Try(b, lockfile.Exclusive); err != nil {
		t.Error(err)
	}
	if err := lockfile.Close(a); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	if err := lockfile.Try(a, lockfile.Shared); err == nil || errors.Is(err, lockfile.ErrLocked) {
		t.Errorf("locked a closed file: %v", err)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	if err := lockfile.Try(a, lockfile.Exclusive); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, lockfile.ErrLocked)
	defer cancel()
	if err := lockfile.Wait(ctx, b, lockfile.Shared, nil); !errors.Is(err, lockfile.ErrLocked) {
		t.Errorf("after the timeout: %v", err)
	}
	tries := 0
	err := lockfile.Wait(t.Context(), b, lockfile.Exclusive, func() {
		if tries++; tries == 3 {
			lockfile.Unlock(a)
		}
	})
	if err != nil || tries != 3 {
		t.Errorf("%v after %d attempts", err, tries)
	}
}
