package search

import (
	"io"
	"os"
	"time"
)

// openFile is a file that was opened, and what is known about it.
type openFile struct {
	io.ReadCloser
	regular  bool
	size     int64
	modified time.Time
}

// openBelow opens a file at a path below a directory, following links that stay below it.
func openBelow(dir *os.Root, name string) (openFile, error) {
	file, err := dir.OpenFile(name, os.O_RDONLY|openSafely, 0)
	if err != nil {
		return openFile{}, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return openFile{}, err
	}
	return openFile{file, info.Mode().IsRegular(), info.Size(), info.ModTime()}, nil
}
