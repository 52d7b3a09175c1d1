package library_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/packages/library"
)

// setUpOnSmallDisk is setUp with the workspace on its own disk of a few MiB. The database is
// elsewhere, so that only files run out of space.
func setUpOnSmallDisk(t *testing.T, mib int) (f *fixture, disk string) {
	t.Helper()
	base := t.TempDir()
	disk = filepath.Join(base, "ws")
	must(t, os.Mkdir(disk, 0o755))
	if err := unix.Mount("secbox-test", disk, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", mib)); err != nil {
		t.Fatalf("mounting a disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return setUpIn(t, base, ""), disk
}

// fill leaves room for no more than so many bytes.
func fill(t *testing.T, disk string, leave int64) (makeRoom func()) {
	t.Helper()
	ballast := filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	must(t, err)
	defer f.Close()
	if _, err := io.Copy(f, zeros{}); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	info, err := f.Stat()
	must(t, err)
	must(t, f.Truncate(max(0, info.Size()-leave)))
	return func() { must(t, os.Remove(ballast)) }
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestDiskFull fills the disk at several points of every change: afterwards all is as before,
// without leftovers, the error says so, and once there is space the same change succeeds.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	skill := func(mark string) tree {
		files := tree{"SKILL.md": "# " + mark + "\n"}
		for n := range 30 {
			files[fmt.Sprintf("d%d/f%d", n%3, n)] = strings.Repeat(mark, 20_000/len(mark))
		}
		return files
	}
	const id = "big"
	before, after := skill("before"), skill("after")
	edited := maps.Clone(before)
	edited["d0/f0"] = strings.Repeat("edited", 70_000)
	// merged is the result of a sync of before, with d0/f0 edited, and after.
	merged := maps.Clone(after)
	merged["d0/f0"] = edited["d0/f0"]
	for name, tc := range map[string]struct {
		prepare func(f *fixture)
		change  func(f *fixture) error
		was, is tree // alice's
	}{
		"upload": {
			func(f *fixture) { f.upload(alice, library.Overlay, id, before) },
			func(f *fixture) error { _, err := f.tryUpload(alice, library.Overlay, id, after); return err }, before, after,
		},
		"upload over a copy": {
			func(f *fixture) {
				f.upload(alice, library.Overlay, id, before)
				must(f.t, f.Materialise(f.t.Context(), alice, id))
			},
			func(f *fixture) error { _, err := f.tryUpload(alice, library.Overlay, id, after); return err }, before, after,
		},
		"edit": {
			func(f *fixture) {
				f.upload(alice, library.Baseline, id, before)
				must(f.t, f.Materialise(f.t.Context(), alice, id))
			},
			func(f *fixture) error {
				return f.Edit(f.t.Context(), alice, id, "d0/f0", []byte(edited["d0/f0"]), nil)
			}, before, edited,
		},
		"edit that materialises": {
			func(f *fixture) { f.upload(alice, library.Baseline, id, before); f.list(alice) },
			func(f *fixture) error {
				return f.Edit(f.t.Context(), alice, id, "d0/f0", []byte(edited["d0/f0"]), nil)
			}, before, edited,
		},
		"materialise": {
			func(f *fixture) { f.upload(alice, library.Baseline, id, before); f.list(alice) },
			func(f *fixture) error {
				err := f.Materialise(f.t.Context(), alice, id)
				if (err == nil) != f.exists(f.copyDir(alice, id)) {
					f.t.Errorf("a copy is there: %v, and the error %v", err != nil, err)
				}
				return err
			}, before, before,
		},
		"promote": {
			func(f *fixture) {
				f.upload(alice, library.Baseline, id, before)
				f.edit(alice, id, "d0/f0", edited["d0/f0"])
			},
			func(f *fixture) error {
				_, err := f.Promote(f.t.Context(), alice, id, false)
				if (err == nil) != (f.status(alice, id) == library.Unchanged) {
					f.t.Errorf("alice's is %s, and the error %v", f.status(alice, id), err)
				}
				return err
			}, edited, edited,
		},
		"sync": {
			func(f *fixture) {
				f.upload(alice, library.Baseline, id, before)
				f.edit(alice, id, "d0/f0", edited["d0/f0"])
				f.upload(bob, library.Baseline, id, after)
			},
			func(f *fixture) error { _, err := f.Sync(f.t.Context(), alice, id, false); return err }, edited, merged,
		},
		"download": {
			func(f *fixture) {
				f.upload(alice, library.Baseline, id, before)
				f.edit(alice, id, "d0/f0", edited["d0/f0"])
			},
			func(f *fixture) error {
				var b bytes.Buffer
				err := f.Download(f.t.Context(), alice, id, &b)
				if (err == nil) != (b.Len() > 0) {
					f.t.Errorf("%d bytes, and the error %v", b.Len(), err)
				}
				return err
			}, edited, edited,
		},
	} {
		for _, leave := range []int64{0, 12 << 10, 100 << 10, 300 << 10} {
			t.Run(fmt.Sprintf("%s with %d KiB left", name, leave>>10), func(t *testing.T) {
				t.Parallel()
				f, disk := setUpOnSmallDisk(t, 8)
				tc.prepare(f)
				makeRoom := fill(t, disk, leave)
				wantFault(t, tc.change(f), fault.DiskFull, "")
				if got := f.everything(alice, id); !maps.Equal(got, tc.was) {
					t.Errorf("it is not as before: %d files", len(got))
				}
				f.nothingStaged()
				makeRoom()
				must(t, tc.change(f))
				if got := f.everything(alice, id); !maps.Equal(got, tc.is) {
					t.Errorf("it did not work with room: %d files", len(got))
				}
				f.nothingStaged()
			})
		}
	}
}

// noise is content that packs badly.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}

// filling is an archive that calls a function once while it is read.
type filling struct {
	*bytes.Reader
	reads, at int
	happens   func()
}

func (f *filling) ReadAt(p []byte, off int64) (int, error) {
	if f.reads++; f.reads == f.at {
		f.happens()
	}
	return f.Reader.ReadAt(p, off)
}

// TestDiskFullDuringUpload takes the free space away after the upload has begun.
func TestDiskFullDuringUpload(t *testing.T) {
	t.Parallel()
	files := tree{"SKILL.md": "# Big\n"}
	for n := range 20 {
		files[fmt.Sprintf("d/f%d", n)] = noise(70_000)
	}
	zip := packed(t, "big", files)
	for _, at := range []int{6, 12, 18} { // the table of contents takes the first few
		f, disk := setUpOnSmallDisk(t, 4)
		f.upload(alice, library.Overlay, "big", tree{"SKILL.md": "# Before\n"})
		var makeRoom func()
		r := &filling{Reader: bytes.NewReader(zip), at: at, happens: func() { makeRoom = fill(t, disk, 0) }}
		_, err := f.Upload(t.Context(), alice, library.Overlay, "x.zip", r, int64(len(zip)))
		wantFault(t, err, fault.DiskFull, "")
		if makeRoom == nil {
			t.Fatalf("the archive was read in %d turns", r.reads)
		}
		if got := f.everything(alice, "big"); !maps.Equal(got, tree{"SKILL.md": "# Before\n"}) {
			t.Errorf("it is not as before: %d files", len(got))
		}
		f.nothingStaged()
		makeRoom()
		_, err = f.Upload(t.Context(), alice, library.Overlay, "x.zip", bytes.NewReader(zip), int64(len(zip)))
		must(t, err)
		f.nothingStaged()
	}
}

// TestUploadWithoutSpace is refused before a byte of it is written, also when only the room that is
// kept for others would hold it.
func TestUploadWithoutSpace(t *testing.T) {
	t.Parallel()
	f, _ := setUpOnSmallDisk(t, 4)
	_, err := f.tryUpload(alice, library.Overlay, "big", tree{"SKILL.md": "# Big\n", "data": noise(5 << 20)})
	wantFault(t, err, fault.DiskFull, "free some space")
	f.FreeMinBytes = 3 << 20
	_, err = f.tryUpload(alice, library.Overlay, "small", tree{"SKILL.md": "# Small\n", "data": noise(1 << 20)})
	wantFault(t, err, fault.DiskFull, "3145728 stay reserved")
	if f.exists(filepath.Join(f.root, "agents", alice.AgentID)) {
		t.Error("the agent has a directory")
	}
	f.FreeMinBytes = 0
	f.upload(alice, library.Overlay, "small", tree{"SKILL.md": "# Small\n"})
}
