package tree

import (
	"fmt"
	"os"
	"syscall"
)

// MountedError reports that something is mounted below a tree that must be on one mount. It is
// syscall.EXDEV.
type MountedError struct{ Path string } // below the tree, as far as it is known

func (e *MountedError) Error() string {
	return fmt.Sprintf("something is mounted at %q", CutName(e.Path, maxShown))
}

// Unwrap returns syscall.EXDEV.
func (*MountedError) Unwrap() error { return syscall.EXDEV }

// CheckMount returns a MountedError if something is mounted at the directory name (one component)
// of dir.
func CheckMount(dir *os.Root, name string) error {
	other, err := otherMount(dir, name)
	if err == nil && other {
		err = &MountedError{name}
	}
	return err
}
