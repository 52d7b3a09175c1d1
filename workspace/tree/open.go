package tree

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// OpenRegular opens a regular file (one component) of dir for reading: no link, no FIFO, and
// nothing that takes its place meanwhile.
func OpenRegular(dir *os.Root, name string) (*os.File, fs.FileInfo, error) {
	before, err := dir.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	return OpenSame(dir, name, before)
}

// OpenSame opens the regular file that an Lstat returned.
func OpenSame(dir *os.Root, name string, before fs.FileInfo) (*os.File, fs.FileInfo, error) {
	if !before.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%q %w", CutName(name, 64), ErrNotRegular)
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|OpenSafely, 0)
	if err != nil {
		return nil, nil, err
	}
	after, err := f.Stat()
	if err == nil && (!after.Mode().IsRegular() || !os.SameFile(before, after)) {
		err = fmt.Errorf("%q %w", CutName(name, 64), ErrSwapped)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, after, nil
}

// RemoveOlder removes entries of dir whose last change was before limit, at most NameBatch of them.
func RemoveOlder(dir *os.Root, limit time.Time) {
	var stale []string
	_ = EachName(dir, func(name string) error {
		if fi, err := dir.Lstat(name); err == nil && fi.ModTime().Before(limit) && len(stale) < NameBatch {
			stale = append(stale, name)
		}
		return nil
	})
	for _, name := range stale {
		_, _ = RemoveTree(context.Background(), dir, name)
	}
}
