//go:build unix

package tree

import (
	"io/fs"
	"syscall"
	"testing"

	"secbox/fault"
)

func TestFailed(t *testing.T) {
	t.Parallel()
	err := Failed(&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, "cannot be written")
	if !fault.Is(err, fault.DiskFull) {
		t.Errorf("got %v", err)
	}
	if err := Failed(fs.ErrPermission, "cannot be written"); !fault.Is(err, fault.Internal) {
		t.Errorf("got %v", err)
	}
}
