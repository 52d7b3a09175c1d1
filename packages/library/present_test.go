//go:build unix

package library_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/library"
)

const toolDir = "/opt/skill-creator"

func (f *fixture) sandboxFiles(o library.Owner) []string {
	f.t.Helper()
	list, err := f.SandboxFiles(f.t.Context(), o)
	must(f.t, err)
	return list
}

// TestInheritedSkillsAreThere: a skill that was never touched is among a user's files, and is on
// disk before the first command.
func TestInheritedSkillsAreThere(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "one", tree{"SKILL.md": "# One\n", "lib/x.py": "1\n2\n"})
	f.upload(bob, library.Overlay, "own", tree{"SKILL.md": "# Own\n"})
	want := []string{"skills/one/SKILL.md", "skills/one/lib/x.py", "skills/own/SKILL.md"}
	agree := func() {
		t.Helper()
		if got := f.sandboxFiles(bob); !slices.Equal(got, want) {
			t.Errorf("files %q", got)
		}
		if got, err := f.SandboxRead(t.Context(), bob, "skills/one/lib/x.py"); err != nil || string(got) != "1\n2\n" {
			t.Errorf("read %q, %v", got, err)
		}
		if got, err := f.SandboxReadLines(t.Context(), bob, "skills/one/lib/x.py", library.LineRange{Start: 2, End: 9}); err != nil ||
			!slices.Equal(got, []string{"2"}) {
			t.Errorf("lines %q, %v", got, err)
		}
		for _, path := range []string{"skills/one/none", "skills/none/x", "skills/one"} {
			if _, err := f.SandboxRead(t.Context(), bob, path); err == nil {
				t.Errorf("read %s", path)
			}
		}
	}
	agree()
	if f.exists(f.copyDir(bob, "one")) {
		t.Error("reading made a copy")
	}
	for range 2 {
		must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
		if got, err := os.ReadFile(filepath.Join(f.copyDir(bob, "one"), "lib/x.py")); err != nil || string(got) != "1\n2\n" {
			t.Errorf("on disk %q, %v", got, err)
		}
		agree()
	}
	if f.status(bob, "one") != library.Unchanged {
		t.Errorf("status %s", f.status(bob, "one"))
	}
	f.nothingStaged()
}

// TestCopiesFollowThePins: a new baseline is copied, a deleted skill is not, a removed copy comes
// back, and the user's edits stay.
func TestCopiesFollowThePins(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	skill := func(text string) tree { return tree{"SKILL.md": text} }
	f.upload(alice, library.Baseline, "edited", skill("1"))
	f.upload(alice, library.Baseline, "deleted", skill("1"))
	f.upload(alice, library.Baseline, "removed", skill("1"))
	for range 2 { // the second call finds nothing missing and remembers that
		f.later(10 * time.Second)
		must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
	}
	f.edit(bob, "edited", "SKILL.md", "bob's")
	must(t, f.Delete(t.Context(), bob, "deleted", library.Overlay))
	must(t, os.RemoveAll(f.copyDir(bob, "removed")))
	f.upload(alice, library.Baseline, "edited", skill("2"))
	f.upload(alice, library.Baseline, "new", skill("1"))
	for range 2 {
		f.later(10 * time.Second)
		must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
	}
	f.upload(bob, library.Overlay, "own", skill("1")) // changes nothing on disk but the versions
	must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
	got := tree{}
	for _, id := range []string{"edited", "deleted", "removed", "new", "own"} {
		if b, err := os.ReadFile(filepath.Join(f.copyDir(bob, id), "SKILL.md")); err == nil {
			got[id] = string(b)
		}
	}
	if !maps.Equal(got, tree{"edited": "bob's", "removed": "1", "new": "1", "own": "1"}) {
		t.Errorf("on disk %q", got)
	}
}

// TestFirstCommandsAtOnce: the first commands on two nodes, and one that is interrupted, find all
// skills whole.
func TestFirstCommandsAtOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for n := range 10 {
		f.upload(alice, library.Baseline, fmt.Sprintf("skill%d", n), numbered(n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.MaterialiseAll(ctx, bob, toolDir) }()
	for n, err := 0, error(nil); n == 0 && err == nil; {
		select {
		case err = <-ended:
			t.Errorf("it has ended without a copy: %v", err)
		default:
			copies, _ := filepath.Glob(f.copyDir(bob, "*"))
			n = len(copies)
		}
	}
	cancel() // with some copies there, and some begun
	<-ended
	var wait sync.WaitGroup
	for range 4 {
		for _, node := range []*library.Library{f.Library, f.another()} {
			wait.Go(func() {
				if err := node.MaterialiseAll(t.Context(), bob, toolDir); err != nil {
					t.Error(err)
					return
				}
				for n := range 10 {
					if files, err := filepath.Glob(filepath.Join(f.copyDir(bob, fmt.Sprintf("skill%d", n)), "d*", "*")); err != nil || len(files) != 20 {
						t.Errorf("skill%d has %d files: %v", n, len(files), err)
					}
				}
			})
		}
	}
	wait.Wait()
	f.nothingStaged()
}

// TestUploadOnAnotherNode: a command finds the skill after a second at most.
func TestUploadOnAnotherNode(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "first", demo)
	for range 3 { // the last call takes the workspace for complete
		must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
		f.later(10 * time.Second)
	}
	must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
	zip := packed(t, "second", demo)
	if _, err := f.another().Upload(t.Context(), alice, library.Baseline, "x.zip", bytes.NewReader(zip), int64(len(zip))); err != nil {
		t.Fatal(err)
	}
	f.later(2 * time.Second)
	must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
	if !f.exists(filepath.Join(f.copyDir(bob, "second"), "SKILL.md")) {
		t.Error("the skill is not there")
	}
}

