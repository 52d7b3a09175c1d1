//go:build unix

package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"secbox/fault"
	"secbox/workspace"
)

const waitingID = "01890000-0000-7000-8000-0000000000aa"

// TestMountSetIntact removes, replaces and exchanges each directory of a waiting mount set.
func TestMountSetIntact(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string)
		intact bool
	}{
		"nothing":                  {func(*testing.T, string) {}, true},
		"a file in work":           {func(t *testing.T, dir string) { must(t, os.WriteFile(dir+"/work/x", nil, 0o644)) }, true},
		"another exec's artifacts": {func(t *testing.T, dir string) { must(t, os.Mkdir(dir+"/artifacts/other", 0o755)) }, true},
		"work made again":          {again("work"), false},
		"inputs made again":        {again("inputs"), false},
		"artifacts made again":     {again("artifacts"), false},
		"its own made again":       {again("artifacts/" + waitingID), false},
		"the project made again":   {again(""), false},
		"inputs and work exchanged": {func(t *testing.T, dir string) {
			must(t, os.Rename(dir+"/work", dir+"/elsewhere"))
			must(t, os.Rename(dir+"/inputs", dir+"/work"))
			must(t, os.Rename(dir+"/elsewhere", dir+"/inputs"))
		}, false},
		"its own exchanged with another exec's": {func(t *testing.T, dir string) {
			must(t, os.Rename(dir+"/artifacts/"+waitingID, dir+"/artifacts/elsewhere"))
			must(t, os.Rename(dir+"/artifacts/"+execID, dir+"/artifacts/"+waitingID))
		}, false},
		"a file in the place of work": {func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/work"))
			must(t, os.WriteFile(dir+"/work", nil, 0o644))
		}, false},
		"a link out of the project": {func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/work"))
			must(t, os.Symlink(filepath.Join(dir, "../../../outside"), dir+"/work"))
		}, false},
		"work removed":    {func(t *testing.T, dir string) { must(t, os.RemoveAll(dir+"/work")) }, false},
		"its own removed": {func(t *testing.T, dir string) { must(t, os.Remove(dir+"/artifacts/"+waitingID)) }, false},
		"work behind a link": {func(t *testing.T, dir string) {
			must(t, os.Rename(dir+"/work", dir+"/elsewhere"))
			must(t, os.Symlink("elsewhere", dir+"/work"))
		}, false},
		"the project behind a link": {func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+"-elsewhere"))
			must(t, os.Symlink(filepath.Base(dir)+"-elsewhere", dir))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			place, err := f.project.PrepareMounts(waitingID, workspace.FullAccess)
			must(t, err)
			if !place.Intact() || len(place.Mounts) != 3 {
				t.Fatalf("at once: intact %v, mounts %v", place.Intact(), place.Mounts)
			}
			// A mounted directory keeps its inode number.
			for _, sub := range []string{"", "inputs", "work", "artifacts", "artifacts/" + waitingID} {
				held, err := os.Open(filepath.Join(f.dir, sub))
				must(t, err)
				defer held.Close()
			}
			c.change(t, f.dir)
			if place.Intact() != c.intact {
				t.Errorf("intact: %v", !c.intact)
			}
			opens(t, f.dir, place, c.intact)
		})
	}
}

// TestMountSetOpenWhileSwapped opens a mount set while a directory is exchanged for a link and for
// another one, and back: Open returns the prepared directories or an error.
func TestMountSetOpenWhileSwapped(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	place, err := f.project.PrepareMounts(waitingID, workspace.FullAccess)
	must(t, err)
	var want []fs.FileInfo
	for _, sub := range []string{"inputs", "work", "artifacts/" + waitingID} {
		fi, err := os.Lstat(filepath.Join(f.dir, sub))
		must(t, err)
		want = append(want, fi)
	}
	work, inputs, aside := f.dir+"/work", f.dir+"/inputs", f.dir+"/aside"
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			case <-time.After(20 * time.Microsecond): // else the swapper has a core to itself
			}
			err := errors.Join(os.Rename(work, aside), os.Symlink(f.outside, work), os.Remove(work), os.Rename(aside, work),
				os.Rename(work, aside), os.Rename(inputs, work), os.Rename(aside, inputs),
				os.Rename(work, aside), os.Rename(inputs, work), os.Rename(aside, inputs))
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	opened := 0
	for range 3000 {
		open, err := place.Open()
		if err != nil {
			continue
		}
		opened++
		for i, dir := range open {
			if fi, err := dir.Stat(); err != nil || !os.SameFile(fi, want[i]) {
				t.Errorf("another directory for %s: %v", place.Mounts[i].Target, err)
			}
			must(t, dir.Close())
		}
	}
	close(stop)
	must(t, <-stopped)
	t.Logf("opened %d of 3000 times", opened)
}

