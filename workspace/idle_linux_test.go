package workspace_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/fault"
)

func TestAttributesAreNotLost(t *testing.T) {
	t.Parallel()
	for _, dir := range []bool{false, true} {
		f := setUpIdle(t)
		path := filepath.Join(f.work, "notes.txt")
		write(t, path, "mine")
		if dir {
			path = f.work
		}
		must(t, unix.Setxattr(path, "user.mine", []byte("x"), 0))
		kept(t, f)
	}
}

// TestNoRoomToPack: a full disk leaves the workspace as it is, and a packed one stays packed until there is room.
func TestNoRoomToPack(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("only root can mount a small disk")
		return
	}
	root := t.TempDir()
	must(t, unix.Mount("secbox-test", root, "tmpfs", 0, "size=16m,mode=0755"))
	t.Cleanup(func() { must(t, unix.Unmount(root, unix.MNT_DETACH)) })
	f := setUpIdleIn(t, root)
	ballast := filepath.Join(root, "ballast")
	fillUp := func() {
		b, err := os.Create(ballast)
		must(t, err)
		if _, err := io.Copy(b, endless{}); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		must(t, b.Close())
	}
	noise := make([]byte, 3<<20) // as large when it is packed
	for i := range noise {
		noise[i] = byte(rand.IntN(256))
	}
	write(t, filepath.Join(f.work, "noise"), string(noise))
	before := snapshotOf(t, f.work)
	fillUp()
	kept(t, f)
	sameTree(t, before, snapshotOf(t, f.work))
	must(t, f.restore()) // which it is already: a full disk is not a reason not to read
	must(t, os.Remove(ballast))
	f.pack()
	fillUp()
	if err := f.restore(); !fault.Is(err, fault.DiskFull) {
		t.Errorf("got %v, want %s", err, fault.DiskFull)
	}
	f.isPacked(true)
	f.tidy("pack.tar.zst")
	must(t, os.Remove(ballast))
	must(t, f.restore())
	sameTree(t, before, snapshotOf(t, f.work))
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