// TestBrokenSkillsDoNotStopCommands: a command could be what repairs them.
func TestBrokenSkillsDoNotStopCommands(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	gone := f.upload(alice, library.Baseline, "gone", demo)
	f.upload(alice, library.Baseline, "linked", demo)
	f.upload(alice, library.Baseline, "whole", demo)
	must(t, os.RemoveAll(filepath.Join(f.root, "agents", alice.AgentID, "skills", "gone", gone.Digest)))
	must(t, os.MkdirAll(filepath.Dir(f.copyDir(bob, "linked")), 0o755))
	must(t, os.Symlink(f.outside, f.copyDir(bob, "linked")))
	must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
	if !f.exists(filepath.Join(f.copyDir(bob, "whole"), "SKILL.md")) {
		t.Error("the skill without a problem is not there")
	}
	if _, err := f.SandboxRead(t.Context(), bob, "skills/linked/secret"); err == nil {
		t.Error("the link was followed")
	}
	if list := f.sandboxFiles(bob); len(list) != len(demo) {
		t.Errorf("files %q", list)
	}

	carol := library.Owner{AgentID: alice.AgentID, UserID: "carol"}
	must(t, os.MkdirAll(filepath.Dir(filepath.Dir(f.copyDir(carol, "x"))), 0o755))
	must(t, os.Symlink(f.outside, filepath.Dir(f.copyDir(carol, "x"))))
	must(t, f.MaterialiseAll(t.Context(), carol, toolDir))
	if entries, err := os.ReadDir(f.outside); err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// TestToolIsAmongTheSkills: commands find the installation's own skill where the others are,
// whatever was put there.
func TestToolIsAmongTheSkills(t *testing.T) {
	t.Parallel()
	f := withTool(t)
	for _, dir := range []string{toolDir, "/elsewhere", toolDir} {
		must(t, f.MaterialiseAll(t.Context(), bob, dir))
		if target, err := os.Readlink(f.copyDir(bob, global)); err != nil || target != dir {
			t.Errorf("a link to %q, %v", target, err)
		}
	}
	if list := f.sandboxFiles(bob); len(list) != 0 {
		t.Errorf("files %q", list)
	}
	if got, err := f.SandboxRead(t.Context(), bob, "skills/"+global+"/SKILL.md"); err != nil || len(got) == 0 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	f.nothingStaged()
	must(t, os.Remove(f.copyDir(bob, global)))
	for _, plant := range []func(string) error{
		func(at string) error {
			return errors.Join(os.Mkdir(at, 0o755), os.WriteFile(at+"/run.py", []byte("planted"), 0o644))
		},
		func(at string) error { return os.WriteFile(at, []byte("planted"), 0o644) },
		func(at string) error { return os.Symlink("../planted", at) },
	} {
		must(t, os.RemoveAll(f.copyDir(bob, global)))
		must(t, plant(f.copyDir(bob, global)))
		must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
		if target, err := os.Readlink(f.copyDir(bob, global)); err != nil || target != toolDir {
			t.Errorf("a link to %q, %v", target, err)
		}
	}
	if aside := f.sandboxFiles(bob); len(aside) != 2 || !strings.HasPrefix(aside[0], "skills/."+global+"-") { // what a user made is kept
		t.Errorf("files %q", aside)
	}
	if list := f.list(bob); len(list) != 1 {
		t.Errorf("skills %v", list)
	}
	if err := f.SandboxEdit(t.Context(), bob, "skills/"+global+"/SKILL.md", nil, nil); !fault.Is(err, fault.ReservedSkill) {
		t.Errorf("edited: %v", err)
	}
}

// TestSkillsThatIsNoDirectory: what a command has put in the place of skills/ is kept beside it.
func TestSkillsThatIsNoDirectory(t *testing.T) {
	t.Parallel()
	for kind, plant := range map[string]func(at string) error{
		"link": func(at string) error {
			dir := filepath.Join(filepath.Dir(at), "real", global)
			return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/skill.py", []byte("planted"), 0o644), os.Symlink("real", at))
		},
		"dangling link": func(at string) error { return os.Symlink("nowhere", at) },
		"file":          func(at string) error { return os.WriteFile(at, []byte("planted"), 0o644) },
		"FIFO":          func(at string) error { return syscall.Mkfifo(at, 0o644) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := withTool(t)
			f.upload(alice, library.Baseline, "demo", demo)
			must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
			skillsDir := filepath.Dir(f.copyDir(bob, global))
			for n := range 2 {
				must(t, os.RemoveAll(skillsDir))
				must(t, os.RemoveAll(filepath.Join(filepath.Dir(skillsDir), "real")))
				must(t, plant(skillsDir))
				must(t, f.MaterialiseAll(t.Context(), bob, toolDir))
				if fi, err := os.Lstat(skillsDir); err != nil || !fi.IsDir() {
					t.Errorf("skills/ is %v, %v", fi, err)
				}
				if target, err := os.Readlink(f.copyDir(bob, global)); err != nil || target != toolDir {
					t.Errorf("a link to %q, %v", target, err)
				}
				if !f.exists(f.copyDir(bob, "demo")) {
					t.Error("the user's skills have no copies")
				}
				if aside, err := filepath.Glob(filepath.Join(filepath.Dir(skillsDir), ".skills-*")); err != nil || len(aside) != n+1 {
					t.Errorf("beside it are %v, %v", aside, err)
				}
			}
		})
	}
}
