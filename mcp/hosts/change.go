package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"secbox/fault"
)

// BackupEnding is appended to the name of a configuration file for the former one.
const BackupEnding = ".before-secbox"

// maxConfig is the size of the largest configuration file in bytes; Claude Code keeps its history
// in the same file.
const maxConfig = 64 << 20

// Change replaces a file by what edit makes of it, and returns where the former one is. Programs
// that read the file meanwhile find the old or the new one, and a change that they have made since
// is an error. A secret one is readable by its owner
// only; so is a new one.
func Change(file string, secret bool, edit func([]byte) ([]byte, error)) (backup string, err error) {
	wrap := func(err error) error {
		return fault.Wrap(fault.InvalidRequest, err, "cannot change %s: %s; --print shows what to write there by hand", file, fault.Reason(err))
	}
	real, err := filepath.EvalSymlinks(file)
	if err == nil { // a link stays one
		file = real
	} else if info, e := os.Lstat(file); e == nil && info.Mode()&os.ModeSymlink != 0 {
		return "", wrap(err)
	}
	var old []byte
	mode := os.FileMode(0o600)
	switch info, err := os.Stat(file); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return "", wrap(err)
	case !info.Mode().IsRegular():
		return "", wrap(errors.New("it is not a regular file"))
	case info.Size() > maxConfig:
		return "", wrap(fmt.Errorf("it has more than %d bytes", maxConfig))
	default:
		if old, err = os.ReadFile(file); err != nil {
			return "", wrap(err)
		}
		if backup = file + BackupEnding; !secret {
			mode = info.Mode().Perm()
		}
	}
	content, err := edit(old)
	if err != nil {
		return "", wrap(err)
	}
	if backup != "" && bytes.Equal(content, old) && !secret {
		return "", nil // the backup of an earlier change stays
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", wrap(err)
	}
	if backup != "" {
		if err := replace(backup, old, 0o600, func() error { return nil }); err != nil {
			return "", wrap(err)
		}
	}
	unchanged := func() error {
		now, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) && backup == "" {
			err = nil
		}
		if err == nil && !bytes.Equal(now, old) {
			err = errors.New("another program changed it meanwhile; try again")
		}
		return err
	}
	if err := replace(file, content, mode, unchanged); err != nil {
		return "", wrap(err)
	}
	return backup, nil
}

// replace writes a file completely, or not at all: if last, which is called at the end, returns an
// error.
func replace(file string, content []byte, mode os.FileMode, last func() error) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after an error
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = last()
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