// opens checks that Open returns exactly the prepared directories, or an error.
func opens(t *testing.T, dir string, place *workspace.MountSet, intact bool) {
	t.Helper()
	open, err := place.Open()
	if !intact {
		if err == nil || fault.CodeOf(err) == "" || len(open) > 0 && !errors.Is(open[0].Close(), fs.ErrClosed) {
			t.Errorf("%d directories opened: %v", len(open), err)
		}
		return
	}
	must(t, err)
	for i, sub := range []string{"inputs", "work", "artifacts/" + waitingID} {
		want, err := os.Lstat(filepath.Join(dir, sub))
		must(t, err)
		if got, err := open[i].Stat(); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s is %s: %v", place.Mounts[i].Target, open[i].Name(), err)
		}
		must(t, open[i].Close())
	}
}

// again removes a directory of the project and makes it again.
func again(sub string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		path := filepath.Join(dir, sub)
		must(t, os.RemoveAll(path))
		must(t, os.MkdirAll(path, 0o755))
		for _, name := range []string{"inputs", "work", "artifacts/" + waitingID} {
			must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		}
	}
}

// TestMountSetIsDroppedOnlyWhileEmpty drops mount sets in all their possible states.
func TestMountSetIsDroppedOnlyWhileEmpty(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	path := filepath.Join(f.dir, "artifacts", waitingID)
	setAside := func() *workspace.MountSet {
		place, err := f.project.PrepareMounts(waitingID, workspace.FullAccess)
		must(t, err)
		return place
	}
	place := setAside()
	must(t, place.Drop())
	gone(t, path)
	must(t, place.Drop()) // there is nothing any more

	place = setAside()
	other := setAside() // of another node
	must(t, place.Drop())
	if _, err := os.Lstat(path); err != nil || place.Intact() || !other.Intact() {
		t.Errorf("another node's directory: %v", err)
	}
	must(t, other.Drop())
	gone(t, path)

	place = setAside()
	must(t, os.WriteFile(path+"/evidence", nil, 0o644))
	must(t, place.Drop())
	if _, err := os.Lstat(path + "/evidence"); err != nil {
		t.Errorf("the new file is gone: %v", err)
	}
	must(t, os.RemoveAll(path))

	place = setAside()
	must(t, os.Remove(path))
	must(t, os.Symlink("../work", path))
	must(t, place.Drop())
	if fi, err := os.Lstat(path); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("a link in its place: %v", err)
	}
	if _, err := os.Lstat(f.dir + "/work"); err != nil {
		t.Error("the link's target was removed")
	}
	must(t, os.Remove(path))

	place = setAside()
	must(t, os.RemoveAll(f.dir))
	must(t, place.Drop())
	gone(t, f.dir) // and it is not made again
	if _, err := f.project.PrepareMounts(waitingID, workspace.FullAccess); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a place in a project that is gone: %v", err)
	}
	gone(t, f.dir)
	wantCode(t, f.project.DropUnused("../work"), fault.UnknownExec)
}

// TestRestoredWorkGetsItsOwnerBack makes work/ again as another user.
func TestRestoredWorkGetsItsOwnerBack(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if owner() < 0 {
		return // only root can give a directory to another user, and only root needs to
	}
	must(t, os.Remove(f.dir+"/work"))
	must(t, os.Mkdir(f.dir+"/work", 0o755))
	must(t, os.Chown(f.dir+"/work", 0, 0))
	_, err := f.Project("demo")
	must(t, err)
	if fi, err := os.Lstat(f.dir + "/work"); err != nil || !ownedBy(fi, owner()) {
		t.Errorf("work/ is not the container's: %v", err)
	}
}
