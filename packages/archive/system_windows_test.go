package archive

import "golang.org/x/sys/windows"

// Windows knows only files that may be written.
const (
	folder, executable, plain = 0o777, 0o777, 0o666
	star                      = ""
)

var fullDisk = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL}
