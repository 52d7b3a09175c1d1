//go:build unix

package audit

import (
	"errors"
	"os"
)

// syncDir flushes the renames in a directory.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
