package tree

import (
	"errors"

	"secbox/diskspace"
	"secbox/fault"
)

// Failed wraps an error of the file system; a full disk has a code of its own.
func Failed(err error, format string, args ...any) error {
	if diskspace.IsFull(err) {
		return fault.Wrap(fault.DiskFull, err, "the workspace's disk has no room: free some space or inodes")
	}
	return fault.Wrap(fault.Internal, err, format, args...)
}

// ErrNotCarried is something that a copy or a pack cannot bring back as it was.
var ErrNotCarried = errors.New("cannot be packed")
