//go:build linux

package registry_test

import (
	"testing"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/sandbox"
)

// TestSecondInstallationAtOnce: while files are written, the skill is not there for a reader, and
// is there for a second installation.
func TestSecondInstallationAtOnce(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.publish(skill(ann, "s"))
	f.s.wait, f.s.begun = make(chan struct{}), make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() { _, err := f.Install(t.Context(), skill(bob, "s")); done <- err }()
	<-f.s.begun
	f.absent(bob, "skills/s/SKILL.md")
	_, err := f.Install(t.Context(), skill(bob, "s"))
	fails(t, "the second", err, fault.AlreadyInstalled, `skill "s" already installed`)
	fails(t, "a removal", f.Uninstall(t.Context(), skill(bob, "s")), fault.AlreadyInstalled, `skill "s" already installed`)
	close(f.s.wait)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// publishTwoFiles publishes a skill of two files.
func (f *fixture) publishTwoFiles() {
	f.t.Helper()
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.plant(ann, "skills/s/a/b", "b")
	f.publish(skill(ann, "s"))
}

// TestFailedInstallationLeavesNothing (004 l474–485): an error is "mkdir: …" or "write: …", and the
// files are removed.
func TestFailedInstallationLeavesNothing(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.publishTwoFiles()
	for suffix, text := range map[string]string{catalog.SkillFile: "write: the machine has gone", "skills/s/a": "mkdir: the machine has gone"} {
		f.s.fails.Store(&suffix)
		_, err := f.Install(t.Context(), skill(bob, "s"))
		fails(t, "install", err, fault.RunnerOffline, text)
		f.absent(bob, "skills/s")
	}
	f.s.fails.Store(nil)
	f.install(skill(bob, "s"))
	if got, want := f.actions(catalog.Skill, "s"),
		"ann published, bob install_begun, bob install_failed, bob install_begun, bob install_failed, bob install_begun, bob installed"; got != want {
		t.Errorf("on record: %s", got)
	}
}

// isPartial checks whether bob's skill s may have a part of its files.
func (f *fixture) isPartial(want bool) {
	f.t.Helper()
	if got, err := f.Partial(f.t.Context(), sandbox.User{AgentID: bob.AgentID, ID: bob.UserID}, "s"); got != want || err != nil {
		f.t.Errorf("partial is %v, want %v (%v)", got, want, err)
	}
}

// TestCrashBetweenTwoWrites: the next installation replaces the files of a crashed one, and never
// the user's own.
func TestCrashBetweenTwoWrites(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.publishTwoFiles()
	suffix := catalog.SkillFile
	f.s.fails.Store(&suffix)
	f.s.dead.Store(true)
	if _, err := f.Install(t.Context(), skill(bob, "s")); err == nil {
		t.Fatal("installed")
	}
	f.holds(bob, "skills/s/a/b", "b")
	f.absent(bob, "skills/s/SKILL.md")
	f.isPartial(true)
	// As if the process had ended before it stored the failure.
	last, _, err := f.store.Install(t.Context(), bob, catalog.Skill, "s")
	if err != nil || last.State != registry.Failed {
		t.Fatalf("%+v %v", last, err)
	}
	crashed := last
	crashed.State = registry.Installing
	if ok, err := f.store.SetInstall(t.Context(), &last, crashed, registry.Event{ID: "x", RequestedBy: "token", Digest: "-", At: f.clock()}); !ok ||
		err != nil {
		t.Fatal(ok, err)
	}
	f.isPartial(true)
	f.s.fails.Store(nil)
	f.s.dead.Store(false)
	_, err = f.Install(t.Context(), skill(bob, "s"))
	fails(t, "before the time-out", err, fault.AlreadyInstalled, `skill "s" already installed`)
	f.plant(bob, "skills/s/leftover", "x")
	f.later(registry.InstallTimeout)
	f.install(skill(bob, "s"))
	f.holds(bob, "skills/s/SKILL.md", "# S")
	f.absent(bob, "skills/s/leftover")
	f.isPartial(false)
}

// TestInterruptedRemoval: SKILL.md goes first, and the removal can be repeated, or followed by an
// installation.
func TestInterruptedRemoval(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.plant(ann, "skills/s/a", "a")
	f.publish(skill(ann, "s"))
	for _, again := range []func() error{
		func() error { return f.Uninstall(t.Context(), skill(bob, "s")) },
		func() error {
			_, err := f.Install(t.Context(), skill(bob, "s"))
			fails(t, "before the time-out", err, fault.AlreadyInstalled, `skill "s" already installed`)
			f.later(registry.InstallTimeout)
			_, err = f.Install(t.Context(), skill(bob, "s"))
			return err
		},
	} {
		f.install(skill(bob, "s"))
		f.s.dead.Store(true)
		fails(t, "the removal", f.Uninstall(t.Context(), skill(bob, "s")), fault.RunnerOffline, "remove: the machine has gone")
		f.absent(bob, "skills/s/SKILL.md")
		f.holds(bob, "skills/s/a", "a")
		f.s.dead.Store(false)
		if err := again(); err != nil {
			t.Fatal(err)
		}
	}
	f.holds(bob, "skills/s/SKILL.md", "# S")
}

// TestTwoRemovalsAtOnce: an installation waits for both: the slower one would remove its files.
func TestTwoRemovalsAtOnce(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.publish(skill(ann, "s"))
	f.install(skill(bob, "s"))
	f.s.removals = make(chan chan struct{})
	remove := func() chan error {
		done := make(chan error, 1)
		go func() { done <- f.Uninstall(t.Context(), skill(bob, "s")) }()
		return done
	}
	first := remove()
	firstTurn := <-f.s.removals
	second := remove()
	secondTurn := <-f.s.removals
	close(firstTurn)
	fails(t, "the first removal", <-first, fault.OutcomeUnknown, "another request")
	_, err := f.Install(t.Context(), skill(bob, "s"))
	fails(t, "an installation meanwhile", err, fault.AlreadyInstalled, `skill "s" already installed: another request`)
	close(secondTurn)
	if err := <-second; err != nil {
		t.Errorf("the second removal: %v", err)
	}
	f.install(skill(bob, "s"))
	f.holds(bob, "skills/s/SKILL.md", "# S")
}

// TestOwnFilesAfterFailedInstallation: what the user puts in the place of a failed installation is
// not removed; what the installation left is.
func TestOwnFilesAfterFailedInstallation(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.plant(ann, "skills/s/a", "a")
	f.plant(ann, "agents/x.md", "# X")
	f.publish(skill(ann, "s"))
	f.publish(agent(ann, "x"))
	suffix := ".md"
	f.s.fails.Store(&suffix)
	for _, req := range []registry.Request{skill(bob, "s"), agent(bob, "x")} {
		_, err := f.Install(t.Context(), req)
		fails(t, "install", err, fault.RunnerOffline, "write: ")
	}
	f.plant(bob, "skills/s/SKILL.md", "# mine")
	f.plant(bob, "agents/x.md", "# mine")
	for _, req := range []registry.Request{skill(bob, "s"), agent(bob, "x")} {
		fails(t, "uninstall", f.Uninstall(t.Context(), req), fault.UnknownEntry, string(req.Kind)+" ")
	}
	f.holds(bob, "skills/s/SKILL.md", "# mine")
	f.holds(bob, "agents/x.md", "# mine")

	f.s.dead.Store(true)
	carol := registry.Owner{AgentID: "a", UserID: "carol"}
	if _, err := f.Install(t.Context(), skill(carol, "s")); err == nil {
		t.Fatal("installed")
	}
	f.s.dead.Store(false)
	f.holds(carol, "skills/s/a", "a")
	if err := f.Uninstall(t.Context(), skill(carol, "s")); err != nil {
		t.Error(err)
	}
	f.absent(carol, "skills/s")
}

// TestFullDisk: nothing is written when the disk has no room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.publish(skill(ann, "s"))
	f.Room = func() error { return fault.New(fault.DiskFull, "full") }
	_, err := f.Install(t.Context(), skill(bob, "s"))
	fails(t, "install", err, fault.DiskFull, "")
	_, err = f.Publish(t.Context(), skill(ann, "s"))
	fails(t, "publish", err, fault.DiskFull, "")
	f.absent(bob, "skills")
}
