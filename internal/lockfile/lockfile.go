// Package lockfile locks open files against other processes: flock on Unix, LockFileEx on Windows. The locks are advisory and end with
// the process.
//
// It takes files, not paths, so that a caller may open them through an os.Root. It knows neither the files' names nor what they protect.
package lockfile

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked reports that another open file holds a conflicting lock.
var ErrLocked = errors.New("locked by another process")

// Mode says with whom a lock is shared.
type Mode bool

// The modes: many files may hold a shared lock at once, one an exclusive lock.
const (
	Shared    Mode = false
	Exclusive Mode = true
)

// Try locks f, or returns ErrLocked at once. On Unix it also changes the mode of a lock that f holds already; on Windows that lock must be
// released first.
func Try(f *os.File, mode Mode) error { return try(f, mode) }

// Wait locks f as soon as it is free, or returns ctx's cause when ctx ends first. It calls waiting, which may be nil, after each attempt
// that found the file locked: every 50 ms at the latest.
func Wait(ctx context.Context, f *os.File, mode Mode, waiting func()) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := try(f, mode); !errors.Is(err, ErrLocked) {
			return err
		}
		if waiting != nil {
			waiting()
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

// Close unlocks f and closes it. Closing alone is not enough while a child process that is just being started has a copy of f.
func Close(f *os.File) error {
	unlock(f)
	return f.Close()
}
