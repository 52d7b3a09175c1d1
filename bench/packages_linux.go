package bench

import (
	encoding "encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// settle writes what a file system has in memory to its disk.
func settle(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
}

// countOpens counts how often anybody opens a file below a directory, whatever process it is, until stop is called. Directories that are
// made later are not looked at.
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
	type counted struct {
		opens int64
		err   error
	}
	done := make(chan counted, 1)
	go func() {
		var c counted
		buffer := make([]byte, 64<<10)
		for {
			n, err := events.Read(buffer)
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					c.err = err
				}
				done <- c
				return
			}
			for at := 0; at+unix.SizeofInotifyEvent <= n; {
				mask, name := encoding.NativeEndian.Uint32(buffer[at+4:]), encoding.NativeEndian.Uint32(buffer[at+12:])
				switch {
				case mask&unix.IN_Q_OVERFLOW != 0:
					c.err = errors.New("more files were opened than could be counted")
				case mask&unix.IN_OPEN != 0 && mask&unix.IN_ISDIR == 0:
					c.opens++
				}
				at += unix.SizeofInotifyEvent + int(name)
			}
		}
	}()
	return func() (int64, error) {
		// What was opened is in the queue already: whoever opened it went on only after that. When nothing comes any more, all is read.
		if err := events.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return 0, errors.Join(err, events.Close())
		}
		c := <-done
		return c.opens, errors.Join(c.err, events.Close())
	}, nil
}
