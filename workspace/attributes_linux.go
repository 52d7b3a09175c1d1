package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// flushTakesAll says that flush writes a whole file system.
const flushTakesAll = true

// plainAttributes refuses a file or directory with extended attributes: a pack does not carry them, and an access list is one. What the
// system labels by itself is labelled again.
func plainAttributes(f *os.File) error {
	size, err := unix.Flistxattr(int(f.Fd()), nil)
	if err != nil || size == 0 {
		if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			err = nil // there are none here
		}
		return os.NewSyscallError("flistxattr", err)
	}
	list := make([]byte, size)
	if size, err = unix.Flistxattr(int(f.Fd()), list); err != nil {
		return os.NewSyscallError("flistxattr", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list[:size]), "\x00"), "\x00") {
		if name != "security.selinux" && name != "" {
			return fmt.Errorf("%w: it has the extended attribute %.80q", errNotCarried, name)
		}
	}
	return nil
}

// dataOf gives the pieces of a file that are not holes, and false when it has none worth telling, or too many.
func dataOf(f *os.File, fi fs.FileInfo) ([]extent, bool) {
	if onDisk, _, _ := onDisk(fi); onDisk >= fi.Size() {
		return nil, false
	}
	fd, list := int(f.Fd()), []extent{}
	for at := int64(0); at < fi.Size(); {
		start, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // a hole to the end
			break
		}
		if err != nil || len(list) == maxExtents {
			return nil, false
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil || end <= start {
			return nil, false
		}
		list = append(list, extent{start, min(end, fi.Size()) - start})
		at = end
	}
	return list, true
}
