//go:build unix

package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace"
)

func TestProjectDirectories(t *testing.T) {
	// Not parallel: the umask is the whole process's.
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	f := setUp(t)
	for _, c := range []struct {
		path  string
		owned bool
	}{
		{"inputs", false},
		{"work", true},
		{"artifacts", false},
		{"artifacts/" + execID, true},
	} {
		fi, err := os.Lstat(filepath.Join(f.dir, c.path))
		must(t, err)
		if fi.Mode() != fs.ModeDir|0o755 {
			t.Errorf("%s has the mode %v", c.path, fi.Mode())
		}
		want := os.Geteuid()
		if c.owned && owner() >= 0 {
			want = owner()
		}
		if got := int(fi.Sys().(*syscall.Stat_t).Uid); got != want {
			t.Errorf("%s belongs to %d, not %d", c.path, got, want)
		}
	}
	again, err := f.Project("demo")
	must(t, err)
	if again.ID() != "demo" || again.ArtifactsPath(execID) != "projects/demo/artifacts/"+execID {
		t.Errorf("got %q, %q", again.ID(), again.ArtifactsPath(execID))
	}
	must(t, f.project.NewArtifacts(execID)) // another node died before it could start the exec
	must(t, os.WriteFile(filepath.Join(f.dir, "artifacts", execID, "a"), nil, 0o644))
	if err := f.project.NewArtifacts(execID); err == nil {
		t.Error("the artifacts directory was allotted twice")
	}
}

// TestBadProjectIDsMakeNothing: no bad id leaves anything on the disk, in or outside the root.
func TestBadProjectIDsMakeNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	before := count(t, f.root)
	for _, id := range badProjectIDs {
		_, err := f.Project(id)
		wantCode(t, err, fault.InvalidRequest)
		_, err = f.Existing(id)
		wantCode(t, err, fault.InvalidRequest)
	}
	if after := count(t, f.root); after != before {
		t.Errorf("%d entries became %d", before, after)
	}
}

func TestExistingCreatesNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, err := f.Existing("other")
	wantCode(t, err, fault.UnknownArtifact)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	gone(t, filepath.Join(f.root, "projects", "other"))
	p, err := f.Existing("demo")
	must(t, err)
	if p.ID() != "demo" {
		t.Errorf("got %q", p.ID())
	}
}

func TestNamesThatDifferByCaseCollide(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, err := f.Project("Demo")
	wantCode(t, err, fault.ProjectNameConflict)
	if e := fault.From(err); len(e.Fields) != 1 || e.Fields[0].Field != "project_id" || !strings.Contains(e.Message, `"demo"`) {
		t.Errorf("got %+v", e)
	}
	gone(t, filepath.Join(f.root, "projects", "Demo"))
	_, err = f.Project("agent~User")
	must(t, err)
	_, err = f.Project("Agent~user")
	wantCode(t, err, fault.ProjectNameConflict)

	// All spellings of one name at once: one of them wins.
	var wins sync.Map
	var group sync.WaitGroup
	for _, id := range []string{"race", "Race", "rAce", "raCe", "racE", "RACE"} {
		group.Go(func() {
			if _, err := f.Project(id); err == nil {
				wins.Store(id, true)
			} else {
				wantCode(t, err, fault.ProjectNameConflict)
			}
		})
	}
	group.Wait()
	n := 0
	wins.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d spellings won", n)
	}
}

func TestMountsAreTheThreeTemplates(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	inputs := workspace.Mount{Source: f.dir + "/inputs", Target: "/workspace/inputs", ReadOnly: true}
	work := workspace.Mount{Source: f.dir + "/work", Target: "/workspace/work"}
	artifacts := workspace.Mount{Source: f.left, Target: "/workspace/artifacts"}
	readOnly := func(m workspace.Mount) workspace.Mount { m.ReadOnly = true; return m }
	for _, c := range []struct {
		access workspace.Access
		want   []workspace.Mount
	}{
		{workspace.FullAccess, []workspace.Mount{inputs, work, artifacts}},
		{workspace.Access{}, nil},
		{workspace.Access{Inputs: workspace.ReadWrite}, []workspace.Mount{inputs}},
		{workspace.Access{Work: workspace.ReadOnly, Artifacts: workspace.ReadOnly}, []workspace.Mount{readOnly(work), readOnly(artifacts)}},
		{workspace.Access{Artifacts: workspace.ReadWrite}, []workspace.Mount{artifacts}},
	} {
		got, err := f.project.Mounts(execID, c.access)
		must(t, err)
		if len(got) != len(c.want) {
			t.Fatalf("%+v: got %+v", c.access, got)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%+v: got %+v, want %+v", c.access, got[i], c.want[i])
			}
		}
	}
	if _, err := f.project.Mounts("0190f5fe-7c00-7a00-8000-000000000002", workspace.FullAccess); err == nil {
		t.Error("an exec without its artifacts directory was given mounts")
	}
}

