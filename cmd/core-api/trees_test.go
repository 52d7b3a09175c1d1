//go:build unix

package main

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/settings"
	"secbox/workspace"
)

// TestAHundredThousandFiles is a job that leaves more than anybody can list.
func TestAHundredThousandFiles(t *testing.T) {
	t.Parallel()
	s := tidy(t)
	result := s.exec(shell("files", python(`
os.mkdir("many")
for i in range(100_000): os.close(os.open("many/%05d" % i, os.O_CREAT | os.O_WRONLY))
open("one more", "w").write("x")`)))
	if result.str("status") != "succeeded" {
		t.Fatalf("%.2000v", result)
	}
	manifest := s.manifest(result)
	files := manifest.list("files")
	// many/ itself is among the 10,000 entries that are kept.
	if len(files) != 10_000-1 || files[0].str("path") != "many/00000" || len(result.list("artifacts")) != len(files) {
		t.Errorf("%d files in the manifest, %d in the answer", len(files), len(result.list("artifacts")))
	}
	if reasons := omissions(manifest); reasons["too_many"] != 1000 || len(reasons) != 1 || manifest.at("truncated") != true {
		t.Errorf("omitted: %v, truncated %v", reasons, manifest.at("truncated"))
	}
	if want := float64(100_001 - len(files)); manifest.num("omitted_count") != want {
		t.Errorf("omitted_count %v, want %v", manifest.num("omitted_count"), want)
	}
	id := result.str("exec_id")
	if a := s.artifact(id, url.PathEscape("one more")); a.Code != http.StatusOK || string(a.Body) != "x" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	s.noArtifact("many/99999", s.artifact(id, "many/99999"))
	if sums := s.zipSums(id); len(sums) != len(files) {
		t.Errorf("%d members in the zip", len(sums))
	}
	s.checkPublished(result)
}

// TestSixtyThousandDirectories is a job that nests directories deeper than anybody can walk by name, in artifacts/ and in work/.
func TestSixtyThousandDirectories(t *testing.T) {
	t.Parallel()
	s := tidy(t)
	// The watchdog kills a job that nests directories deeper than it can watch. It lets live what was so before, and this is about what
	// the job leaves.
	s.exec(shell("deep", "true"))
	if err := os.MkdirAll(filepath.Join(s.project("deep"), "work", strings.Repeat("before/", 200)), 0o777); err != nil {
		t.Fatal(err)
	}
	result := s.exec(shell("deep", python(`
for top, depth in ("/workspace/artifacts", 60_000), ("/workspace/work", 5_000):
    os.chdir(top)
    for i in range(depth):
        os.mkdir("d"); os.chdir("d")
    open("bottom", "w").write("reached")
    print(depth)`)))
	if result.str("status") != "succeeded" || result.str("stdout") != "60000\n5000\n" || len(result.list("artifacts")) != 0 {
		t.Fatalf("%.2000v", result)
	}
	manifest := s.manifest(result)
	omitted := manifest.list("omitted")
	if len(manifest.list("files")) != 0 || len(omitted) != 1 || omitted[0].str("reason") != "too_deep" || manifest.at("truncated") != true ||
		omitted[0].str("path") != strings.Repeat("d/", 64)+"d" {
		t.Errorf("%v", manifest)
	}
	// The directories below the 64th, and the file at the bottom.
	if want := float64(60_000 - 64 + 1); manifest.num("omitted_count") != want {
		t.Errorf("omitted_count %v, want %v", manifest.num("omitted_count"), want)
	}
	for _, path := range []string{"d", strings.Repeat("d/", 64) + "d", strings.Repeat("d/", 2000) + "bottom"} {
		s.noArtifact(path, s.artifact(result.str("exec_id"), path))
	}
	s.checkPublished(result)
	if again := s.exec(shell("deep", "cd d/d/d && ls")); again.str("stdout") != "d\n" || again.str("status") != "succeeded" {
		t.Errorf("the next exec of the project: %v", again)
	}
}

