//go:build unix

package workspace_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"secbox/workspace"
	"secbox/workspace/tree"
	"secbox/workspace/tree/treetest"
)

// TestRemoveArtifactsOfHostileTrees: links are not followed, and no tree is too deep, too wide or
// too closed.
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

// TestRemoveWorkspace: all of a workspace that was not used since the time goes, except artifacts,
// and the next use begins with an empty one.
func TestRemoveWorkspace(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	remove := func(id string, age time.Duration, dry bool) (int64, bool) {
		t.Helper()
		recorded := int64(-1)
		commit := func(bytes int64) (bool, error) { recorded = bytes; return true, nil }
		if dry {
			commit = nil
		}
		bytes, found, err := f.RemoveWorkspace(t.Context(), id, f.now().Add(-age), commit)
		if must(t, err); !dry && found != (recorded == bytes) {
			t.Errorf("%d bytes were removed, and %d are on record", bytes, recorded)
		}
		return bytes, found
	}
	_, err := f.existing().Home()
	must(t, err)
	files := []string{f.work + "/file", f.dir + "/.home/home/tool", f.dir + "/inputs/in", f.dir + "/.idle/pack.tar.zst"}
	for _, path := range files {
		write(t, path, "12345")
	}
	must(t, os.MkdirAll(f.dir+"/artifacts/"+execID, 0o755))
	must(t, os.Symlink(f.root, f.work+"/link"))
	if _, found := remove(idleID, day, false); found {
		t.Error("a workspace that was just used is removed")
	}
	f.later(2 * day)
	end := f.existing().BeginExec()
	f.later(2 * day)
	if _, found := remove(idleID, day, false); found {
		t.Error("a workspace with a running command is removed")
	}
	end()
	if _, found := remove(idleID, day, false); found {
		t.Error("a command's end is no use")
	}
	f.later(day + 2*time.Minute)
	if bytes, found := remove(idleID, day, true); bytes < 20 || !found {
		t.Errorf("a dry run finds %d bytes, %v", bytes, found)
	}
	for _, path := range files {
		read(t, path)
	}
	if bytes, found := remove(idleID, day, false); bytes < 20 || !found {
		t.Errorf("%d bytes, %v", bytes, found)
	}
	for _, path := range append(files, f.work, f.dir+"/.home") {
		gone(t, path)
	}
	if _, err := os.Stat(f.dir + "/artifacts/" + execID); err != nil {
		t.Error(err)
	}
	if _, found := remove(idleID, day, false); found {
		t.Error("it is removed twice")
	}
	write(t, f.dir+"/.idle/pack.tar.zst", "12345")
	if bytes, found := remove(idleID, day, true); bytes == 0 || !found {
		t.Errorf("a dry run finds %d bytes of a pack, %v", bytes, found)
	}
	must(t, os.Remove(f.dir+"/.idle/pack.tar.zst"))
	f.project()
	if entries, err := os.ReadDir(f.work); err != nil || len(entries) != 0 {
		t.Errorf("the next use finds %v, %v", entries, err)
	}
	if _, err := f.Project("demo"); err != nil {
		t.Fatal(err)
	}
	f.later(9 * day)
	if _, found := remove("demo", day, false); found {
		t.Error("a project that is no user's workspace is removed")
	}
}

// TestRemoveWorkspaceCalledOff: nothing is lost, nor on record, when a hold or a use comes
// meanwhile, and requests wait until it is decided.
func TestRemoveWorkspaceCalledOff(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	other := f.another()
	write(t, f.work+"/file", "12345")
	write(t, f.dir+"/.home/home/tool", "12345")
	failed := errors.New("the database does not answer")
	for range 3 {
		f.later(2 * day)
		used := make(chan error, 1)
		bytes, found, err := f.RemoveWorkspace(t.Context(), idleID, f.now().Add(-day), func(int64) (bool, error) {
			go func() {
				p, err := other.Existing(idleID)
				if err == nil {
					var work *tree.Tree
					if work, err = p.Work(); err == nil {
						_, err = work.Lstat("file")
						err = errors.Join(err, work.Close())
					}
				}
				used <- err
			}()
			select {
			case err := <-used:
				t.Errorf("a request does not wait: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			return false, failed
		})
		if !errors.Is(err, failed) || found {
			t.Errorf("%d bytes, %v, %v", bytes, found, err)
		}
		must(t, <-used)
		if read(t, f.work+"/file") != "12345" || read(t, f.dir+"/.home/home/tool") != "12345" {
			t.Error("files are lost")
		}
	}
}

// TestRemoveWorkspaceInterrupted: after a crash before the record, work/ is back with the next use;
// after a crash behind it, the rest goes without a second record.
func TestRemoveWorkspaceInterrupted(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	write(t, f.work+"/file", "12345")
	must(t, os.Rename(f.work, f.dir+"/.idle/work"))
	f.project()
	if read(t, f.work+"/file") != "12345" {
		t.Error("work/ is not back")
	}
	fill(t, f.work, 200)
	f.later(2 * day)
	records := 0
	commit := func(int64) (bool, error) { records++; return true, nil }
	ends := &treetest.EndsAfter{Context: t.Context(), Looks: 1000}
	_, found, err := f.RemoveWorkspace(ends, idleID, f.now().Add(-day), func(bytes int64) (bool, error) {
		ends.Looks = 50
		return commit(bytes)
	})
	if !errors.Is(err, context.DeadlineExceeded) || !found {
		t.Fatalf("a removal without time: %v, %v", found, err)
	}
	gone(t, f.work)
	f.project() // it is used again
	if _, found, err := f.RemoveWorkspace(t.Context(), idleID, f.now().Add(-day), commit); err != nil || found {
		t.Errorf("%v, %v", found, err)
	}
	must(t, f.existing().RemoveRest(t.Context()))
	if rest, err := filepath.Glob(f.dir + "/.idle/gone-*"); err != nil || len(rest) != 0 || records != 1 {
		t.Errorf("%v is left, %v; on record %d times", rest, err, records)
	}
}

// TestRemoveProject: the files of any project go, unless it is in use; artifacts stay. After a
// crash before the record, work/ is back with the next use.
func TestRemoveProject(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	id := f.project.ID()
	write(t, f.dir+"/work/file", "12345")
	write(t, f.dir+"/inputs/file", "12345")
	records := 0
	remove := func(commits bool) (bytes int64, found bool) {
		t.Helper()
		bytes, found, err := f.RemoveProject(t.Context(), id, func(int64) (bool, error) { records++; return commits, nil })
		must(t, err)
		return bytes, found
	}
	end := f.project.BeginExec()
	if _, found := remove(true); found || records != 0 {
		t.Error("removed while a command runs")
	}
	end()
	if _, found := remove(false); found || read(t, f.dir+"/work/file") != "12345" {
		t.Error("removed without a record")
	}
	must(t, os.Rename(f.dir+"/work", f.dir+"/.idle/work")) // as a crash leaves it
	if _, err := f.Project(id); err != nil || read(t, f.dir+"/work/file") != "12345" {
		t.Errorf("work/ is not back: %v", err)
	}
	if bytes, found := remove(true); !found || bytes <= 0 || records != 2 {
		t.Errorf("%d bytes, found %v, %d records", bytes, found, records)
	}
	gone(t, f.dir+"/work")
	gone(t, f.dir+"/inputs")
	if _, err := os.Stat(f.left); err != nil {
		t.Error(err)
	}
	if _, found := remove(true); found || records != 2 {
		t.Error("removed twice")
	}
	if _, _, err := f.RemoveProject(t.Context(), "missing", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
