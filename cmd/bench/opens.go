//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// countOpens counts how often any process opens a file below a directory until stop is called. It
// does not see directories that are made later.
func countOpens(dir string) (stop func() (int64, error), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		_, err = unix.InotifyAddWatch(fd, path, unix.IN_OPEN|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
		return os.NewSyscallError("inotify_add_watch", err)
	})
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	var opens int64
	done := make(chan error, 1)
	go func() {
		buffer := make([]byte, 64<<10)
		var failed error
		for {
			n, err := events.Read(buffer)
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					failed = err
				}
				done <- failed
				return
			}
			for at := 0; at+unix.SizeofInotifyEvent <= n; {
				mask, name := binary.NativeEndian.Uint32(buffer[at+4:]), binary.NativeEndian.Uint32(buffer[at+12:])
				switch {
				case mask&unix.IN_Q_OVERFLOW != 0:
					failed = errors.New("more files were opened than could be counted")
				case mask&unix.IN_OPEN != 0 && mask&unix.IN_ISDIR == 0:
					opens++
				}
				at += unix.SizeofInotifyEvent + int(name)
			}
		}
	}()
	return func() (int64, error) {
		// Every open so far is in the queue: when nothing comes any more, all of it was read.
		if err := events.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return 0, errors.Join(err, events.Close())
		}
		err := <-done
		return opens, errors.Join(err, events.Close())
	}, nil
}
