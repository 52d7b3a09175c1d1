// Package lockfile locks open files against other processes: flock on Unix, LockFileEx on Windows.
// The locks are advisory and end with the process.
//
// It takes files, not paths, so that a caller may open them through an os.Root. It knows neither
// the files' names nor what they protect.
package lockfile

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked reports that another open file holds the lock.
var ErrLocked = errors.New("locked by another process")

// Try locks f, or returns ErrLocked at once.
func Try(f *os.File) error { return try(f) }

// Wait locks f as soon as it is free, or returns ctx's cause when ctx ends first.
func Wait(ctx context.Context, f *os.File) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := try(f); !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Unlock releases f's lock, if it holds one.
func Unlock(f *os.File) { unlock(f) }

// Close unlocks f and closes it. Closing alone is not enough while a child process that is just
// being started has a copy of f.
func Close(f *os.File) error {
	unlock(f)
	return f.Close()
}
