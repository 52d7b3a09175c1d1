//go:build unix

package workspace

import "golang.org/x/sys/unix"

var fullDisk = []error{unix.ENOSPC, unix.EDQUOT}
