package tree

import (
	"errors"
	"io/fs"
	"testing"

	"secbox/fault"
)

func TestAFullDiskHasItsOwnCode(t *testing.T) {
	t.Parallel()
	for _, full := range fullDisk {
		err := Failed(errors.Join(errors.New("close"), &fs.PathError{Op: "write", Path: "x", Err: full}), "cannot be written")
		if !fault.Is(err, fault.DiskFull) {
			t.Errorf("%v: got %v", full, err)
		}
	}
	if err := Failed(fs.ErrPermission, "cannot be written"); !fault.Is(err, fault.Internal) {
		t.Errorf("got %v", err)
	}
}
