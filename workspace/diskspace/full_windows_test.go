package diskspace

import "golang.org/x/sys/windows"

var fullDisk = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL}
