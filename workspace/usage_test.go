//go:build unix

package workspace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/workspace/tree"
	"secbox/workspace/tree/treetest"

	"golang.org/x/sys/unix"
)

func TestGrowth(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	empty, err := f.project.Growth(deadline(t), execID)
	must(t, err)
	if empty.Entries != 0 || empty.Bytes != 0 || empty.Cut != tree.CutNone {
		t.Errorf("got %+v", empty)
	}
	write(t, f.dir+"/work/a/b/c", strings.Repeat("x", 100_000))
	write(t, f.left+"/d", strings.Repeat("x", 100_000))
	sparse(t, f.dir+"/work/sparse", 10<<30)
	for i := range 20 {
		must(t, os.Link(f.left+"/d", fmt.Sprintf("%s/link%d", f.left, i)))
	}
	must(t, os.Symlink("/", f.dir+"/work/root"))
	must(t, os.Symlink("loop", f.dir+"/work/loop"))
	must(t, unix.Mkfifo(f.dir+"/work/fifo", 0o644))
	write(t, f.dir+"/inputs/i", strings.Repeat("x", 1_000_000))
	must(t, f.project.NewArtifacts("another"))
	write(t, f.dir+"/artifacts/another/x", strings.Repeat("x", 1_000_000))

	u, err := f.project.Growth(deadline(t), execID)
	must(t, err)
	if u.Entries != 28 || u.Cut != tree.CutNone {
		t.Errorf("got %+v", u)
	}
	if u.Bytes < 200_000 || u.Bytes > 400_000 {
		t.Errorf("%d bytes: the sparse file, the links or another exec's files are counted, or ours are not", u.Bytes)
	}
	must(t, os.RemoveAll(f.left))
	u, err = f.project.Growth(deadline(t), execID)
	must(t, err)
	if u.Entries != 7 {
		t.Errorf("without artifacts: %+v", u)
	}
}

func TestGrowthIsCutByItsBudgets(t *testing.T) {
	t.Parallel()
	f := setUpIn(t, inMemory(t))
	nest(t, filepath.Join(f.dir, "work"), 5_000)
	u, err := f.project.Growth(deadline(t), execID)
	must(t, err)
	if u.Cut != tree.CutDepth || u.Entries < 100 {
		t.Errorf("got %+v", u)
	}
	u, err = f.project.Growth(&treetest.EndsAfter{Context: context.Background(), Looks: 10}, execID)
	must(t, err)
	if u.Cut != tree.CutTime || u.Entries == 0 {
		t.Errorf("got %+v", u)
	}
	root, err := os.OpenRoot(f.dir)
	must(t, err)
	defer root.Close()
	_, err = tree.RemoveTree(deadline(t), root, "work")
	must(t, err)
}

func TestGrowthStopsCounting(t *testing.T) {
	t.Parallel()
	f := setUpIn(t, inMemory(t))
	for i := range 3 {
		dir := fmt.Sprintf("%s/work/%d", f.dir, i)
		must(t, os.Mkdir(dir, 0o755))
		fill(t, dir, 4_000)
	}
	u, err := f.project.GrowthOf(deadline(t), execID, 9_000)
	must(t, err)
	if u.Cut != tree.CutEntries || u.Entries < 9_000 || u.Entries > 9_000+1_024 {
		t.Errorf("got %+v", u)
	}
}

// TestGrowthOfRenamedDirectory: the usage of a tree with a directory that is renamed all the time
// is reported as incomplete.
func TestGrowthOfRenamedDirectory(t *testing.T) {
	t.Parallel()
	f := setUpIn(t, inMemory(t))
	dir := f.dir + "/work/"
	must(t, os.Mkdir(dir+"0", 0o755))
	ctx, stop := context.WithCancel(deadline(t))
	renamed := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			if err := os.Rename(fmt.Sprint(dir, n), fmt.Sprint(dir, n+1)); err != nil || ctx.Err() != nil {
				renamed <- err
				return
			}
		}
	}()
	for cut := tree.CutNone; cut != tree.CutUnreadable; {
		u, err := f.project.Growth(ctx, execID)
		must(t, err)
		if cut = u.Cut; cut == tree.CutTime {
			t.Fatal("no look missed the directory")
		}
	}
	stop()
	must(t, <-renamed)
}
