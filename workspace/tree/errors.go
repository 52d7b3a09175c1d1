package tree

import (
	"errors"
	"syscall"

	"secbox/fault"
	"secbox/workspace/diskspace"
)

// Failed wraps an error of the file system: fault.DiskFull for a full disk, fault.ProjectDamaged
// for a directory on another file system, else fault.Internal with the message.
func Failed(err error, format string, args ...any) error {
	asMounted, _ := errors.AsType[*MountedError](err)
	switch {
	case diskspace.IsFull(err):
		return fault.Wrap(fault.DiskFull, err, "the workspace's disk has no room: free some space or inodes")
	case asMounted != nil:
		return fault.Wrap(fault.ProjectDamaged, err, format+": %s below the directory of the project; unmount it",
			append(args, asMounted.Error())...)
	case errors.Is(err, syscall.EXDEV):
		return fault.Wrap(fault.ProjectDamaged, err, format+": something is mounted below the directory of the project; unmount it",
			args...)
	case errors.Is(err, syscall.EROFS):
		return fault.Wrap(fault.Internal, err, format+": the workspace's file system is read-only; mount it for writing", args...)
	}
	return fault.Wrap(fault.Internal, err, format, args...)
}

// errNotCarried reports something that a copy would lose.
var errNotCarried = errors.New("cannot be copied")
