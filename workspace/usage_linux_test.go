package workspace_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestGrowthWhileTheTreeIsChanged: a directory is swapped for links out, links up and FIFOs as fast
// as possible. The walk never counts anything outside, never hangs, and never fails.
func TestGrowthWhileTheTreeIsChanged(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	base := filepath.Dir(f.root)
	big := filepath.Join(base, "big")
	must(t, os.Mkdir(big, 0o755))
	fill(t, big, 3_000)
	work := filepath.Join(f.dir, "work")
	write(t, work+"/d/a/b", "b")
	must(t, os.Symlink(big, work+"/out"))
	must(t, os.Symlink("../..", work+"/up"))
	must(t, unix.Mkfifo(work+"/fifo", 0o644))

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Microsecond): // else the swapper has a core to itself
			}
			other := []string{"/out", "/fifo", "/up"}[i%3]
			_ = unix.Renameat2(unix.AT_FDCWD, work+"/d", unix.AT_FDCWD, work+other, unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, work+"/d", unix.AT_FDCWD, work+other, unix.RENAME_EXCHANGE)
		}
	}()
	for range 2_000 {
		u, err := f.project.Growth(deadline(t), execID)
		if err != nil || u.Entries > 12 {
			t.Errorf("got %+v, %v", u, err)
			break
		}
	}
	close(stop)
	<-stopped
}
