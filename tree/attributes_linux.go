package tree

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// FlushTakesAll reports that Flush writes a whole file system.
const FlushTakesAll = true

// PlainAttributes returns ErrNotCarried for a file or directory with extended attributes, such as an access list. SELinux labels are
// ignored: the system sets them again.
func PlainAttributes(f *os.File) error {
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
			return fmt.Errorf("%w: it has the extended attribute %.80q", ErrNotCarried, name)
		}
	}
	return nil
}
