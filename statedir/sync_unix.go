//go:build unix

package statedir

import (
	"errors"
	"os"
	"syscall"
)

// nonblock keeps an open from waiting for the writer of a pipe.
const nonblock = syscall.O_NONBLOCK

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
