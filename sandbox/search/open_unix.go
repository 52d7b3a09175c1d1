//go:build unix

package search

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openSafely keeps the open of a FIFO, which may have taken a file's place, from waiting.
const openSafely = unix.O_NONBLOCK

// open opens a file of the directory. It makes three system calls, where os.File makes six: a
// search opens many files.
func (d *shared) open(name string) (openFile, error) {
	if d.file == nil {
		return openBelow(d.Root, name)
	}
	fd, err := unix.Openat(int(d.file.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|openSafely, 0)
	if err != nil {
		return openFile{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return openFile{}, err
	}
	return openFile{descriptor(fd), uint32(st.Mode)&unix.S_IFMT == unix.S_IFREG, st.Size, time.Unix(st.Mtim.Unix())}, nil
}

// openNames opens a directory to read its names and their types. A file of os.Root would also stat
// each of them.
func openNames(dir *os.Root, name string) (*os.File, error) {
	file, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	fd, err := unix.Openat(int(file.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// descriptor is an open file.
type descriptor int

// Read implements io.Reader.
func (fd descriptor) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), p)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Close implements io.Closer.
func (fd descriptor) Close() error { return unix.Close(int(fd)) }
