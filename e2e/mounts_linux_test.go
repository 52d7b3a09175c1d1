package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/engine/attach"
)

// mountsDir has the directories of nodes where the mounts of waiting containers are.
const mountsDir = "/run/secbox"

// mountsOf lists this machine's mounts of a node's waiting containers, and its directory there.
func mountsOf(node string) (left []string) {
	base := filepath.Join(mountsDir, node)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+base+"/") || strings.Contains(line, " "+base+" ") {
			left = append(left, line)
		}
	}
	for _, path := range []string{base, base + ".lock"} {
		// Below a directory of root's, a user cannot look and has made nothing.
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
			left = append(left, path)
		}
	}
	return left
}

// removeMounts removes the mounts of a node that was killed, as the next start on this machine
// does.
func removeMounts(t testing.TB, node string) {
	t.Helper()
	if len(mountsOf(node)) == 0 {
		return
	}
	base, err := attach.Open(mountsDir, node)
	if err == nil {
		err = base.Close()
	}
	if err != nil {
		t.Error(err)
	}
}
