package workspace_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"secbox/fault"
	"secbox/workspace"
	"secbox/workspace/tree/treetest"
)

// TestRetentionSparesMounts: what is mounted below artifacts/ and inputs/ stays, the error says so, and what is beside it goes.
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

// TestMountsAreNotPacked: work/ with something mounted below it is not packed, since its files are removed afterwards.
func TestMountsAreNotPacked(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	outside := t.TempDir()
	write(t, outside+"/kept", "kept")
	must(t, os.MkdirAll(f.work+"/a/mounted", 0o755))
	treetest.Bind(t, outside, f.work+"/a/mounted", f.work)
	kept(t, f)
	if read(t, outside+"/kept") != "kept" {
		t.Error("a file of the mount was removed")
	}
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
