package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDirectoriesThatChangeUnderAFullPool takes a project's directories away while containers wait,
// which have them mounted if they serve one project. The next exec must use the new directories.
// workspace.TestMountSetIntact has all the ways in which they can change.
func TestDirectoriesThatChangeUnderAFullPool(t *testing.T) {
	t.Parallel()
	t.Run("for one project each", func(t *testing.T) { t.Parallel(); directoriesThatChange(t, tidy(t, perProject)) })
	t.Run("for any project", func(t *testing.T) { t.Parallel(); directoriesThatChange(t, tidy(t, ready(1))) })
}

func directoriesThatChange(t *testing.T, s *testServer) {
	for name, change := range map[string]func(t *testing.T, project string){
		"inputs is removed":                 func(t *testing.T, project string) { removeAll(t, project+"/inputs") },
		"the waiting artifacts are removed": func(t *testing.T, project string) { removeChildren(t, project+"/artifacts") },
		"work is exchanged for another": func(t *testing.T, project string) {
			makeOwned(t, project+"/new")
			must(t, os.WriteFile(project+"/new/old", []byte("another\n"), 0o644))
			must(t, os.Rename(project+"/work", project+"/work.was"))
			must(t, os.Rename(project+"/new", project+"/work"))
		},
		"the project is moved away and made again": func(t *testing.T, project string) {
			must(t, os.Rename(project, project+".was"))
			for _, dir := range []string{"inputs", "work", "artifacts"} {
				makeOwned(t, project+"/"+dir)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, demo := s.with(t), projectFor(name)
			request := shell(demo, "echo old > old; echo old > /workspace/artifacts/a", "inputs", []object{{"path": "in", "content": "old"}})
			s.exec(request).wants(t, object{"status": "succeeded"})
			s.fill(request, 1)
			change(t, s.project(demo))

			result := s.exec(shell(demo, "cat /workspace/inputs/in; echo new > new; echo new > /workspace/artifacts/b", "inputs",
				[]object{{"path": "in", "content": "new"}}))
			result.wants(t, object{"status": "succeeded", "stdout": "new", "stderr": ""})
			if content, err := os.ReadFile(s.work(demo, "new")); err != nil || string(content) != "new\n" {
				t.Errorf("it wrote elsewhere: %q %v", content, err)
			}
			if a := s.artifact(result.str("exec_id"), "b"); a.Code != 200 || string(a.Body) != "new\n" {
				t.Errorf("its artifact: %d %s", a.Code, a.Body)
			}
			if files := s.manifest(result).list("files"); len(files) != 1 || files[0].str("path") != "b" {
				t.Errorf("its manifest: %v", files)
			}
			// The job finds in work/ what a look at the disk finds there, also when it is warm.
			var found string
			entries, err := os.ReadDir(s.work(demo, ""))
			must(t, err)
			for _, e := range entries {
				found += e.Name() + "\n"
			}
			s.serving(warm).exec(shell(demo, "ls")).wants(t, object{"status": "succeeded", "stdout": found})
			for _, was := range []string{s.project(demo) + "/work.was/new", s.project(demo) + ".was/work/new"} {
				if _, err := os.Lstat(was); err == nil {
					t.Error("it wrote into what had been moved away")
				}
			}
			s.onlyWaiting(demo)
		})
	}
}

// TestRemovedProjectStaysAway checks that the containers of a removed project go, and that only a
// request makes it again.
func TestRemovedProjectStaysAway(t *testing.T) {
	t.Parallel()
	s := tidy(t, perProject)
	for name, remove := range map[string]func(t *testing.T, project string){
		"all of it": removeAll, "its work": func(t *testing.T, project string) { removeAll(t, filepath.Join(project, "work")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.with(t)
			id := projectFor(name)
			s.fill(shell(id, "true"), 2)
			// One more is about to be started when its directories go.
			s.exec(shell(id, "true"))
			remove(t, s.project(id))
			eventually(t, "nothing waits for it", func() bool {
				_, waits := poolKey{id, "secbox-sandbox:latest", "inputs:ro,work:rw,artifacts:rw", 1024, 1, 256, 256, 1024}.find(s.get("/sandbox/pool"))
				return !waits
			})
			if _, err := os.Lstat(s.work(id, "")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("work/ was made again: %v", err)
			}
			if name == "all of it" {
				if _, err := os.Lstat(s.project(id)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the project was made again: %v", err)
				}
			}
			s.works(id)
			s.serving(warm).exec(shell(id, "echo again")).wants(t, object{"stdout": "again\n"})
			s.onlyWaiting(id)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// makeOwned makes a directory that belongs to the containers' user, as a backup that is put back
// does.
func makeOwned(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	if os.Geteuid() == 0 {
		must(t, os.Chown(dir, 1000, 1000))
	}
}

// removeAll removes a tree into which the pool may be putting directories for its next containers.
func removeAll(t *testing.T, dir string) {
	t.Helper()
	eventually(t, dir+" is removed", func() bool {
		err := os.RemoveAll(dir)
		if errors.Is(err, syscall.ENOTEMPTY) {
			return false
		}
		must(t, err)
		return true
	})
}

func removeChildren(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		removeAll(t, filepath.Join(dir, e.Name()))
	}
}
