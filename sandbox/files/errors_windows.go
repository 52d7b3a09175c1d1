package files

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// openSafely is empty: Windows has no FIFOs in directories.
const openSafely = 0

func isIrregular(err error) bool { return errors.Is(err, syscall.EISDIR) }

func isNotDir(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, windows.ERROR_DIRECTORY) || errors.Is(err, windows.ERROR_PATH_NOT_FOUND)
}

// isReadOnly reports a file that another program has open, or a write-protected disk.
func isReadOnly(err error) bool {
	return errors.Is(err, windows.ERROR_SHARING_VIOLATION) || errors.Is(err, windows.ERROR_WRITE_PROTECT)
}

func isNoPath(err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_NAME) || errors.Is(err, windows.ERROR_FILENAME_EXCED_RANGE) ||
		errors.Is(err, windows.ERROR_CANT_RESOLVE_FILENAME) || errors.Is(err, syscall.ELOOP)
}
