//go:build unix

package archive

import "golang.org/x/sys/unix"

// The modes of what is unpacked, and what the tests add to the name of an executable file.
const (
	folder, executable, plain = 0o755, 0o755, 0o644
	star                      = "*"
)

var fullDisk = []error{unix.ENOSPC, unix.EDQUOT}
