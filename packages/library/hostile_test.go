//go:build unix

package library_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/sandbox/sandboxtest"
)

// planted has the files with which an exec may replace main.py in a copy.
func planted(t *testing.T, f *fixture) map[string]func(path string) {
	must(t, os.MkdirAll(filepath.Join(f.root, "projects", alice.ProjectID(), "artifacts", "x"), 0o755))
	return map[string]func(string){
		"link out":         func(p string) { must(t, os.Symlink(filepath.Join(f.outside, "secret"), p)) },
		"relative link":    func(p string) { must(t, os.Symlink("../../../../../../outside/secret", p)) },
		"link to evidence": func(p string) { must(t, os.Symlink("../../../artifacts/x/stdout.txt", p)) },
		"link beside":      func(p string) { must(t, os.Symlink("SKILL.md", p)) },
		"dangling link":    func(p string) { must(t, os.Symlink("nowhere", p)) },
		"FIFO":             func(p string) { must(t, syscall.Mkfifo(p, 0o644)) },
		"directory":        func(p string) { must(t, os.Mkdir(p, 0o755)) },
	}
}

func TestThingsPlantedInTheWorkspace(t *testing.T) {
	t.Parallel()
	for name := range planted(t, setUp(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.upload(alice, library.Baseline, "demo", demo)
			must(t, f.Materialise(t.Context(), alice, "demo"))
			path := filepath.Join(f.copyDir(alice, "demo"), "main.py")
			must(t, os.Remove(path))
			planted(t, f)[name](path)

			_, err := f.Read(t.Context(), alice, "demo", "main.py")
			wantFault(t, err, fault.PathRefused, "main.py")
			wantFault(t, f.Edit(t.Context(), alice, "demo", "main.py", []byte("x"), nil), fault.PathRefused, "main.py")
			lines := &library.LineRange{Start: 1, End: 1}
			wantFault(t, f.Edit(t.Context(), alice, "demo", "main.py", []byte("x"), lines), fault.PathRefused, "main.py")
			_, err = f.SandboxRead(t.Context(), alice, "skills/demo/main.py")
			wantFault(t, err, fault.PathRefused, "main.py")
			if files, err := f.Files(t.Context(), alice, "demo"); err != nil || slices.Contains(files, "main.py") {
				t.Errorf("got %v, %v", files, err)
			}
			if _, err := f.SandboxFiles(t.Context(), alice); err != nil {
				t.Error(err)
			}
			if s := f.status(alice, "demo"); s != library.Modified {
				t.Errorf("it is %s", s)
			}
			if name != "directory" { // an empty directory harms no version
				_, err = f.Promote(t.Context(), alice, "demo", false)
				wantFault(t, err, fault.SkillConflict, "main.py")
				var b bytes.Buffer
				err = f.Download(t.Context(), alice, "demo", &b)
				wantFault(t, err, fault.SkillConflict, "main.py")
				if b.Len() > 0 {
					t.Error("something was sent")
				}
			}
			f.untouched()
			f.nothingStaged()
			// An upload or a deletion removes it.
			f.upload(alice, library.Overlay, "demo", demo)
			if got := f.everything(alice, "demo"); !maps.Equal(got, demo) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// untouched checks that nothing was written where links lead.
func (f *fixture) untouched() {
	f.t.Helper()
	if b, err := os.ReadFile(filepath.Join(f.outside, "secret")); err != nil || string(b) != "secret" {
		f.t.Errorf("the file outside holds %q, %v", b, err)
	}
	if entries, err := os.ReadDir(f.outside); err != nil || len(entries) != 1 {
		f.t.Errorf("outside are %v, %v", entries, err)
	}
	for _, dir := range []string{"artifacts/x", "inputs"} {
		if entries, err := os.ReadDir(filepath.Join(f.root, "projects", alice.ProjectID(), dir)); err == nil && len(entries) > 0 {
			f.t.Errorf("%s has %v", dir, entries)
		}
	}
}

func TestLinksInThePlaceOfDirectories(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{
		"a directory in the skill": "skills/demo/utils", "the skill": "skills/demo", "skills": "skills",
	} {
		for target, to := range map[string]string{"out": "", "to inputs": "inputs", "to evidence": "artifacts"} {
			t.Run(name+" "+target, func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				f.upload(alice, library.Baseline, "demo", demo)
				must(t, f.Materialise(t.Context(), alice, "demo"))
				project := filepath.Join(f.root, "projects", alice.ProjectID())
				link := filepath.Join(project, "work", at)
				must(t, os.RemoveAll(link))
				if to == "" {
					must(t, os.Symlink(f.outside, link))
				} else {
					leads, err := filepath.Rel(filepath.Dir(link), filepath.Join(project, to))
					must(t, err)
					must(t, os.Symlink(leads, link))
				}
				_, err := f.Read(t.Context(), alice, "demo", "utils/secret")
				wantFault(t, err, fault.PathRefused, "link")
				wantFault(t, f.Edit(t.Context(), alice, "demo", "utils/new", []byte("x"), nil), fault.PathRefused, "link")
				wantFault(t, f.SandboxEdit(t.Context(), alice, "skills/demo/utils/new", []byte("x"), nil), fault.PathRefused, "link")
				if err := f.SandboxEdit(t.Context(), alice, at+"/new/new", []byte("x"), nil); !fault.Is(err, fault.PathRefused) {
					t.Errorf("got %v", err)
				}
				if files, err := f.Files(t.Context(), alice, "demo"); err == nil && slices.Contains(files, "utils/secret") {
					t.Errorf("got %v", files)
				}
				if files, err := f.SandboxFiles(t.Context(), alice); err != nil || strings.Contains(strings.Join(files, " "), "secret") {
					t.Errorf("got %v, %v", files, err)
				}
				if _, err := f.Promote(t.Context(), alice, "demo", true); err == nil {
					t.Error("it was promoted")
				}
				f.untouched()
				if at == "skills/demo" {
					f.upload(alice, library.Overlay, "demo", demo)
					if got := f.everything(alice, "demo"); !maps.Equal(got, demo) {
						t.Errorf("got %q", got)
					}
				}
				f.untouched()
			})
		}
	}
}

// TestDirectorySwappedForLink exchanges a directory of the copy for a link out and back,
// concurrently: edits go into the directory or are refused, and reads never return anything from
// outside.
func TestDirectorySwappedForLink(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.Materialise(t.Context(), alice, "demo"))
	dir := filepath.Join(f.copyDir(alice, "demo"), "utils")
	must(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("mine"), 0o600))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond): // else the swapper has a core to itself
			}
			_ = os.Rename(dir, dir+"2")
			_ = os.Symlink(f.outside, dir)
			_ = os.Remove(dir)
			_ = os.Rename(dir+"2", dir)
		}
	}()
	for n := range sandboxtest.Soak(150, 5000) {
		if b, err := f.Read(t.Context(), alice, "demo", "utils/secret"); err == nil && string(b) != "mine" {
			t.Fatalf("read %q", b)
		}
		edited := f.Edit(t.Context(), alice, "demo", fmt.Sprintf("utils/%d", n), []byte("x"), nil)
		_, listed := f.SandboxFiles(t.Context(), alice)
		for _, err := range []error{edited, listed} {
			if fault.Is(err, fault.Internal) {
				t.Errorf("a command's exchange counts as a fault of the server: %v", err)
			}
		}
	}
	close(stop)
	<-stopped
	f.untouched()
}

