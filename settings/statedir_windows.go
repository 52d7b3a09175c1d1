package settings

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/windows"
)

// networkFS names the kind of drive that dir is on when it is not local, else "".
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
