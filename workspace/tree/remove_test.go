//go:build unix

package tree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"secbox/workspace/tree"
	"secbox/workspace/tree/treetest"

	"golang.org/x/sys/unix"
)

func TestRemoveTree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(t *testing.T, dir, outside string)
		want int64
	}{
		"nothing": {func(*testing.T, string, string) {}, 0},
		"file":    {func(t *testing.T, dir, _ string) { write(t, dir+"/x", "x") }, 1},
		"link":    {func(t *testing.T, dir, outside string) { must(t, os.Symlink(outside, dir+"/x")) }, 1},
		"fifo":    {func(t *testing.T, dir, _ string) { must(t, unix.Mkfifo(dir+"/x", 0o644)) }, 1},
		"empty":   {func(t *testing.T, dir, _ string) { must(t, os.Mkdir(dir+"/x", 0)) }, 1},
		"links in a tree": {func(t *testing.T, dir, outside string) {
			write(t, dir+"/x/y/z", "z")
			must(t, os.Symlink(outside, dir+"/x/l"))
			must(t, os.Symlink(outside, dir+"/x/y/l"))
			must(t, os.Symlink("..", dir+"/x/y/up"))
			must(t, os.Symlink(".", dir+"/x/self"))
		}, 7},
		"names that we would choose": {func(t *testing.T, dir, _ string) {
			for i := range 5 {
				write(t, fmt.Sprintf("%s/x/.hoist-%d/a/b", dir, i), "b")
				write(t, fmt.Sprintf("%s/x/a/.hoist-%d/c/d", dir, i), "d")
			}
			write(t, dir+"/x/.hoist-6", "a file")
		}, 33},
		"20,000 deep": {func(t *testing.T, dir, _ string) {
			must(t, os.Mkdir(dir+"/x", 0o755))
			nest(t, dir+"/x", 20_000)
		}, 20_002},
		"20,000 wide": {func(t *testing.T, dir, _ string) {
			must(t, os.Mkdir(dir+"/x", 0o755))
			fill(t, dir+"/x", 20_000)
		}, 20_001},
		"a comb": {func(t *testing.T, dir, _ string) {
			for i := range 100 {
				must(t, os.MkdirAll(fmt.Sprintf("%s/x/%03d", dir, i), 0o755))
				nest(t, fmt.Sprintf("%s/x/%03d", dir, i), 100)
			}
		}, 1 + 100 + 100*101},
		"wide below wide": {func(t *testing.T, dir, _ string) {
			must(t, os.MkdirAll(dir+"/x/y", 0o755))
			for i := range 5_000 { // more than are remembered at once
				must(t, os.MkdirAll(fmt.Sprintf("%s/x/y/%04d/z", dir, i), 0o755))
			}
		}, 10_002},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, outside := inMemory(t), t.TempDir()
			write(t, outside+"/secret", "secret")
			write(t, dir+"/beside", "beside")
			c.make(t, dir, outside)
			root, err := os.OpenRoot(dir)
			must(t, err)
			defer root.Close()
			removed, err := tree.RemoveTree(deadline(t), root, "x")
			must(t, err)
			if removed != c.want {
				t.Errorf("%d entries were removed, not %d", removed, c.want)
			}
			gone(t, dir+"/x")
			if count(t, dir) != 1 || read(t, outside+"/secret") != "secret" {
				t.Error("something else was removed, or something stayed")
			}
		})
	}
}

// TestRemoveTreeTimeout: after the timeout, the rest still has the tree's name.
func TestRemoveTreeTimeout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 50 {
		write(t, fmt.Sprintf("%s/x/%d/a/b/c", dir, i), "c")
	}
	before := count(t, dir)
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	ctx := &treetest.EndsAfter{Context: context.Background(), Looks: 60}
	removed, err := tree.RemoveTree(ctx, root, "x")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	after := count(t, dir)
	if int64(before-after) != removed || removed == 0 || after == 0 {
		t.Errorf("%d entries became %d, and %d are said to be gone", before, after, removed)
	}
	if _, err := os.Lstat(filepath.Join(dir, "x")); err != nil {
		t.Error(err)
	}
	_, err = tree.RemoveTree(deadline(t), root, "x")
	must(t, err)
	gone(t, dir+"/x")
}