// omissions counts why something was omitted.
func omissions(manifest object) map[string]int {
	reasons := map[string]int{}
	for _, o := range manifest.list("omitted") {
		reasons[o.str("reason")]++
	}
	return reasons
}

// TestGrowthThatHides: a job cannot grow past the watchdog by hiding what it writes, and one that does not grow is left alone.
func TestGrowthThatHides(t *testing.T) {
	t.Parallel()
	s := tidy(t, func(c *settings.Settings) {
		c.Sandbox.DiskGrowthMaxBytes, c.Sandbox.DiskGrowthMaxEntries = 16<<20, 1000
	})
	for _, c := range []struct{ name, script, says string }{
		{"beside a file without a name", "exec 3> big; rm big; head -c 10M /dev/zero >&3; for i in $(seq 20); do head -c 1M /dev/zero > part$i; done; sleep 1000", "disk_growth_max_bytes"},
		{"many files far below", "mkdir -p a/b/c; cd a/b/c; seq 2000 | xargs touch; sleep 1000", "disk_growth_max_entries"},
		{"many links", python("for i in range(2000): os.symlink('x', str(i))\nos.execlp('sleep', 'sleep', '1000')"), "disk_growth_max_entries"},
		{"very deep", "mkdir -p $(printf 'd/%.0s' $(seq 300)); sleep 1000", "nested deeper"},
		{"by a child that was left", "(setsid bash -c 'head -c 64M /dev/zero > big' &); trap '' TERM; sleep 1000", "disk_growth_max_bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			result := s.exec(shell(projectFor(c.name), "echo begun; "+c.script))
			if result.str("status") != "failed" || result.str("error_reason") != "disk_limit" || result.at("exit_code") != 137.0 ||
				!strings.Contains(result.str("detail"), c.says) || result.str("stdout") != "begun\n" {
				t.Errorf("%.2000v", result)
			}
			s.checkPublished(result)
			// Not the size of what is there counts, but its growth.
			if again := s.exec(shell(projectFor(c.name), "sleep 0.6; echo alive")); again.str("status") != "succeeded" {
				t.Errorf("the next exec of the project: %v", again)
			}
		})
	}
	t.Run("what does not grow", func(t *testing.T) {
		t.Parallel()
		s := s.with(t)
		for name, script := range map[string]string{
			"sparse":    "truncate -s 10G big; sleep 0.6",
			"rewritten": "for i in $(seq 8); do head -c 8M /dev/zero > same; sleep 0.1; done",
			"exchanged": python(`
import time
os.chdir("/workspace/work"); end = time.monotonic() + 1
while time.monotonic() < end:
    os.makedirs("d/e"); os.removedirs("d/e"); os.symlink("/etc", "d"); os.unlink("d"); os.mkfifo("d"); os.unlink("d")
os.chmod(".", 0); time.sleep(0.5)`),
			"in tmp": "head -c 64M /dev/zero > /tmp/big; sleep 0.6",
		} {
			if result := s.exec(shell(projectFor(name), script)); result.str("status") != "succeeded" {
				t.Errorf("%s: %v", name, result)
			}
		}
	})
}

