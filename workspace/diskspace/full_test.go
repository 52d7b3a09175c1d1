package diskspace

import (
	"errors"
	"io/fs"
	"testing"
)

func TestIsFull(t *testing.T) {
	t.Parallel()
	for _, full := range fullDisk {
		if !IsFull(errors.Join(errors.New("close"), &fs.PathError{Op: "write", Path: "x", Err: full})) {
			t.Error(full)
		}
	}
	if IsFull(fs.ErrPermission) {
		t.Error("a permission error is no full disk")
	}
}
