//go:build linux

package registry_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/sandbox"
)

// TestSkillFromAuthorToUser (004 l252, l253, l258, l263, l264, l450–461): publish from a user's
// workspace, install into another's, uninstall.
func TestSkillFromAuthorToUser(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/csv/SKILL.md", "---\nname: CSV\ndescription: Reads tables.\n---\n")
	f.plant(ann, "skills/csv/bin/run", "#!/bin/sh\necho hi\n")
	f.plant(ann, "skills/csv/bin/tool.py", "print()\n")
	if err := os.Chmod(f.at(ann, "skills/csv/bin/tool.py"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.plant(ann, "lib/shared.py", "shared")
	if err := os.Symlink("../../lib/shared.py", f.at(ann, "skills/csv/shared.py")); err != nil {
		t.Fatal(err)
	}
	e := f.publish(skill(ann, "csv"))
	if e.Version != 1 || e.Author != ann || e.Description != "Reads tables." || e.Files != 4 || len(e.Digest) != 64 || e.RequestedBy != "token" {
		t.Errorf("%+v", e)
	}
	f.install(skill(bob, "csv"))
	if i, ok, err := f.Installed(t.Context(), bob, catalog.Skill, "csv"); !ok || i.Version != 1 || i.Digest != e.Digest || err != nil {
		t.Errorf("the installation is %+v, %v", i, err)
	}
	f.holds(bob, "skills/csv/SKILL.md", "---\nname: CSV\ndescription: Reads tables.\n---\n")
	f.holds(bob, "skills/csv/shared.py", "shared") // a link becomes a file
	f.holds(bob, "skills/csv/bin/run", "#!/bin/sh\necho hi\n")
	for _, program := range []string{"run", "tool.py"} {
		if fi, err := os.Stat(f.at(bob, "skills/csv/bin/"+program)); err != nil || fi.Mode().Perm() != 0o755 {
			t.Errorf("%s cannot be run: %v %v", program, fi, err)
		}
	}
	_, err := f.Install(t.Context(), skill(bob, "csv"))
	fails(t, "a second installation", err, fault.AlreadyInstalled, `skill "csv" already installed`)

	if err := f.Uninstall(t.Context(), skill(bob, "csv")); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := f.Installed(t.Context(), bob, catalog.Skill, "csv"); ok || err != nil {
		t.Errorf("a removed installation is there: %v", err)
	}
	f.absent(bob, "skills/csv")
	fails(t, "a second removal", f.Uninstall(t.Context(), skill(bob, "csv")), fault.UnknownEntry, `skill "csv" not found`)
	f.install(skill(bob, "csv"))
	if got, want := f.actions(catalog.Skill, "csv"),
		"ann published, bob install_begun, bob installed, bob uninstall_begun, bob uninstalled, bob install_begun, bob installed"; got != want {
		t.Errorf("on record: %s\nwant       %s", got, want)
	}
	publisher, installer := sandbox.User{AgentID: "a", ID: "ann"}, sandbox.User{AgentID: "a", ID: "bob"}
	if want := []sandbox.User{publisher, installer, installer, installer}; !slices.Equal(f.changed, want) {
		t.Errorf("changed: %+v, want %+v", f.changed, want)
	}
}

// TestAgentFromAuthorToUser (004 l254, l255, l256, l257, l259, l265, l272): an agent is one file.
func TestAgentFromAuthorToUser(t *testing.T) {
	t.Parallel()
	f := start(t)
	text := "---\nname: Reviewer\ndescription: Reviews code.\nrole: engineer\n---\nYou review."
	f.plant(ann, "agents/reviewer.md", text)
	if e := f.publish(agent(ann, "reviewer")); e.Description != "Reviews code." || e.Files != 1 || e.Bytes != int64(len(text)) {
		t.Errorf("%+v", e)
	}
	f.install(agent(bob, "reviewer"))
	f.holds(bob, "agents/reviewer.md", text)
	_, err := f.Install(t.Context(), agent(bob, "reviewer"))
	fails(t, "again", err, fault.AlreadyInstalled, `agent "reviewer" already installed`)
	f.plant(bob, "agents/other.md", "other")
	if err := f.Uninstall(t.Context(), agent(bob, "reviewer")); err != nil {
		t.Fatal(err)
	}
	f.absent(bob, "agents/reviewer.md")
	f.holds(bob, "agents/other.md", "other")
	_, err = f.Publish(t.Context(), agent(ann, "none"))
	fails(t, "a missing agent", err, fault.UnknownEntry, `agent "none" not found`)
	_, err = f.Install(t.Context(), skill(bob, "reviewer"))
	fails(t, "a skill of that name", err, fault.UnknownEntry, `skill "reviewer" not found`)
}

// TestNotFound (004 l486–491): publishing a skill that does not exist.
func TestNotFound(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/nearly/README.md", "no SKILL.md")
	for _, name := range []string{"csv", "nearly"} {
		_, err := f.Publish(t.Context(), skill(ann, name))
		fails(t, name, err, fault.UnknownEntry, fmt.Sprintf("skill %q not found", name))
	}
	_, err := f.Install(t.Context(), skill(ann, "csv"))
	fails(t, "install", err, fault.UnknownEntry, `skill "csv" not found`)
}

// TestServicesNamesAreReserved (004 l271, l518–532, but that publishing them is refused): neither
// the names of the service's own skills nor what looks like them can be published.
func TestServicesNamesAreReserved(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/shell.run/SKILL.md", "# Ann's")
	f.publish(skill(ann, "shell.run")) // before the service had one
	f.global = []string{"shell.run"}
	for _, name := range []string{"shell.run", "Shell.Run", "she1l.run", "sheIl.run", "shéll.run", "ｓhell.run"} {
		f.plant(ann, "skills/"+name+"/SKILL.md", "# Ann's")
		_, err := f.Publish(t.Context(), skill(ann, name))
		fails(t, name, err, fault.ReservedSkill, fmt.Sprintf("%q is or looks like the name of the service's own skill shell.run: use another name", name))
	}
	f.plant(ann, "agents/shell.run.md", "of another kind")
	f.publish(agent(ann, "shell.run"))
	if e, err := f.Entry(t.Context(), catalog.Skill, "shell.run"); err != nil || e.Version != 1 {
		t.Errorf("an entry of before: %+v, %v", e, err)
	}
	_, err := f.Install(t.Context(), skill(bob, "shell.run"))
	fails(t, "install", err, fault.AlreadyInstalled, `skill "shell.run" already installed`)
}

// TestNewNames: a new name is no option, and looks like no other one. Entries of before stay, with
// their next versions.
func TestNewNames(t *testing.T) {
	t.Parallel()
	f := start(t)
	publish := func(o registry.Owner, name string) error {
		f.plant(o, "skills/"+name+"/SKILL.md", "# "+o.UserID)
		_, err := f.Publish(t.Context(), skill(o, name))
		return err
	}
	for _, name := range []string{"csv-report_1.0", "a b", "modern", "说明", "データ", "café", "한글", "Total"} {
		if err := publish(ann, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]fault.Code{
		"-rf": fault.InvalidRequest, "－rf": fault.InvalidRequest, "ﬁle": fault.InvalidRequest, "ｆｉｌｅ": fault.InvalidRequest, "рау": fault.InvalidRequest,
		"tοp": fault.InvalidRequest,
		"tıp": fault.InvalidRequest, "a–b": fault.InvalidRequest, "x🦆": fault.InvalidRequest,
		"csv-report_l.0": fault.NameTaken, "csv-report_I.0": fault.NameTaken, "CSV-Report_1.o": fault.NameTaken, "rnodern": fault.NameTaken,
		"cafe": fault.NameTaken, "デ一タ": fault.NameTaken,
		"TOTAL": fault.NameTaken, "Tota1": fault.NameTaken,
	} {
		if err := publish(bob, name); !fault.Is(err, want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if err := publish(bob, "total sum"); err != nil {
		t.Error(err)
	}
	old := registry.Entry{
		Kind: catalog.Skill, Name: "-рау", Version: 1, Digest: strings.Repeat("0", 64), Author: ann, FirstPublishedAt: f.clock(),
		PublishedAt: f.clock(),
	}
	event := registry.Event{ID: "old", Kind: old.Kind, Name: old.Name, Version: 1, Digest: old.Digest, Action: registry.Published, By: ann, At: f.clock()}
	if ok, err := f.store.Publish(t.Context(), 0, old, event); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if e, err := f.Entry(t.Context(), catalog.Skill, old.Name); err != nil || e.Version != 1 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := publish(ann, old.Name); err != nil {
		t.Errorf("the next version: %v", err)
	}
}

// windows is a sandbox on Windows, where files have no permissions.
type windows struct{ sandbox.Backend }

func (w windows) ReadDir(ctx context.Context, path string, user sandbox.User) ([]sandbox.DirEntry, error) {
	list, err := w.Backend.ReadDir(ctx, path, user)
	for i := range list {
		list[i].Mode &^= fs.ModePerm
	}
	return list, err
}

// TestWindowsKeepsExecutableBits: a version that is published from Windows has the executable bits
// of the version before.
func TestWindowsKeepsExecutableBits(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/csv/SKILL.md", "# CSV\n")
	f.plant(ann, "skills/csv/tool.py", "print()\n")
	if err := os.Chmod(f.at(ann, "skills/csv/tool.py"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.publish(skill(ann, "csv"))
	f.s.Backend = windows{f.s.Backend}
	f.plant(ann, "skills/csv/tool.py", "print(2)\n")
	f.plant(ann, "skills/csv/new.py", "print(3)\n")
	if e := f.publish(skill(ann, "csv")); e.Version != 2 {
		t.Errorf("%+v", e)
	}
	f.install(skill(bob, "csv"))
	for name, want := range map[string]fs.FileMode{"tool.py": 0o755, "new.py": 0o644, "SKILL.md": 0o644} {
		if fi, err := os.Stat(f.at(bob, "skills/csv/"+name)); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, fi, err)
		}
	}
}

// TestVersions: publishing again makes a new version, and installations keep theirs.
func TestVersions(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# One")
	first := f.publish(skill(ann, "s"))
	f.install(skill(bob, "s"))
	f.later(time.Second)
	if again := f.publish(skill(ann, "s")); again.Version != 1 || again.Digest != first.Digest {
		t.Errorf("the same content is %+v", again)
	}
	f.plant(ann, "skills/s/SKILL.md", "# Two")
	second := f.publish(skill(ann, "s"))
	if second.Version != 2 || second.Digest == first.Digest || !second.FirstPublishedAt.Equal(first.FirstPublishedAt) ||
		!second.PublishedAt.After(first.PublishedAt) {
		t.Errorf("%+v then %+v", first, second)
	}
	f.holds(bob, "skills/s/SKILL.md", "# One")
	if err := f.Uninstall(t.Context(), skill(bob, "s")); err != nil {
		t.Fatal(err)
	}
	f.install(skill(bob, "s"))
	f.holds(bob, "skills/s/SKILL.md", "# Two")
}

// TestNamesBelongToTheirAuthor: another author's publication is refused, also under a name that
// differs by case only.
func TestNamesBelongToTheirAuthor(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, o := range []registry.Owner{ann, bob, {AgentID: "b", UserID: "ann"}} {
		f.plant(o, "skills/s/SKILL.md", "# Of "+o.UserID+o.AgentID)
		f.plant(o, "skills/S/SKILL.md", "# Of "+o.UserID+o.AgentID)
	}
	f.publish(skill(ann, "s"))
	for _, o := range []registry.Owner{bob, {AgentID: "b", UserID: "ann"}} {
		_, err := f.Publish(t.Context(), skill(o, "s"))
		fails(t, "another author", err, fault.NameTaken, `skill "s" belongs to the user ann of the agent a`)
		fails(t, "another author", f.Withdraw(t.Context(), skill(o, "s")), fault.NameTaken, `skill "s" belongs to`)
	}
	_, err := f.Publish(t.Context(), skill(ann, "S"))
	fails(t, "a look-alike", err, fault.NameTaken, `there is a skill "s"`)
	if err := f.Withdraw(t.Context(), skill(ann, "s")); err != nil {
		t.Fatal(err)
	}
	f.publish(skill(bob, "S"))
}

func TestConcurrentInstallationsAndPublications(t *testing.T) {
	t.Parallel()
	f := start(t)
	for _, o := range []registry.Owner{ann, bob} {
		f.plant(o, "skills/s/SKILL.md", "# Of "+o.UserID)
	}
	var all sync.WaitGroup
	var published, installed, refused atomic.Int32
	for i := range 8 {
		all.Go(func() {
			_, err := f.Publish(t.Context(), skill([]registry.Owner{ann, bob}[i%2], "s"))
			if err == nil {
				published.Add(1)
			} else if !fault.Is(err, fault.NameTaken) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if e, err := f.Entry(t.Context(), catalog.Skill, "s"); err != nil || e.Version != 1 || published.Load() != 4 {
		t.Errorf("%+v %v, %d published", e, err, published.Load())
	}
	carl := registry.Owner{AgentID: "a", UserID: "carl"}
	for range 8 {
		all.Go(func() {
			_, err := f.Install(t.Context(), skill(carl, "s"))
			if err == nil {
				installed.Add(1)
			} else if fault.Is(err, fault.AlreadyInstalled) {
				refused.Add(1)
			} else {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if installed.Load() != 1 || refused.Load() != 7 {
		t.Errorf("%d installed, %d refused", installed.Load(), refused.Load())
	}
}
