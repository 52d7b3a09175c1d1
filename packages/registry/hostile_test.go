//go:build linux

package registry_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
)

func TestUsersOwnFilesStay(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.publish(skill(ann, "s"))
	f.plant(bob, "skills/S/SKILL.md", "# Mine")
	_, err := f.Install(t.Context(), skill(bob, "s"))
	fails(t, "beside a look-alike", err, fault.AlreadyInstalled, `skill "s" already installed: there is "S"`)
	f.plant(bob, "skills/s/draft.txt", "mine") // no SKILL.md yet
	_, err = f.Install(t.Context(), skill(bob, "s"))
	fails(t, "over a draft", err, fault.AlreadyInstalled, `skill "s" already installed: /workspace/skills/s exists`)
	fails(t, "uninstall of own files", f.Uninstall(t.Context(), skill(bob, "s")), fault.UnknownEntry, `skill "s" not found`)
	f.holds(bob, "skills/s/draft.txt", "mine")
	fails(t, "uninstall by the author", f.Uninstall(t.Context(), skill(ann, "s")), fault.UnknownEntry, `skill "s" not found`)
	f.holds(ann, "skills/s/SKILL.md", "# S")
	// Nothing leads out of the workspace.
	outside := t.TempDir()
	if err := os.MkdirAll(f.at(bob, ""), 0o755); err != nil {
		t.Fatal(err)
	}
	carl := registry.Owner{AgentID: "a", UserID: "carl"}
	f.plant(carl, "x", "x")
	if err := os.Symlink(outside, f.at(carl, "skills")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Install(t.Context(), skill(carl, "s")); err == nil {
		t.Error("installed through a link that leads out")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("%v %v", entries, err)
	}
}

// TestHostileNames: names that would lead elsewhere, or that some system cannot have.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, name := range []string{
		"", ".", "..", "../x", "a/b", `a\b`, "/etc", ".hidden", "a\x00b", "new\nline", "\x1b[31m", "\xff", strings.Repeat("n", 300), "CON", "a:b", "trailing.",
		"space ", "\u202ereversed", "e\u0301", "skill-creator", "Skill-Creator",
	} {
		for what, err := range map[string]error{
			"publish":   second(f.Publish(t.Context(), skill(ann, name))),
			"install":   second(f.Install(t.Context(), skill(ann, name))),
			"uninstall": f.Uninstall(t.Context(), agent(ann, name)),
			"withdraw":  f.Withdraw(t.Context(), agent(ann, name)),
			"entry":     second(f.Entry(t.Context(), catalog.Skill, name)),
			"events":    second(f.Events(t.Context(), catalog.Skill, name, nil, 1)),
		} {
			if !fault.Is(err, fault.InvalidRequest) && !fault.Is(err, fault.ReservedSkill) {
				t.Errorf("%s %.30q: %v", what, name, err)
			}
		}
	}
	if _, err := f.Publish(t.Context(), registry.Request{Owner: ann, Kind: "tool", Name: "x"}); !fault.Is(err, fault.InvalidRequest) {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestHostileSkills (004 l493–502): an error of reading is "read skill: …".
func TestHostileSkills(t *testing.T) {
	t.Parallel()
	f := start(t)
	for name, c := range map[string]struct {
		make func(dir string) error
		code fault.Code
		text string
	}{
		"a FIFO as SKILL.md": {func(dir string) error {
			return errors.Join(os.Remove(dir+"/SKILL.md"), syscall.Mkfifo(dir+"/SKILL.md", 0o644))
		}, fault.PathRefused, "read skill: "},
		"a FIFO beside it": {func(dir string) error { return syscall.Mkfifo(dir+"/pipe", 0o644) }, fault.PathRefused, "read skill: "},
		"a link to etc":    {func(dir string) error { return os.Symlink("/etc", dir+"/etc") }, fault.PathRefused, "read skill: "},
		"a link to passwd": {
			func(dir string) error { return os.Symlink("../../../../../../etc/passwd", dir+"/p") }, fault.PathRefused,
			"read skill: ",
		},
		"a link to nothing":         {func(dir string) error { return os.Symlink("nothing", dir+"/n") }, fault.UnknownFile, "read skill: "},
		"a name with control bytes": {func(dir string) error { return os.WriteFile(dir+"/a\nb", nil, 0o644) }, fault.SkillConflict, `skill "s`},
		"a sparse file of 1 TiB": {func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/sparse", nil, 0o644), os.Truncate(dir+"/sparse", 1<<40))
		}, fault.FileTooLarge, "read skill: "},
		"too deep": {func(dir string) error { return os.MkdirAll(dir+strings.Repeat("/d", 40), 0o755) }, fault.TreeTooLarge, "read skill: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t)
			f.plant(ann, "skills/s/SKILL.md", "# S")
			if err := c.make(f.at(ann, "skills/s")); err != nil {
				t.Fatal(err)
			}
			_, err := f.Publish(t.Context(), skill(ann, "s"))
			fails(t, name, err, c.code, c.text)
			if _, err := f.Entry(t.Context(), catalog.Skill, "s"); !fault.Is(err, fault.UnknownEntry) {
				t.Errorf("it is published: %v", err)
			}
			if left, _ := filepath.Glob(f.root + "/registry/skill/*/*"); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
	f.plant(ann, "agents/big.md", strings.Repeat("x", registry.MaxAgent+1))
	_, err := f.Publish(t.Context(), agent(ann, "big"))
	fails(t, "a large agent", err, fault.FileTooLarge, "read agent: ")
}

// TestLostVersion (004 l462–473): an error of reading the published files is "read cache: …".
func TestLostVersion(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.publish(skill(ann, "s"))
	if err := os.RemoveAll(f.root + "/registry/skill/skills/s"); err != nil {
		t.Fatal(err)
	}
	_, err := f.Install(t.Context(), skill(bob, "s"))
	fails(t, "install", err, fault.Internal, "read cache: ")
	if strings.Contains(fault.From(err).Message, f.root) {
		t.Errorf("the message shows a path of this machine: %v", err)
	}
	f.absent(bob, "skills/s")
	f.publish(skill(ann, "s")) // stores it again
	f.install(skill(bob, "s"))
}

// TestFailedPublication (004 l503–515): an error of keeping the files is "write cache: …", and the
// version before it stays.
func TestFailedPublication(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# One")
	f.publish(skill(ann, "s"))
	staging := f.root + "/registry/skill/.staging"
	if err := errors.Join(os.RemoveAll(staging), os.WriteFile(staging, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	f.plant(ann, "skills/s/SKILL.md", "# Two")
	_, err := f.Publish(t.Context(), skill(ann, "s"))
	fails(t, "publish", err, fault.Internal, "write cache: ")
	if strings.Contains(fault.From(err).Message, f.root) {
		t.Errorf("the message shows a path of this machine: %v", err)
	}
	f.install(skill(bob, "s"))
	f.holds(bob, "skills/s/SKILL.md", "# One")
}

func TestCollect(t *testing.T) {
	t.Parallel()
	f := start(t)
	versions := func() int {
		t.Helper()
		all, err := filepath.Glob(f.root + "/registry/skill/skills/s/*")
		retired, err2 := filepath.Glob(f.root + "/registry/skill/.unused/s/*")
		if errors.Join(err, err2) != nil {
			t.Fatal(err)
		}
		return len(all) + len(retired)
	}
	for i := range 3 {
		f.plant(ann, "skills/s/SKILL.md", fmt.Sprint("# ", i))
		f.publish(skill(ann, "s"))
	}
	for _, want := range []int{3, 3, 1} { // young, retired, removed
		if err := f.Collect(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := versions(); got != want {
			t.Errorf("%d versions, want %d", got, want)
		}
		f.later(registry.Grace + time.Minute)
	}
	f.install(skill(bob, "s"))
	f.holds(bob, "skills/s/SKILL.md", "# 2")
}
