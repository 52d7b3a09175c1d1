package tree_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"secbox/fault"
	"secbox/workspace/tree"
	"secbox/workspace/tree/treetest"
)

// TestRemovalSparesMounts: what is mounted below a tree, at any depth and even from the same file
// system, stays.
func TestRemovalSparesMounts(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"x", "x/a", "x/a/b", "x/a/b/c/d/e"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			outside := dir + "/outside"
			write(t, outside+"/kept", "kept")
			write(t, outside+"/below/kept", "kept")
			must(t, os.Chmod(outside, 0o511))
			must(t, os.MkdirAll(dir+"/"+at, 0o755))
			unmount := treetest.Bind(t, outside, dir+"/"+at, dir)
			root, err := os.OpenRoot(dir)
			must(t, err)
			defer root.Close()

			_, err = tree.RemoveTree(deadline(t), root, "x")
			mount, is := errors.AsType[*tree.MountedError](err)
			if !is || !errors.Is(err, syscall.EXDEV) {
				t.Fatal(err)
			}
			if read(t, dir+"/"+mount.Path+"/kept") != "kept" || read(t, outside+"/below/kept") != "kept" {
				t.Error("files of the mount were removed")
			}
			if failed := fault.From(tree.Failed(err, "x")); failed.Code != fault.ProjectDamaged || !strings.Contains(failed.Message, mount.Path) {
				t.Error(failed)
			}
			if fi, err := os.Stat(outside); err != nil || fi.Mode().Perm() != 0o511 {
				t.Errorf("%v, %v", fi.Mode(), err)
			}
			unmount()
			_, err = tree.RemoveTree(deadline(t), root, "x")
			must(t, err)
			gone(t, dir+"/x")
		})
	}
}

// TestRemovalSparesMountedFiles: a file on which another one is mounted stays, and so does the
// other one.
func TestRemovalSparesMountedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/outside", "kept")
	write(t, dir+"/x/file", "")
	unmount := treetest.Bind(t, dir+"/outside", dir+"/x/file", dir)
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	_, err = tree.RemoveTree(deadline(t), root, "x")
	if mount, is := errors.AsType[*tree.MountedError](err); !is || mount.Path != "x/file" {
		t.Error(err)
	}
	unmount()
	if read(t, dir+"/outside") != "kept" {
		t.Error("the file was changed")
	}
}