// TestAPlaceTakenByALink: between two execs, something that the next one needs becomes a link that leads out of the project.
func TestAPlaceTakenByALink(t *testing.T) {
	t.Parallel()
	dir := hostileDir(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	const confidential = "XXIII"
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte(confidential), 0o666); err != nil {
		t.Fatal(err)
	}
	s := tidyIn(t, dir)
	before := tree(t, outside)
	const project = "p"
	first := s.exec(shell(project, "mkdir d; echo mine > d/f; mkdir /workspace/artifacts/sub; echo kept > /workspace/artifacts/sub/f; echo out"))
	id := first.str("exec_id")

	t.Run("by a job, in work", func(t *testing.T) {
		s := s.under(t)
		for _, target := range []string{"/etc", "../../../../../../../..", outside} {
			s.exec(shell(project, "rm -rf d; ln -s "+target+" d"))
			r := shell(project, "pwd -P; ls secret 2>/dev/null; true")
			r["exec"].(object)["cwd"] = "/workspace/work/d"
			// It leads to a place in the container, or nowhere; what matters is that it is the container's.
			if result := s.exec(r); strings.Contains(result.str("stdout"), "secret\n") || result.str("status") == "error" {
				t.Errorf("%s: %v", target, result)
			}
			if result := s.exec(shell(project, "cat /workspace/work/d/secret")); result.str("status") != "failed" {
				t.Errorf("%s: %v", target, result)
			}
		}
	})
	// exchange puts a link to outside in the place of something in the project, and back again.
	exchange := func(t *testing.T, name string) {
		t.Helper()
		place := filepath.Join(s.project(project), name)
		if err := os.Rename(place, place+".aside"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, place); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(place); err != nil {
				t.Error(err)
			}
			if err := os.Rename(place+".aside", place); err != nil {
				t.Error(err)
			}
		})
	}
	for _, name := range []string{"work", "inputs", "artifacts", "../" + project} {
		t.Run("the mounted "+name, func(t *testing.T) {
			s := s.under(t)
			exchange(t, name)
			created := s.watchCreations()
			s.refused(500, "internal", shell(project, "touch /workspace/work/was-here", "inputs", []object{{"path": "in", "content": "x"}}))
			if rows := s.records("project_id=" + project + "&status=running"); len(rows) > 0 {
				t.Errorf("rows stay open: %v", rows)
			}
			other := s.exec(shell("other", "echo alive"))
			if before := created.upTo(other.str("exec_id")); len(before) > 0 {
				t.Errorf("containers were created for %q", before)
			}
		})
	}
	for _, c := range []struct{ replaced, by, path string }{
		{"sub/f", secret, "sub/f"},
		{"sub", outside, "sub/f"},
		{"sub", outside, "sub/secret"},
		{"", outside, "sub/f"},
		{"manifest.json", secret, "sub/f"},
		{"../" + id, "/", "sub/f"},
	} {
		t.Run("an artifact's "+c.replaced, func(t *testing.T) {
			s := s.under(t)
			place := filepath.Join(s.dir, "workspace", first.str("artifacts_dir"), c.replaced)
			if err := os.Rename(place, place+".aside"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = os.Remove(place)
				if err := os.Rename(place+".aside", place); err != nil {
					t.Error(err)
				}
			})
			if err := os.Symlink(c.by, place); err != nil {
				t.Fatal(err)
			}
			a := s.artifact(id, c.path)
			if a.Code == http.StatusOK || strings.Contains(string(a.Body), confidential) {
				t.Errorf("%d %s", a.Code, a.Body)
			}
		})
	}
	for name, replaced := range map[string]string{"stdout": "stdout.txt", "the directory": ""} {
		t.Run("a link for "+name, func(t *testing.T) {
			s := s.under(t)
			place := filepath.Join(s.dir, "workspace", first.str("artifacts_dir"), replaced)
			if err := os.Rename(place, place+".aside"); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(secret, place); err != nil {
				t.Fatal(err)
			}
			a := s.send(http.MethodGet, "/sandbox/execs/"+id+"/stdout", nil)
			if a.Code == http.StatusOK || strings.Contains(string(a.Body), confidential) {
				t.Errorf("%d %s", a.Code, a.Body)
			}
			if err := os.Remove(place); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(place+".aside", place); err != nil {
				t.Fatal(err)
			}
		})
	}
	if a := s.artifact(id, "sub/f"); string(a.Body) != "kept\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	for _, line := range differences(before, tree(t, outside)) {
		t.Error(line)
	}
}

// TestTheTestsCanCleanUp: what hostileDir promises, with the tree on which os.RemoveAll gives up.
func TestTheTestsCanCleanUp(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	root, err := os.OpenRoot(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	at := root
	for range 3000 { // longer than PATH_MAX with its two bytes each
		if err := at.Mkdir("d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		if at != root {
			at.Close()
		}
		at = next
	}
	at.Close()
	if _, err := workspace.RemoveTree(context.Background(), root, "d"); err != nil {
		t.Fatal(err)
	}
}
