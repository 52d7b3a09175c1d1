package statedir

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteNew writes a file that only this user can read, durably. The file is whole or absent after a
// crash, which may leave another file beside it, named path.*.new. WriteNew never replaces a file:
// the error then wraps fs.ErrExist.
func WriteNew(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new") // of this process only: several nodes may write the same file
	if err != nil {
		return err
	}
	if err = makeFilePrivate(f.Name()); err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Link(f.Name(), path)
	}
	return errors.Join(err, os.Remove(f.Name()), SyncDir(filepath.Dir(path)))
}
