//go:build unix

package diskspace

import "golang.org/x/sys/unix"

var fullDisk = []error{unix.ENOSPC, unix.EDQUOT}
