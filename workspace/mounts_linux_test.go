package workspace_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/workspace"
	"secbox/workspace/tree/treetest"
)

// TestRetentionSparesMounts: what is mounted below artifacts/ and inputs/ stays, the error says so,
// and what is beside it goes.
func TestRetentionSparesMounts(t *testing.T) {
	t.Parallel()
	f, outside := setUp(t), t.TempDir()
	write(t, outside+"/kept", "kept")
	must(t, os.Chtimes(outside+"/kept", time.Unix(1, 0), time.Unix(1, 0)))
	inputs := filepath.Join(f.dir, "inputs")
	for _, name := range []string{"a", "data/of", "z"} {
		write(t, filepath.Join(inputs, name), "old")
		must(t, os.Chtimes(filepath.Join(inputs, name), time.Unix(1, 0), time.Unix(1, 0)))
	}
	must(t, os.Mkdir(inputs+"/data/mounted", 0o755))
	must(t, os.Mkdir(f.left+"/mounted", 0o755))
	treetest.Bind(t, outside, inputs+"/data/mounted", f.dir)
	unmount := treetest.Bind(t, outside, f.left+"/mounted", f.dir)
	for what, remove := range map[string]func(context.Context) error{
		"artifacts": func(ctx context.Context) error { return f.RemoveArtifacts(ctx, "demo", execID) },
		"inputs": func(ctx context.Context) error {
			bytes, err := f.RemoveUnused(ctx, "demo", time.Now(), false)
			if bytes != 9 {
				t.Errorf("%d bytes were removed", bytes)
			}
			return err
		},
	} {
		if err := remove(deadline(t)); !fault.Is(err, fault.ProjectDamaged) || !strings.Contains(fault.From(err).Message, "unmount it") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"a", "data/of", "z"} {
		gone(t, filepath.Join(inputs, name))
	}
	if read(t, outside+"/kept") != "kept" {
		t.Error("a file of the mount was removed")
	}
	unmount()
	must(t, f.RemoveArtifacts(deadline(t), "demo", execID))
	gone(t, f.left)
}

// TestMountsAreNotRemovedWithWorkspaces: a workspace is not removed where something is mounted, nor
// is anything in it.
func TestMountsAreNotRemovedWithWorkspaces(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	outside := t.TempDir()
	write(t, outside+"/kept", "kept")
	must(t, os.MkdirAll(f.work+"/a/mounted", 0o755))
	treetest.Bind(t, outside, f.work+"/a/mounted", f.work)
	f.later(3 * day)
	records := 0
	commit := func(int64) (bool, error) { records++; return true, nil }
	for range 2 { // the second time, only the rest is there
		if _, _, err := f.RemoveWorkspace(deadline(t), idleID, f.now().Add(-day), commit); !fault.Is(err, fault.ProjectDamaged) ||
			!strings.Contains(fault.From(err).Message, `mounted at ".idle/gone-`) || !strings.Contains(fault.From(err).Message, "unmount it") {
			t.Error(err)
		}
	}
	moved, err := filepath.Glob(f.dir + "/.idle/gone-*/a/mounted")
	must(t, err)
	for _, path := range moved {
		must(t, unix.Unmount(path, unix.MNT_DETACH))
	}
	if len(moved) != 1 || read(t, outside+"/kept") != "kept" {
		t.Error("a file of the mount was removed")
	}
	if _, found, err := f.RemoveWorkspace(deadline(t), idleID, f.now().Add(-day), commit); err != nil || found || records != 1 {
		t.Errorf("the rest: %v, %v, on record %d times", found, err, records)
	}
	if rest, err := filepath.Glob(f.dir + "/.idle/gone-*"); err != nil || len(rest) != 0 {
		t.Errorf("%v, %v", rest, err)
	}
}

// TestMountedWorkspacesStay: where work/ itself, the home or inputs are mounted, nothing is
// removed or on record.
func TestMountedWorkspacesStay(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"work", ".home", "inputs"} {
		f := setUpIdle(t)
		write(t, f.work+"/file", "kept")
		must(t, os.MkdirAll(f.dir+"/"+name, 0o755))
		treetest.Bind(t, f.dir+"/"+name, f.dir+"/"+name, f.dir)
		f.later(3 * day)
		_, found, err := f.RemoveWorkspace(deadline(t), idleID, f.now().Add(-day), func(int64) (bool, error) { t.Error("on record"); return true, nil })
		if !fault.Is(err, fault.ProjectDamaged) || found || read(t, f.work+"/file") != "kept" {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

// TestNoRoomToUnpack: on a full disk a packed workspace stays packed until there is room.
func TestNoRoomToUnpack(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	must(t, unix.Mount("secbox-test", root, "tmpfs", 0, "size=1m,mode=0755"))
	t.Cleanup(func() { must(t, unix.Unmount(root, unix.MNT_DETACH)) })
	f := setUpIdleIn(t, root)
	f.packed()
	ballast, err := os.Create(root + "/ballast")
	must(t, err)
	if _, err := ballast.Write(make([]byte, 2<<20)); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	must(t, ballast.Close())
	if err := f.existing().Unpack(t.Context()); !fault.Is(err, fault.DiskFull) {
		t.Errorf("got %v, want %s", err, fault.DiskFull)
	}
	must(t, os.Remove(ballast.Name()))
	f.project()
	must(t, f.existing().Unpack(t.Context()))
	f.isUnpacked()
}

// TestMountsAreNotCollected: artifacts on another mount are not the exec's.
func TestMountsAreNotCollected(t *testing.T) {
	t.Parallel()
	f, outside := setUp(t), t.TempDir()
	write(t, outside+"/kept", "kept")
	must(t, os.Mkdir(f.left+"/mounted", 0o755))
	treetest.Bind(t, outside, f.left+"/mounted", f.dir)
	if _, err := f.project.Collect(deadline(t), execID, 1<<20, workspace.FullAccess); !fault.Is(err, fault.ProjectDamaged) {
		t.Error(err)
	}
}
