//go:build unix

package archive

import "golang.org/x/sys/unix"

var fullDisk = []error{unix.ENOSPC, unix.EDQUOT}
