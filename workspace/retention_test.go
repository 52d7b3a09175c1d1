//go:build unix

package workspace_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"secbox/workspace"
	"secbox/workspace/tree/treetest"
)

// TestRemoveArtifactsOfHostileTrees: links are not followed, and no tree is too deep, too wide or too closed.
func TestRemoveArtifactsOfHostileTrees(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	must(t, os.Symlink(f.outside, f.left+"/link"))
	must(t, os.Symlink("/", f.left+"/root"))
	nest(t, f.left, 300)
	must(t, os.Mkdir(f.left+"/wide", 0o755))
	fill(t, f.left+"/wide", 3000)
	write(t, f.left+"/closed/file", "x")
	must(t, os.Chmod(f.left+"/closed", 0))
	must(t, f.RemoveArtifacts(deadline(t), "demo", execID))
	gone(t, f.left)
	for _, missing := range [][2]string{{"demo", execID}, {"none", execID}, {"..", execID}, {"a b", execID}} {
		must(t, f.RemoveArtifacts(deadline(t), missing[0], missing[1]))
	}
	if err := f.RemoveArtifacts(deadline(t), "demo", "../inputs"); err == nil {
		t.Error("an exec id may lead out of artifacts/")
	}
	must(t, os.RemoveAll(f.dir+"/artifacts"))
	must(t, os.Symlink(f.outside, f.dir+"/artifacts"))
	if err := f.RemoveArtifacts(deadline(t), "demo", execID); err == nil {
		t.Error("a link in the place of artifacts/ was followed")
	}
}

// TestRemoveArtifactsGoesOn: a removal that runs out of time is completed by later ones.
func TestRemoveArtifactsGoesOn(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	fill(t, f.left, 200)
	err := f.RemoveArtifacts(&treetest.EndsAfter{Context: t.Context(), Looks: 50}, "demo", execID)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a removal without time: %v", err)
	}
	if left := count(t, f.left); left == 0 || left >= 200 {
		t.Errorf("%d entries are left", left)
	}
	must(t, f.RemoveArtifacts(deadline(t), "demo", execID))
	gone(t, f.left)
}

// TestRemoveUnusedInputs: old inputs go, but none that is new, in use, or of a skill.
func TestRemoveUnusedInputs(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	at := func(name string) string { return filepath.Join(f.dir, "inputs", name) }
	for _, name := range []string{"old", "d/old", "mixed/old", "mixed/new", ".skill/x/SKILL.md"} {
		write(t, at(name), "12345")
		if filepath.Base(name) != "new" {
			must(t, os.Chtimes(at(name), time.Unix(1, 0), time.Unix(1, 0)))
		}
	}
	must(t, os.Symlink(f.outside, at("mixed/link")))
	before := time.Now().Add(-time.Hour)
	release, err := f.project.PutInputs(execID, []workspace.Input{{Path: "used", Content: []byte("1")}})
	must(t, err)
	if bytes, err := f.RemoveUnused(t.Context(), "demo", time.Now().Add(time.Hour), false); err != nil || bytes != 0 {
		t.Errorf("while an exec uses inputs: %d bytes, %v", bytes, err)
	}
	release()
	must(t, os.Remove(at("used")))
	if bytes, err := f.RemoveUnused(t.Context(), "demo", before, true); err != nil || bytes != 15 {
		t.Errorf("a dry run: %d bytes, %v", bytes, err)
	}
	if read(t, at("old")) != "12345" {
		t.Error("a dry run removes")
	}
	if bytes, err := f.RemoveUnused(t.Context(), "demo", before, false); err != nil || bytes != 15 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
	for _, name := range []string{"old", "d", "mixed/old"} {
		gone(t, at(name))
	}
	for _, name := range []string{"mixed/new", ".skill/x/SKILL.md"} {
		read(t, at(name))
	}
	if bytes, err := f.RemoveUnused(t.Context(), "demo", time.Now().Add(time.Hour), false); err != nil || bytes != 5 {
		t.Errorf("all: %d bytes, %v", bytes, err)
	}
	gone(t, at("mixed"))
}

// TestRemoveUnusedPacks: the packs of an idle workspace go, and the next use begins with an empty one.
func TestRemoveUnusedPacks(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, f.work+"/file", "content")
	now := func() time.Time { return time.Unix(0, f.clock.Load()) }
	remove := func(before time.Time) int64 {
		t.Helper()
		bytes, err := f.RemoveUnused(t.Context(), idleID, before, false)
		must(t, err)
		return bytes
	}
	if n := remove(now().Add(day)); n != 0 {
		t.Errorf("%d bytes of a workspace that is not packed", n)
	}
	f.pack()
	if n := remove(now().Add(-2 * day)); n != 0 {
		t.Errorf("%d bytes of a workspace that was used after the time", n)
	}
	f.isPacked(true)
	f.later(10 * day)
	if n := remove(now().Add(-2 * day)); n == 0 {
		t.Error("the pack stays")
	}
	gone(t, f.dir+"/.idle/pack.tar.zst")
	f.project()
	if entries, err := os.ReadDir(f.work); err != nil || len(entries) != 0 {
		t.Errorf("the next use finds %v, %v", entries, err)
	}
}
