package tree

import (
	"errors"

	"secbox/diskspace"
	"secbox/fault"
)

// Failed wraps an error of the file system: fault.DiskFull for a full disk, else fault.Internal with the message.
func Failed(err error, format string, args ...any) error {
	if diskspace.IsFull(err) {
		return fault.Wrap(fault.DiskFull, err, "the workspace's disk has no room: free some space or inodes")
	}
	return fault.Wrap(fault.Internal, err, format, args...)
}

// ErrNotCarried reports something that a copy or a pack would lose.
var ErrNotCarried = errors.New("cannot be packed")
