package diskspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Existing returns a directory or, if it does not exist, its nearest parent that does: a new
// directory will be on its disk. An error means that the returned path cannot be looked up or is no
// directory.
func Existing(dir string) (string, error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() { // on Windows what is below a file does not exist, elsewhere Stat has said it
			err = &fs.PathError{Op: "stat", Path: at, Err: errors.New("it is no directory")}
		}
		if err == nil || !os.IsNotExist(err) || at == filepath.Dir(at) {
			return at, err
		}
	}
}
