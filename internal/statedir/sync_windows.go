package statedir

import (
	"os"

	"golang.org/x/sys/windows"
)

// openFile opens a file to read it, so that meanwhile WriteNew of another process may remove the
// other name of the file: os.Open refuses that.
func openFile(path string) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	h, err := windows.CreateFile(name, windows.GENERIC_READ, share, nil, windows.OPEN_EXISTING, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// SyncDir does nothing: NTFS keeps the names in a directory in its journal.
func SyncDir(string) error { return nil }
