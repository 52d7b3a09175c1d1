//go:build linux

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"secbox/catalog"
	"secbox/fault"
	"secbox/pathadapter"
	"secbox/registry"
	"secbox/sandbox"
	"secbox/sandbox/none"
	"secbox/sandbox/process"
	"secbox/sandbox/sandboxtest"
	"secbox/skills/versions"
	"secbox/store/sqlite"
	"secbox/workspace"
)

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(m.Run())
}

var (
	ann = registry.Owner{AgentID: "a", UserID: "ann"}
	bob = registry.Owner{AgentID: "a", UserID: "bob"}
)

// perUser gives each user a directory.
type perUser string

func (p perUser) Open(ctx context.Context, u sandbox.User) (*sandbox.Directory, error) {
	dir := filepath.Join(string(p), u.ProjectID())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return sandboxtest.Directory(dir).Open(ctx, u)
}

// flaky is a sandbox whose writes can fail, and wait.
type flaky struct {
	sandbox.Backend
	fails atomic.Pointer[string] // writing a path that ends so is an error
	dead  atomic.Bool            // after that every call is, as after a crash
	wait  chan struct{}          // a write waits for it; nil: it does not
	begun chan struct{}
}

var errBroken = fault.New(fault.RunnerOffline, "the machine has gone")

func (f *flaky) WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user sandbox.User) (int64, error) {
	if f.wait != nil {
		f.begun <- struct{}{}
		<-f.wait
	}
	if suffix := f.fails.Load(); suffix != nil && strings.HasSuffix(path, *suffix) {
		return 0, errBroken
	}
	return f.Backend.WriteFileFrom(ctx, path, r, perm, user)
}

func (f *flaky) RemoveAll(ctx context.Context, path string, user sandbox.User) error {
	if f.dead.Load() {
		return errBroken
	}
	return f.Backend.RemoveAll(ctx, path, user)
}

type fixture struct {
	*registry.Registry
	t     *testing.T
	s     *flaky
	store registry.Store
	root  string
	users string

	mu      sync.Mutex
	now     time.Time
	changed []sandbox.User
	global  fstest.MapFS
}

// start makes a registry whose users work in none.
func start(t *testing.T) *fixture {
	users := t.TempDir()
	return startOver(t, users, none.New(none.Config{Directories: perUser(users), Environ: os.Environ()}))
}

