package settings

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// networkFS says what is wrong with the drive that dir is on, "" when it is a local one.
func networkFS(dir string) (string, error) {
	volume := filepath.VolumeName(dir)
	if strings.HasPrefix(volume, `\\`) {
		return "a network path", nil
	}
	root, err := windows.UTF16PtrFromString(volume + `\`)
	if err != nil {
		return "", err
	}
	if windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return "a network drive", nil
	}
	return "", nil
}
