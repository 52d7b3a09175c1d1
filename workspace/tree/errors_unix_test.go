//go:build unix

package tree

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"secbox/fault"
)

// TestFailed: errors that an operator can mend say how.
func TestFailed(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]struct {
		code fault.Code
		says string
	}{
		syscall.ENOSPC:   {fault.DiskFull, "free some space"},
		syscall.EXDEV:    {fault.ProjectDamaged, "x cannot be written: something is mounted below the directory of the project; unmount it"},
		syscall.EROFS:    {fault.Internal, "x cannot be written: the workspace's file system is read-only"},
		fs.ErrPermission: {fault.Internal, "x cannot be written"},
	} {
		err := Failed(&fs.PathError{Op: "write", Path: "secret", Err: cause}, "%s cannot be written", "x")
		if message := fault.From(err).Message; !fault.Is(err, want.code) || !strings.Contains(message, want.says) || strings.Contains(message, "secret") {
			t.Errorf("%v: %v", cause, err)
		}
	}
}
