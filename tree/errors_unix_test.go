//go:build unix

package tree

import "golang.org/x/sys/unix"

var fullDisk = []error{unix.ENOSPC, unix.EDQUOT}
