package workspace_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"secbox/workspace"
)

// TestMountSetWithReusedInode: no process holds the directory, as while a container is only being
// started, and many file systems give its number to the next one that is made.
func TestMountSetWithReusedInode(t *testing.T) {
	t.Parallel()
	for _, sub := range []string{"inputs", "work", "artifacts/" + waitingID} {
		t.Run(filepath.Base(sub), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			place, err := f.project.PrepareMounts(waitingID, workspace.FullAccess)
			must(t, err)
			dir := filepath.Join(f.dir, sub)
			number := func() uint64 {
				fi, err := os.Lstat(dir)
				must(t, err)
				return fi.Sys().(*syscall.Stat_t).Ino
			}
			was, same := number(), 0
			for range 20 {
				must(t, os.Remove(dir))
				must(t, os.Mkdir(dir, 0o755))
				if number() == was {
					same++
				}
				if place.Intact() {
					t.Error("a directory was made again, and it is taken for the first one")
				}
				if _, err := place.Open(); err == nil {
					t.Error("a directory was made again, and it is opened like the first one")
				}
			}
			t.Logf("%d of 20 had the same number", same)
		})
	}
}