func TestHugeTreesAreNotListed(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("/dev/shm", "library") // an ext4 is slow with so many for all who use it
	if err != nil {
		base = t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(base)) })
	f := setUpIn(t, base, "")
	must(t, f.SandboxEdit(t.Context(), alice, "a.txt", []byte("1"), nil))
	work := filepath.Join(f.root, "projects", alice.ProjectID(), "work")
	deep := work
	for range 70 {
		deep = filepath.Join(deep, "d")
	}
	must(t, os.MkdirAll(deep, 0o755))
	_, err = f.SandboxFiles(t.Context(), alice)
	wantFault(t, err, fault.TreeTooLarge, "the workspace")
	must(t, os.RemoveAll(filepath.Join(work, "d")))
	for n := range 10_000 {
		file, err := os.Create(filepath.Join(work, fmt.Sprintf("n%d", n)))
		must(t, err)
		file.Close()
	}
	_, err = f.SandboxFiles(t.Context(), alice)
	wantFault(t, err, fault.TreeTooLarge, "the workspace")
	must(t, os.Remove(filepath.Join(work, "n0")))
	if files, err := f.SandboxFiles(t.Context(), alice); err != nil || len(files) != 10_000 {
		t.Errorf("got %d, %v", len(files), err)
	}
}

func TestNamesNotAllowedInVersions(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a\nb", "a:b", `a\b`, "\xff", "MAIN.PY", "con", "a."} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.upload(alice, library.Baseline, "demo", demo)
			must(t, f.Materialise(t.Context(), alice, "demo"))
			must(t, os.WriteFile(filepath.Join(f.copyDir(alice, "demo"), name), []byte("x"), 0o600))
			if s := f.status(alice, "demo"); s != library.Modified {
				t.Errorf("it is %s", s)
			}
			_, err := f.Promote(t.Context(), alice, "demo", false)
			if !fault.Is(err, fault.SkillConflict) {
				t.Errorf("got %v", err)
			}
			if _, err := f.Files(t.Context(), alice, "demo"); err != nil {
				t.Error(err)
			}
			f.nothingStaged()
		})
	}
}

