package diskspace

import (
	"os"
	"path/filepath"
)

// Existing returns a directory or, if it does not exist, its nearest parent that does: a new directory will be on its disk. An error means
// that the returned path cannot be looked up.
func Existing(dir string) (string, error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		_, err := os.Stat(at)
		if err == nil || !os.IsNotExist(err) || at == filepath.Dir(at) {
			return at, err
		}
	}
}
