package migrations

import (
	"context"
	"os"
	"time"
)

// lockFile waits for the exclusive lock on the file and returns what gives it back. The lock dies with the process.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		held, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, err
		}
		if held {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-look.C:
		}
	}
}