func TestUnreadableCopyHidesOnlyItself(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "deep", demo)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.Materialise(t.Context(), alice, "deep"))
	must(t, os.MkdirAll(f.copyDir(alice, "deep")+strings.Repeat("/d", 70), 0o755))
	list := f.list(alice)
	if len(list) != 2 || list[0].Status != library.Modified || list[0].Digest != "" || list[1].Status != library.Unchanged {
		t.Errorf("got %+v", list)
	}
	must(t, f.Delete(t.Context(), alice, "deep", library.Overlay))
	if list := f.list(alice); len(list) != 1 {
		t.Errorf("got %+v", list)
	}
	f.nothingStaged()
}

// TestTerabyteHole: a command can make a large sparse file at no cost, so that file is not read.
func TestTerabyteHole(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "main.py", "changed")
	hole := filepath.Join(f.copyDir(alice, "demo"), "hole")
	must(t, os.WriteFile(hole, nil, 0o644))
	must(t, os.Truncate(hole, 1<<40))
	if one := f.listed(alice, "demo"); one.Status != library.Modified || one.Digest != "" {
		t.Errorf("%+v", one)
	}
	_, err := f.Sync(t.Context(), alice, "demo", false)
	wantFault(t, err, fault.TreeTooLarge, "bytes")
	_, err = f.Promote(t.Context(), alice, "demo", false)
	wantFault(t, err, fault.TreeTooLarge, "bytes")
	must(t, os.Remove(hole))
	if _, err := f.Promote(t.Context(), alice, "demo", false); err != nil {
		t.Error(err)
	}
}

// TestDirectoryAndFileConfused: the answers say what is at the path, and do not speak of links
// alone.
func TestDirectoryAndFileConfused(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	must(t, f.SandboxEdit(t.Context(), alice, "dir/file", []byte("x"), nil))
	_, err := f.SandboxRead(t.Context(), alice, "dir")
	wantFault(t, err, fault.PathRefused, "dir is a directory")
	wantFault(t, f.SandboxEdit(t.Context(), alice, "dir", []byte("x"), nil), fault.PathRefused, "dir is a directory")
	wantFault(t, f.SandboxEdit(t.Context(), alice, "dir/file/below", []byte("x"), nil), fault.PathRefused,
		"a file or something special is in the place of a directory")
}
