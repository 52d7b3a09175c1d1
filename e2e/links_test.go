//go:build unix

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksInPlaceOfDirectories replaces directories of a project by links out of it between two
// execs.
func TestLinksInPlaceOfDirectories(t *testing.T) {
	t.Parallel()
	coldAndWarm(t, linksInPlaceOfDirectories)
}

func linksInPlaceOfDirectories(t *testing.T, how serving) {
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
	s := tidyIn(t, dir, how.settings).serving(how)
	before := describe(t, outside)
	const project = "p"
	first := s.exec(shell(project, "mkdir d; echo mine > d/f; mkdir /workspace/artifacts/sub; echo kept > /workspace/artifacts/sub/f; echo out"))
	id := first.str("exec_id")

	byAJob := func(t *testing.T) {
		s := s.under(t)
		for _, target := range []string{"/etc", "../../../../../../../..", outside} {
			s.exec(shell(project, "rm -rf d; ln -s "+target+" d; cat d/secret && echo it can be read; true")).wants(t,
				object{"status": "succeeded", "stdout": ""})
			r := shell(project, "pwd -P; ls secret 2>/dev/null; true")
			r["exec"].(object)["cwd"] = "/workspace/work/d"
			// The link is resolved inside the container.
			if result := s.exec(r); strings.Contains(result.str("stdout"), "secret\n") || result.str("status") == "error" {
				t.Errorf("%s: %v", target, result)
			}
		}
	}
	if how == cold { // the mounts are the same
		t.Run("by a job, in work", byAJob)
	}
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
			if how == warm { // a container waits for the directories that are about to be displaced
				s.fill(shell(project, "true"), 1)
			}
			exchange(t, name)
			created := s.watchCreations()
			problem := s.unprepared().refused(409, "project_damaged",
				shell(project, "touch /workspace/work/was-here", "inputs", []object{{"path": "in", "content": "x"}}))
			if !strings.Contains(problem.str("detail"), "in its place") {
				t.Errorf("no remedy: %v", problem)
			}
			s.get("/sandbox/execs/"+problem.str("exec_id")).wants(t, object{
				"status": "error", "error_reason": "start_failed", "detail": problem.str("detail"), "started_at": nil, "exit_code": nil,
			})
			if rows := s.records("project_id=" + project + "&status=running"); len(rows) > 0 {
				t.Errorf("rows stay open: %v", rows)
			}
			other := s.exec(shell("other", "echo alive"))
			if how == warm { // others are created too, for execs to come
				return
			}
			if before := created.upTo(other.str("exec_id")); len(before) > 0 {
				t.Errorf("containers were created for %q", before)
			}
		})
	}
	artifacts := func(t *testing.T) {
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
	}
	if how == cold { // artifacts are served the same way after a warm exec
		artifacts(t)
	}
	if a := s.artifact(id, "sub/f"); string(a.Body) != "kept\n" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	for _, line := range differences(before, describe(t, outside)) {
		t.Error(line)
	}
	// The next start removes directories that could not be removed behind a link.
	if err := s.app.Close(); err != nil {
		t.Fatal(err)
	}
	s = tidyIn(t, dir, noPool)
	s.onlyWaiting(project)
}