// TestMountsUseDockerForm: docker is given its own form of the root, not ours.
func TestMountsUseDockerForm(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	adapter, err := pathadapter.New(pathadapter.Config{Mode: pathadapter.Container, GOOS: "linux", Root: root, RootHost: `d:\ws`})
	must(t, err)
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1})
	must(t, err)
	defer w.Close()
	p, err := w.Project("agent~user")
	must(t, err)
	must(t, p.NewArtifacts(execID))
	mounts, err := p.Mounts(execID, workspace.FullAccess)
	must(t, err)
	if mounts[2].Source != `D:\ws\projects\agent~user\artifacts\`+execID {
		t.Errorf("got %q", mounts[2].Source)
	}
}

// TestPathReplacedBetweenExecs: when any step of a mount's source becomes a link, a file or
// nothing, the next exec gets no mounts, and Project fails too if it checks that step.
func TestPathReplacedBetweenExecs(t *testing.T) {
	t.Parallel()
	for _, step := range []string{
		"projects", "projects/demo", "projects/demo/inputs", "projects/demo/work", "projects/demo/artifacts",
		"projects/demo/artifacts/" + execID,
	} {
		for kind, place := range map[string]func(t *testing.T, f *fixture, path string){
			"link outside": func(t *testing.T, f *fixture, path string) { must(t, os.Symlink(f.outside, path)) },
			"link to the old one": func(t *testing.T, f *fixture, path string) {
				must(t, os.Symlink(filepath.Base(path)+".moved", path))
			},
			"link to nothing": func(t *testing.T, f *fixture, path string) { must(t, os.Symlink("nothing", path)) },
			"file":            func(t *testing.T, f *fixture, path string) { write(t, path, "x") },
			"fifo":            func(t *testing.T, f *fixture, path string) { must(t, unix.Mkfifo(path, 0o644)) },
			"nothing":         func(t *testing.T, f *fixture, path string) {},
		} {
			t.Run(strings.ReplaceAll(step, "/", "_")+" "+kind, func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				if _, err := f.project.Mounts(execID, workspace.FullAccess); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(f.root, step)
				must(t, os.Rename(path, path+".moved"))
				place(t, f, path)
				if mounts, err := f.project.Mounts(execID, workspace.FullAccess); err == nil {
					t.Errorf("got %+v", mounts)
				}
				deep := strings.Count(step, "/")
				if deep == 0 || deep == 3 || kind == "nothing" {
					return // Project uses its handle on projects/, ignores execs, and makes missing directories
				}
				if _, err := f.Project("demo"); err == nil {
					t.Error("the project is used as if nothing had happened")
				}
			})
		}
	}
}

// TestReplacedRoot: a new directory of the same name is refused.
func TestReplacedRoot(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	must(t, os.Rename(f.root, f.root+".old"))
	must(t, os.MkdirAll(f.left, 0o755))
	if mounts, err := f.project.Mounts(execID, workspace.FullAccess); err == nil {
		t.Errorf("got %+v", mounts)
	}
}

func TestStrangeExecIDsGoNowhere(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, id := range []string{"", ".", "..", "../../other", "/etc", "a/b", `a\b`, "a\x00", "a.b", strings.Repeat("a", 65)} {
		_, err := f.project.Mounts(id, workspace.FullAccess)
		wantCode(t, err, fault.UnknownExec)
		wantCode(t, f.project.NewArtifacts(id), fault.UnknownExec)
		_, err = f.project.Collect(t.Context(), id, 1, workspace.FullAccess)
		wantCode(t, err, fault.UnknownExec)
		wantCode(t, f.project.Publish(id, workspace.MetaName, strings.NewReader("x")), fault.UnknownExec)
		_, err = f.project.Artifacts(id, "", nil)
		wantCode(t, err, fault.UnknownExec)
		_, err = f.project.Growth(t.Context(), id)
		wantCode(t, err, fault.UnknownExec)
	}
}

func TestOpenRefusesUnusableRoot(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	write(t, filepath.Join(base, "file"), "x")
	must(t, os.MkdirAll(filepath.Join(base, "linked"), 0o755))
	must(t, os.Symlink(base, filepath.Join(base, "linked", "projects")))
	for _, root := range []string{filepath.Join(base, "file"), filepath.Join(base, "file", "below"), filepath.Join(base, "linked"), "/proc/secbox"} {
		adapter, err := pathadapter.New(pathadapter.Config{Root: root})
		must(t, err)
		w, err := workspace.Open(workspace.Options{Adapter: adapter})
		if err == nil {
			w.Close()
			t.Fatalf("%s was opened", root)
		}
		wantCode(t, err, fault.InvalidSettings)
		if !strings.Contains(fault.From(err).Message, root) {
			t.Errorf("message %q does not name the root", fault.From(err).Message)
		}
	}
	_, err := workspace.Open(workspace.Options{})
	wantCode(t, err, fault.InvalidSettings)
}

func TestFreeAndWritable(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	free, err := f.Free()
	must(t, err)
	if free.Bytes == 0 || free.Inodes == 0 {
		t.Errorf("free: %+v", free)
	}
	must(t, f.Writable())
	if n := count(t, filepath.Join(f.root, "projects")); n != 5 { // demo and its three directories, one with an exec
		t.Errorf("the probe left something: %s entries", strconv.Itoa(n))
	}
	must(t, os.RemoveAll(f.root))
	if err := f.Writable(); err == nil {
		t.Error("a root that is gone is writable")
	}
	if _, err := f.Free(); err == nil {
		t.Error("a root that is gone has free space")
	}
}