// startOver makes a registry over any sandbox, which it closes. users has the directories of its users.
func startOver(t *testing.T, users string, over sandbox.Backend) *fixture {
	base := t.TempDir()
	f := &fixture{t: t, root: filepath.Join(base, "ws"), users: users, now: time.Now(), s: &flaky{Backend: over}}
	adapter, err := pathadapter.New(pathadapter.Config{Mode: pathadapter.Linux, Root: f.root})
	if err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, GID: -1, Now: f.clock})
	if err != nil {
		t.Fatal(err)
	}
	v := versions.New(w)
	db, err := sqlite.Open(t.Context(), filepath.Join(base, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.s.Close(); v.Close(); w.Close(); db.Close() })
	f.store = db.Registry()
	var ids atomic.Int64
	f.Registry, err = registry.New(registry.Config{
		Store: f.store, Versions: v, Sandboxes: f.s, Now: f.clock, NewID: func() string { return fmt.Sprintf("id-%09d", ids.Add(1)) },
		Changed: func(u sandbox.User) { f.mu.Lock(); defer f.mu.Unlock(); f.changed = append(f.changed, u) },
		Global: func(kind catalog.Kind, name string) (fs.FS, bool) {
			return f.global, kind == catalog.Skill && name == "global" && f.global != nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) later(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

// at is a path of a user's workspace on this machine.
func (f *fixture) at(o registry.Owner, name string) string {
	return filepath.Join(f.users, o.AgentID+"~"+o.UserID, name)
}

func (f *fixture) plant(o registry.Owner, name, content string) {
	f.t.Helper()
	at := f.at(o, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) holds(o registry.Owner, name, content string) {
	f.t.Helper()
	got, err := os.ReadFile(f.at(o, name))
	fi, statErr := os.Lstat(f.at(o, name))
	if err != nil || string(got) != content || statErr != nil || !fi.Mode().IsRegular() {
		f.t.Errorf("%s: %q %v, want %q", name, got, errors.Join(err, statErr), content)
	}
}

func (f *fixture) absent(o registry.Owner, name string) {
	f.t.Helper()
	if _, err := os.Lstat(f.at(o, name)); !errors.Is(err, fs.ErrNotExist) {
		f.t.Errorf("%s is there: %v", name, err)
	}
}

func skill(o registry.Owner, name string) registry.Request {
	return registry.Request{Owner: o, Kind: catalog.Skill, Name: name, RequestedBy: "token"}
}

func agent(o registry.Owner, name string) registry.Request {
	return registry.Request{Owner: o, Kind: catalog.Agent, Name: name, RequestedBy: "token"}
}

func (f *fixture) publish(req registry.Request) registry.Entry {
	f.t.Helper()
	e, err := f.Publish(f.t.Context(), req)
	if err != nil {
		f.t.Fatalf("publish %s: %v", req.Name, err)
	}
	return e
}

func (f *fixture) install(req registry.Request) {
	f.t.Helper()
	if _, err := f.Install(f.t.Context(), req); err != nil {
		f.t.Fatalf("install %s: %v", req.Name, err)
	}
}

// fails checks an error: its code, and the beginning of its message.
func fails(t *testing.T, what string, err error, code fault.Code, message string) {
	t.Helper()
	if !fault.Is(err, code) || !strings.HasPrefix(fault.From(err).Message, message) {
		t.Errorf("%s: %v, want %s: %s", what, err, code, message)
	}
}

func (f *fixture) actions(kind catalog.Kind, name string) string {
	f.t.Helper()
	events, err := f.Events(f.t.Context(), kind, name, nil, 100)
	if err != nil {
		f.t.Fatal(err)
	}
	var all []string
	for _, e := range events {
		all = append([]string{e.By.UserID + " " + string(e.Action)}, all...)
		if e.RequestedBy != "token" || e.Digest == "" || e.At.IsZero() {
			f.t.Errorf("%+v", e)
		}
	}
	return strings.Join(all, ", ")
}

// TestSkillFromAuthorToUser: l252–272, l457–521: publish from a user's workspace, install into another's, uninstall.
func TestSkillFromAuthorToUser(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/csv/SKILL.md", "---\nname: CSV\ndescription: Reads tables.\n---\n")
	f.plant(ann, "skills/csv/bin/run", "#!/bin/sh\necho hi\n")
	f.plant(ann, "lib/shared.py", "shared")
	if err := os.Symlink("../../lib/shared.py", f.at(ann, "skills/csv/shared.py")); err != nil {
		t.Fatal(err)
	}
	e := f.publish(skill(ann, "csv"))
	if e.Version != 1 || e.Author != ann || e.Description != "Reads tables." || e.Files != 3 || len(e.Digest) != 64 || e.RequestedBy != "token" {
		t.Errorf("%+v", e)
	}
	f.install(skill(bob, "csv"))
	f.holds(bob, "skills/csv/SKILL.md", "---\nname: CSV\ndescription: Reads tables.\n---\n")
	f.holds(bob, "skills/csv/shared.py", "shared") // l38, l41: a link becomes a file
	f.holds(bob, "skills/csv/bin/run", "#!/bin/sh\necho hi\n")
	if fi, err := os.Stat(f.at(bob, "skills/csv/bin/run")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("the program cannot be run: %v %v", fi, err)
	}
	_, err := f.Install(t.Context(), skill(bob, "csv")) // l464
	fails(t, "a second installation", err, fault.AlreadyInstalled, `skill "csv" already installed`)

	if err := f.Uninstall(t.Context(), skill(bob, "csv")); err != nil { // l260
		t.Fatal(err)
	}
	f.absent(bob, "skills/csv")
	fails(t, "a second removal", f.Uninstall(t.Context(), skill(bob, "csv")), fault.UnknownEntry, `skill "csv" not found`)
	f.install(skill(bob, "csv"))
	if got, want := f.actions(catalog.Skill, "csv"), "ann published, bob install_begun, bob installed, bob uninstall_begun, bob uninstalled, bob install_begun, bob installed"; got != want {
		t.Errorf("on record: %s\nwant       %s", got, want)
	}
	if len(f.changed) != 3 || f.changed[0] != (sandbox.User{AgentID: "a", ID: "bob"}) {
		t.Errorf("changed: %+v", f.changed)
	}
}

// TestAgentFromAuthorToUser: l255–258, l261, l266: an agent is one file.
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

// TestNotFound: l491: publishing a skill that does not exist.
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

// TestGlobalFirst: l271, l523–532: the service's own skill is found before the user's.
func TestGlobalFirst(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.global = fstest.MapFS{"SKILL.md": {Data: []byte("# The service's")}, "sub/x": {Data: []byte("x")}}
	f.plant(ann, "skills/global/SKILL.md", "# Ann's")
	if e := f.publish(skill(ann, "global")); e.Files != 2 {
		t.Errorf("%+v", e)
	}
	_, err := f.Install(t.Context(), skill(bob, "global"))
	fails(t, "install", err, fault.AlreadyInstalled, `skill "global" already installed`)
	f.global = nil
	f.install(skill(bob, "global"))
	f.holds(bob, "skills/global/SKILL.md", "# The service's")
	f.holds(bob, "skills/global/sub/x", "x")
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
	if second.Version != 2 || second.Digest == first.Digest || !second.FirstPublishedAt.Equal(first.FirstPublishedAt) || !second.PublishedAt.After(first.PublishedAt) {
		t.Errorf("%+v then %+v", first, second)
	}
	f.holds(bob, "skills/s/SKILL.md", "# One")
	if err := f.Uninstall(t.Context(), skill(bob, "s")); err != nil {
		t.Fatal(err)
	}
	f.install(skill(bob, "s"))
	f.holds(bob, "skills/s/SKILL.md", "# Two")
}

// TestNamesBelongToTheirAuthor: another author's publication is refused, also under a name that differs by case only.
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

// TestSecondInstallationAtOnce: while files are written, the skill is not there for a reader, and is there for a second installation.
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

// TestFailedInstallationLeavesNothing: l480: an error of a write is "write: …", and the files are removed.
func TestFailedInstallationLeavesNothing(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.plant(ann, "skills/s/a/b", "b")
	f.publish(skill(ann, "s"))
	suffix := catalog.SkillFile
	f.s.fails.Store(&suffix)
	_, err := f.Install(t.Context(), skill(bob, "s"))
	fails(t, "install", err, fault.RunnerOffline, "write: the machine has gone")
	f.absent(bob, "skills/s")
	f.s.fails.Store(nil)
	f.install(skill(bob, "s"))
	if got, want := f.actions(catalog.Skill, "s"), "ann published, bob install_begun, bob install_failed, bob install_begun, bob installed"; got != want {
		t.Errorf("on record: %s", got)
	}
}

// TestCrashBetweenTwoWrites: the next installation replaces the files of a crashed one, and never the user's own.
func TestCrashBetweenTwoWrites(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.plant(ann, "skills/s/SKILL.md", "# S")
	f.plant(ann, "skills/s/a", "a")
	f.publish(skill(ann, "s"))
	suffix := catalog.SkillFile
	f.s.fails.Store(&suffix)
	f.s.dead.Store(true)
	if _, err := f.Install(t.Context(), skill(bob, "s")); err == nil {
		t.Fatal("installed")
	}
	f.holds(bob, "skills/s/a", "a")
	f.absent(bob, "skills/s/SKILL.md")
	// As if the process had ended before it stored the failure.
	last, _, err := f.store.Install(t.Context(), bob, catalog.Skill, "s")
	if err != nil || last.State != registry.Failed {
		t.Fatalf("%+v %v", last, err)
	}
	crashed := last
	crashed.State = registry.Installing
	if ok, err := f.store.SetInstall(t.Context(), &last, crashed, registry.Event{ID: "x", RequestedBy: "token", Digest: "-", At: f.clock()}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	f.s.fails.Store(nil)
	f.s.dead.Store(false)
	_, err = f.Install(t.Context(), skill(bob, "s"))
	fails(t, "before the time-out", err, fault.AlreadyInstalled, `skill "s" already installed`)
	f.plant(bob, "skills/s/leftover", "x")
	f.later(registry.InstallTimeout)
	f.install(skill(bob, "s"))
	f.holds(bob, "skills/s/SKILL.md", "# S")
	f.absent(bob, "skills/s/leftover")
}

// TestInterruptedRemoval: SKILL.md goes first, and the removal can be repeated, or followed by an installation.
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

// TestHostileSkills: l497: an error of reading is "read skill: …".
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
		"a FIFO beside it":          {func(dir string) error { return syscall.Mkfifo(dir+"/pipe", 0o644) }, fault.PathRefused, "read skill: "},
		"a link to etc":             {func(dir string) error { return os.Symlink("/etc", dir+"/etc") }, fault.PathRefused, "read skill: "},
		"a link to passwd":          {func(dir string) error { return os.Symlink("../../../../../../etc/passwd", dir+"/p") }, fault.PathRefused, "read skill: "},
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

// TestLostVersion: l478: an error of reading the published files is "read cache: …".
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
