//go:build unix

package library_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"secbox/fault"
	"secbox/packages/library"
)

func (f *fixture) sync(o library.Owner, id string, force bool) library.Synced {
	f.t.Helper()
	s, err := f.Sync(f.t.Context(), o, id, force)
	must(f.t, err)
	return s
}

func wantSynced(t *testing.T, got library.Synced, baseline, updated, removed, conflicts string) {
	t.Helper()
	for what, lists := range map[string][2]string{
		"baseline": {got.Baseline, baseline}, "updated": {strings.Join(got.Updated, " "), updated},
		"removed": {strings.Join(got.Removed, " "), removed}, "conflicts": {strings.Join(got.Conflicts, " "), conflicts},
	} {
		if lists[0] != lists[1] {
			t.Errorf("%s is %q, not %q", what, lists[0], lists[1])
		}
	}
	if got.Updated == nil || got.Removed == nil || got.Conflicts == nil {
		t.Error("a list is nil")
	}
}

func TestSyncMergesByFile(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", tree{
		"SKILL.md": "# 1\n", "same": "1", "theirs": "1", "mine": "1", "both": "1", "both alike": "1", "gone there": "1", "gone here": "1",
		"gone here, changed there": "1", "changed here, gone there": "1", "a/x": "1",
	})
	for _, name := range []string{"mine", "both", "changed here, gone there", "new here", "new both", "new/is a directory", "A.txt"} {
		f.edit(alice, "demo", name, "alice")
	}
	f.edit(alice, "demo", "both alike", "2")
	for _, name := range []string{"gone here", "gone here, changed there"} {
		must(t, os.Remove(filepath.Join(f.copyDir(alice, "demo"), name)))
	}
	up := f.upload(alice, library.Baseline, "demo", tree{
		"SKILL.md": "# 2\n", "same": "1", "theirs": "2", "mine": "1", "both": "2", "both alike": "2", "gone here": "1",
		"gone here, changed there": "2", "new there": "2", "new both": "2", "new": "is a file", "a.txt": "2",
	})
	got := f.sync(alice, "demo", false)
	wantSynced(t, got, up.Digest, "SKILL.md new there theirs", "a/x gone there",
		"a.txt both changed here, gone there gone here, changed there new new both")
	want := tree{
		"SKILL.md": "# 2\n", "same": "1", "theirs": "2", "mine": "alice", "both": "alice", "both alike": "2",
		"changed here, gone there": "alice", "new here": "alice", "new both": "alice", "new there": "2", "new/is a directory": "alice", "A.txt": "alice",
	}
	if all := f.everything(alice, "demo"); !maps.Equal(all, want) {
		t.Errorf("got %q", all)
	}
	if one := f.listed(alice, "demo"); one.Status != library.Modified || one.BaselineChanged {
		t.Errorf("got %+v", one)
	}
	wantSynced(t, f.sync(alice, "demo", false), up.Digest, "", "", "") // they are the user's now
	f.nothingStaged()
}

func TestSyncOfUnchangedSkill(t *testing.T) {
	t.Parallel()
	for _, materialised := range []bool{false, true} {
		f := setUp(t)
		f.upload(alice, library.Baseline, "demo", demo)
		f.list(alice)
		if materialised {
			must(t, f.Materialise(t.Context(), alice, "demo"))
		}
		up := f.upload(alice, library.Baseline, "demo", tree{"SKILL.md": "# 2\n", "main.py": demo["main.py"]})
		if s := f.status(alice, "demo"); s != library.OutOfSync {
			t.Errorf("it is %s", s)
		}
		wantSynced(t, f.sync(alice, "demo", false), up.Digest, "SKILL.md", ".hidden utils/helper.py", "")
		if one := f.listed(alice, "demo"); one.Status != library.Unchanged || one.Digest != up.Digest {
			t.Errorf("got %+v", one)
		}
		if f.exists(f.copyDir(alice, "demo")) != materialised {
			t.Error("a copy came or went")
		}
		wantSynced(t, f.sync(alice, "demo", false), up.Digest, "", "", "")
		f.nothingStaged()
	}
}

func TestForcedSync(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	up := f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "main.py", "x")
	f.edit(alice, "demo", "mine", "x")
	wantSynced(t, f.sync(alice, "demo", true), up.Digest, "main.py", "mine", "")
	if one := f.listed(alice, "demo"); one.Status != library.Unchanged {
		t.Errorf("got %+v", one)
	}
	// Force also replaces links that a command has made, and restores deleted files.
	must(t, os.RemoveAll(f.copyDir(alice, "demo")))
	must(t, os.Symlink(f.outside, f.copyDir(alice, "demo")))
	f.sync(alice, "demo", true)
	if got := f.everything(alice, "demo"); !maps.Equal(got, demo) {
		t.Errorf("got %q", got)
	}
	must(t, f.Delete(t.Context(), alice, "demo", library.Overlay))
	_, err := f.Sync(t.Context(), alice, "demo", false)
	wantFault(t, err, fault.SkillConflict, "force")
	f.sync(alice, "demo", true)
	if got := f.everything(alice, "demo"); !maps.Equal(got, demo) {
		t.Errorf("got %q", got)
	}
	f.untouched()
	f.nothingStaged()
}

func TestRefusedSyncs(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Overlay, "own", demo)
	_, err := f.Sync(t.Context(), alice, "own", false)
	wantFault(t, err, fault.SkillConflict, "no baseline")
	_, err = f.Sync(t.Context(), alice, "none", true)
	wantFault(t, err, fault.UnknownSkill, "none")
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.Materialise(t.Context(), alice, "demo"))
	must(t, os.Symlink("main.py", filepath.Join(f.copyDir(alice, "demo"), "link")))
	f.upload(alice, library.Baseline, "demo", tree{"SKILL.md": "# 2\n"})
	_, err = f.Sync(t.Context(), alice, "demo", false)
	wantFault(t, err, fault.SkillConflict, "link")
	if s := f.status(alice, "demo"); s != library.Modified {
		t.Errorf("it is %s", s)
	}
	f.nothingStaged()
}

// TestSyncsLoseNoEdits: while baselines come one after the other and two nodes sync, every edit
// stays.
func TestSyncsLoseNoEdits(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	nodes := []*library.Library{f.Library, f.another()}
	var wait sync.WaitGroup
	for c := range 16 {
		wait.Go(func() {
			for r := range 5 {
				name := fmt.Sprintf("of/%d-%d", c, r)
				if err := nodes[c%2].Edit(t.Context(), alice, "demo", name, []byte(name), nil); err != nil {
					t.Errorf("edit: %v", err)
				}
			}
		})
	}
	for c := range 4 {
		wait.Go(func() {
			for r := range 5 {
				if _, err := f.tryUpload(bob, library.Baseline, "demo", tree{"SKILL.md": fmt.Sprintf("# %d %d\n", c, r)}); err != nil {
					t.Errorf("upload: %v", err)
				}
				if _, err := nodes[c%2].Sync(t.Context(), alice, "demo", false); err != nil && !fault.Is(err, fault.SkillChanged) {
					t.Errorf("sync: %v", err)
				}
			}
		})
	}
	wait.Wait()
	files, err := f.Files(t.Context(), alice, "demo")
	must(t, err)
	for c := range 16 {
		for r := range 5 {
			if name := fmt.Sprintf("of/%d-%d", c, r); !slices.Contains(files, name) {
				t.Errorf("%s is lost", name)
			}
		}
	}
	f.nothingStaged()
}
