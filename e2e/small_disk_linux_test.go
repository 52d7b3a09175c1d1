package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is a tmpfs of few MiB, mounted for one test.
type smallDisk struct {
	t   testing.TB
	dir string
}

// newSmallDisk mounts one at dir for the time of the test.
func newSmallDisk(t testing.TB, dir string, mib int) *smallDisk {
	t.Helper()
	d := mountSmallDisk(t, dir, mib)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return d
}

// mountSmallDisk is newSmallDisk without the unmounting.
func mountSmallDisk(t testing.TB, dir string, mib int) *smallDisk {
	t.Helper()
	needRoot(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("secbox-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", mib)); err != nil {
		t.Fatalf("mount: %v", err)
	}
	return &smallDisk{t: t, dir: dir}
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves room for no more than this many bytes.
func (d *smallDisk) fill(leave int64) {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, zeros{}); !errors.Is(err, unix.ENOSPC) {
		d.t.Fatalf("filling %s: %v", d.dir, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = f.Truncate(max(0, info.Size()-leave))
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// makeRoom takes the filling away. A process that is just being started may hold it open for a
// moment longer: its room comes back only then.
func (d *smallDisk) makeRoom() {
	d.t.Helper()
	info, err := os.Stat(d.ballast())
	if err == nil {
		err = os.Remove(d.ballast())
	}
	if err != nil {
		d.t.Fatal(err)
	}
	eventually(d.t, "the filling's room is free", func() bool {
		var now unix.Statfs_t
		if err := unix.Statfs(d.dir, &now); err != nil {
			d.t.Fatal(err)
		}
		return int64(now.Bavail)*now.Bsize >= info.Size()/2
	})
	// A file system with a journal hands freed blocks out again only after it has committed their
	// removal.
	dir, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Syncfs(int(dir.Fd())); err != nil {
		d.t.Fatal(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
