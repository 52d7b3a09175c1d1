package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// maxSecret is more than any key has, in bytes.
const maxSecret = 4 << 10

// ReadSecret is Read for a file with a key of at most 4 KiB, that other users can neither read nor
// change. An error never has the content.
func ReadSecret(path string) ([]byte, error) {
	return read(path, maxSecret, func(info fs.FileInfo) error {
		// The group may read: orchestrators give secrets to it.
		if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o027 != 0 {
			return refuse(path, fmt.Sprintf("other users can read or change it (mode %04o); make its mode 0600", mode))
		}
		return nil
	})
}

// Read reads a regular file of at most limit bytes. It follows links, since orchestrators mount
// files as links, and never waits for the writer of a pipe. An error wraps fs.ErrNotExist if there
// is no file.
func Read(path string, limit int64) ([]byte, error) {
	return read(path, limit, func(fs.FileInfo) error { return nil })
}

func read(path string, limit int64, check func(fs.FileInfo) error) ([]byte, error) {
	fit := func(info fs.FileInfo) error {
		if !info.Mode().IsRegular() {
			return refuse(path, "it is no regular file")
		}
		return check(info)
	}
	info, err := os.Stat(path) // before the open, which may act on a device
	if err == nil {
		err = fit(info)
	}
	if err != nil {
		return nil, err
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil { // it may have been replaced in between
		err = fit(info)
	}
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = refuse(path, fmt.Sprintf("it has more than %d bytes", limit))
	}
	return content, err
}

func refuse(path, why string) error {
	return &fs.PathError{Op: "read", Path: path, Err: errors.New(why)}
}
