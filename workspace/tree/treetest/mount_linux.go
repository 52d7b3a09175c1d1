package treetest

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Bind mounts a file or directory at another one, which exists, until unmount is called or the test
// ends; the mount may have been moved by renames within dir. It needs root, as CI has it.
func Bind(t *testing.T, from, at, dir string) (unmount func()) {
	t.Helper()
	Must(t, unix.Mount(from, at, "", unix.MS_BIND, ""))
	unmount = func() {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		Must(t, err)
		for line := range strings.Lines(string(mounts)) {
			if path := strings.Fields(line)[4]; strings.HasPrefix(path, dir+"/") {
				Must(t, unix.Unmount(path, unix.MNT_DETACH))
			}
		}
	}
	t.Cleanup(unmount)
	return unmount
}
