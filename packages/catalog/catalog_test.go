//go:build linux

package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/sandbox"
)

const undescribed = "there is no description, so agents cannot tell when to use it: add one to the front matter of SKILL.md"

// TestPartialInstallationsAreNoSkills: a directory without its SKILL.md is not listed while it is
// being installed, and the problems say so.
func TestPartialInstallationsAreNoSkills(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *catalog.Config) {
		cfg.Partial = func(_ context.Context, u sandbox.User, name string) (bool, error) {
			return u == user && name != "bare", nil
		}
	})
	for _, name := range []string{"half/README.md", "bare/x", "done/SKILL.md"} {
		f.plant(t, user, "skills/"+name, "# Text\n")
	}
	c := f.of(t, user)
	var names []string
	for _, e := range c.Entries {
		names = append(names, e.Name)
	}
	if !slices.Equal(names, []string{"shell.run", "bare", "done"}) || len(c.Problems) != 1 || c.Problems[0].Path != "/workspace/skills/half" ||
		c.Problems[0].Code != fault.SkillConflict {
		t.Errorf("%v, problems %+v", names, c.Problems)
	}
}

// TestSkillsAndAgents (004 l236, l237, l238, l240, l245, l246, l269, l270, l419–442): skills of the
// service and the user, and agents with their roles.
func TestSkillsAndAgents(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.plant(t, user, "skills/csv/SKILL.md", "---\nname: CSV\ndescription: \"Reads\\ttables.\"\n---\n")
	f.plant(t, user, "skills/lower/skill.md", "---\nname: Lower\ndescription: Works: too\n---\n")
	f.plant(t, user, "skills/notes/README.md", "---\nname: no\n---\n# Notes")
	f.plant(t, user, "skills/tools/run.py", "x")
	f.plant(t, user, "skills/plain.md", "x")
	f.plant(t, user, "agents/reviewer.md", "---\nname: Reviewer\ndescription: Reviews code.\nrole: senior engineer\ntools: [Read]\n---\nYou review.")
	f.plant(t, user, "agents/.hidden.md", "x")
	f.plant(t, user, "agents/notes.txt", "x")
	f.plant(t, user, "agents/dir.md/x", "x")
	c := f.of(t, user)
	want := []catalog.Entry{
		{Kind: catalog.Skill, Name: "shell.run", Title: "Shell", Description: "Runs a command.", Global: true},
		{Kind: catalog.Skill, Name: "csv", Title: "CSV", Description: "Reads tables.", Path: "/workspace/skills/csv/SKILL.md"},
		{Kind: catalog.Skill, Name: "lower", Title: "Lower", Description: "Works: too", Path: "/workspace/skills/lower/skill.md"},
		{
			Kind: catalog.Skill, Name: "notes", Title: "Notes", Description: "No description available.", Path: "/workspace/skills/notes/README.md",
			Warning: undescribed,
		},
		{Kind: catalog.Skill, Name: "tools", Title: "tools", Description: "No description available.", Path: "/workspace/skills/tools", Warning: undescribed},
		{
			Kind: catalog.Agent, Name: "reviewer", Title: "Reviewer", Description: "Reviews code.", Role: "senior engineer",
			Path: "/workspace/agents/reviewer.md",
		},
	}
	if !slices.Equal(c.Entries, want) {
		t.Errorf("%+v", c.Entries)
	}
	if len(c.Problems) != 1 || c.Problems[0].Path != "/workspace/agents/dir.md" {
		t.Errorf("%+v", c.Problems)
	}
}

// TestLinksToSkillsAreFollowed has no directory of agents, which is no problem (004 l247).
func TestLinksToSkillsAreFollowed(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.plant(t, user, "src/csv/SKILL.md", "# Linked")
	f.plant(t, user, "skills/x/SKILL.md", "# X")
	for name, to := range map[string]string{"csv": "../src/csv", "shell.run": "/opt/shell.run"} {
		if err := os.Symlink(to, filepath.Join(f.root, user.ProjectID(), "skills", name)); err != nil {
			t.Fatal(err)
		}
	}
	// A link by the name of a service's skill shows where that is, and is no problem.
	if c := f.of(t, user); !slices.Equal(names(c), []string{"skill shell.run", "skill csv", "skill x"}) || len(c.Problems) != 0 {
		t.Errorf("%+v", c)
	}
}

// TestFiveMinutes (004 l32, l401–418, l443–447): a catalog is kept for 5 minutes, until
// InvalidateCache.
func TestFiveMinutes(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.of(t, user)
	f.plant(t, user, "skills/new/SKILL.md", "# New")
	f.clock.Add(int64(5*time.Minute - 1))
	if got := names(f.of(t, user)); len(got) != 1 || f.s.lists.Load() != 1 {
		t.Errorf("%q, read %d times", got, f.s.lists.Load())
	}
	f.clock.Add(1)
	if got := names(f.of(t, user)); len(got) != 2 || f.s.lists.Load() != 2 {
		t.Errorf("%q, read %d times", got, f.s.lists.Load())
	}
	for _, u := range []sandbox.User{user, {ID: "u"}, {}} {
		before := f.s.lists.Load()
		f.InvalidateCache(u)
		if f.of(t, user); f.s.lists.Load() != before+1 {
			t.Errorf("InvalidateCache(%+v) had no effect", u)
		}
	}
	before := f.s.lists.Load()
	f.InvalidateCache(sandbox.User{AgentID: "other", ID: "u"})
	if f.of(t, user); f.s.lists.Load() != before {
		t.Error("another user's catalog was invalidated")
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]bool{
		"/workspace/skills/a/SKILL.md": true, "/workspace/agents/a.md": true, "/workspace/./skills//a/x": true, "/workspace/notes/../skills/a": true,
		"/workspace/skills": false, "/workspace/skillset/a": false, "/workspace/notes/skills/a": false, "skills/a": false, "": false,
	} {
		if got := catalog.Holds(file); got != want {
			t.Errorf("%q: %v", file, got)
		}
	}
}

// TestUsersApart: line 406 of 004 has one catalog for all users, which would show each user the
// skills of the one who came first.
func TestUsersApart(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	other, agent := sandbox.User{AgentID: "a", ID: "v"}, sandbox.User{AgentID: "b", ID: "u"}
	f.plant(t, user, "skills/mine/SKILL.md", "# Mine")
	f.plant(t, other, "skills/theirs/SKILL.md", "# Theirs")
	for range 2 {
		for u, want := range map[sandbox.User][]string{
			user: {"skill shell.run", "skill mine"}, other: {"skill shell.run", "skill theirs"}, agent: {"skill shell.run"},
		} {
			if got := names(f.of(t, u)); !slices.Equal(got, want) {
				t.Errorf("%+v: %q", u, got)
			}
		}
	}
	if f.s.lists.Load() != 3 {
		t.Errorf("read %d times", f.s.lists.Load())
	}
}

func TestAnotherMachineIsReadAnew(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.of(t, user)
	f.s.mu.Lock()
	f.s.choice = sandbox.Choice{UserID: "u", Backend: sandbox.Remote, Runner: "laptop"}
	f.s.mu.Unlock()
	if f.of(t, user); f.s.lists.Load() != 2 {
		t.Errorf("read %d times", f.s.lists.Load())
	}
}

// TestAwayMachine: a user whose machine is away has the service's skills, and is told why.
func TestAwayMachine(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.plant(t, user, "skills/mine/SKILL.md", "# Mine")
	f.s.away = fault.New(fault.RunnerOffline, "the machine laptop is not connected: start secbox runner")
	c := f.of(t, user)
	if got := names(c); !slices.Equal(got, []string{"skill shell.run"}) || len(c.Problems) != 2 || c.Problems[0].Code != fault.RunnerOffline ||
		!strings.Contains(c.Problems[0].Reason, "start secbox runner") {
		t.Errorf("%q %+v", got, c.Problems)
	}
	f.s.mu.Lock()
	f.s.away = nil
	f.s.mu.Unlock()
	f.clock.Add(int64(5 * time.Second))
	if c := f.of(t, user); len(c.Entries) != 2 || len(c.Problems) != 0 {
		t.Errorf("when it is back: %+v", c)
	}
}

func TestOneReadingForAllCallers(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.s.hold = make(chan struct{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Of(gone, user); err == nil {
		t.Error("a caller that gave up waits")
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			if _, err := f.Of(t.Context(), user); err != nil {
				t.Error(err)
			}
		})
	}
	close(f.s.hold)
	all.Wait()
	if n := f.s.lists.Load(); n != 1 {
		t.Errorf("read %d times", n)
	}
}

// TestInvalidatedWhileRead: a reading that began before InvalidateCache is not kept.
func TestInvalidatedWhileRead(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.s.hold = make(chan struct{})
	first := make(chan error, 1)
	go func() { _, err := f.Of(t.Context(), user); first <- err }()
	for f.s.lists.Load() == 0 {
		f.s.hold <- struct{}{}
	}
	f.InvalidateCache(user)
	close(f.s.hold)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if f.of(t, user); f.s.lists.Load() != 2 {
		t.Errorf("read %d times", f.s.lists.Load())
	}
}

func TestUsersAreBounded(t *testing.T) {
	t.Parallel()
	f := start(t, func(c *catalog.Config) { c.Users = 3 })
	at := func(i int) sandbox.User { return sandbox.User{AgentID: "a", ID: fmt.Sprint("u", i)} }
	for i := range 5 {
		f.clock.Add(1)
		f.of(t, at(i))
	}
	for i, want := range map[int]int32{4: 5, 3: 5, 2: 5} {
		if f.of(t, at(i)); f.s.lists.Load() != want {
			t.Errorf("user %d was read again", i)
		}
	}
	if f.of(t, at(0)); f.s.lists.Load() != 6 {
		t.Error("the catalog that was used longest ago is still kept")
	}
}

// TestReadingsAreBounded: callers that give up leave no more readings behind than may run at once,
// and the others wait.
func TestReadingsAreBounded(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	f.s.hold = make(chan struct{})
	f.s.held = make(chan struct{}, 1000)
	const share, inQueue = 48, 192
	ask := func(ctx context.Context, token string, n int) error {
		_, err := f.Of(sandbox.WithRequest(ctx, sandbox.Request{RequestedBy: token}), sandbox.User{AgentID: "a", ID: fmt.Sprint(token, n)})
		return err
	}
	for n := range share {
		ctx, giveUp := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { gone <- ask(ctx, "t", n) }()
		<-f.s.held
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", n, err)
		}
	}
	ended := make(chan error, inQueue+1)
	for n := range inQueue + 1 { // one of them finds the queue full
		go func() { ended <- ask(t.Context(), "t", share+n) }()
	}
	if err := <-ended; !fault.Is(err, fault.SandboxBusy) || fault.From(err).RetryAfter <= 0 {
		t.Errorf("beyond the share: %v", err)
	}
	other := make(chan error)
	go func() { other <- ask(t.Context(), "other", 0) }()
	<-f.s.held // it waits for nobody
	if n := len(f.s.held); n > 0 {
		t.Errorf("%d readings beyond the share of a token", n)
	}
	close(f.s.hold)
	if err := <-other; err != nil {
		t.Error(err)
	}
	for range inQueue {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestHostileFiles: everything that a user's files hold is bounded and legible.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	dir := filepath.Join(f.root, user.ProjectID(), "skills")
	f.plant(t, user, "skills/ok/SKILL.md", "# Fine")
	f.plant(t, user, "skills/huge/SKILL.md", "---\nname: Huge\ndescription: "+strings.Repeat("x", 1<<16)+"\n---\n"+strings.Repeat("y", 2<<20))
	f.plant(t, user, "skills/long/SKILL.md", "---\ndescription: "+strings.Repeat("long ", 2000)+"\n---\n")
	f.plant(t, user, "skills/odd/SKILL.md", "---\nname: \"a\\0b\\e[31m\\u202e\"\ndescription: |\n  two\n  lines\n---\n")
	f.plant(t, user, "skills/new\nline/SKILL.md", "# x")
	f.plant(t, user, "skills/\xff/SKILL.md", "# x")
	f.plant(t, user, "skills/"+strings.Repeat("n", 201)+"/SKILL.md", "# x")
	f.plant(t, user, "skills/shell.run/SKILL.md", "# Not the service's")
	for _, name := range []string{"fifo", "leads-out", "dir"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		syscall.Mkfifo(filepath.Join(dir, "fifo/SKILL.md"), 0o644), os.Symlink("/etc/passwd", filepath.Join(dir, "leads-out/SKILL.md")),
		os.Symlink("/etc", filepath.Join(dir, "etc")), os.Mkdir(filepath.Join(dir, "dir/SKILL.md"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	c := f.of(t, user)
	if got := names(c); !slices.Equal(got, []string{"skill shell.run", "skill huge", "skill long", "skill odd", "skill ok"}) {
		t.Errorf("%q", got)
	}
	for _, e := range c.Entries {
		if len(e.Title) > 512 || len(e.Description) > 4100 || strings.ContainsAny(e.Title+e.Description, "\n\x00\x1b\u202e") {
			t.Errorf("%+v", e)
		}
	}
	at := map[string]bool{}
	for _, p := range c.Problems {
		at[strings.TrimPrefix(p.Path, catalog.SkillsDir+"/")] = true
		if p.Reason == "" || p.Code == "" {
			t.Errorf("%+v", p)
		}
	}
	for _, name := range []string{
		"new\nline/SKILL.md", "\xff/SKILL.md", strings.Repeat("n", 201) + "/SKILL.md", "fifo/SKILL.md", "leads-out/SKILL.md",
		"etc/SKILL.md", "dir/SKILL.md", "shell.run/SKILL.md",
	} {
		if !at[name] {
			t.Errorf("no problem for %.40q in %q", name, slices.Sorted(maps.Keys(at)))
		}
	}
}

// many lists a million skills, and sends files without end.
type many struct {
	*source
	reads atomic.Int32
}

func (m *many) ReadDir(_ context.Context, path string, _ sandbox.User) ([]sandbox.DirEntry, error) {
	if path == catalog.AgentsDir {
		return nil, nil
	}
	entries := make([]sandbox.DirEntry, 1_000_000)
	for i := range entries {
		entries[i] = sandbox.DirEntry{Name: "s", IsDir: true}
	}
	return entries, nil
}

func (m *many) ReadFileTo(_ context.Context, _ string, w io.Writer, _ sandbox.User) (n int64, err error) {
	m.reads.Add(1)
	for {
		k, err := w.Write(make([]byte, 32<<10))
		if n += int64(k); err != nil {
			return n, err
		}
	}
}

// TestTextIsBounded: the catalogs of all users are in memory.
func TestTextIsBounded(t *testing.T) {
	t.Parallel()
	f := start(t, nil)
	for i := range 60 {
		f.plant(t, user, fmt.Sprintf("skills/s%02d/SKILL.md", i), "---\ndescription: "+strings.Repeat("漢", 1024)+"\n---\n")
	}
	c := f.of(t, user)
	if n := len(c.Entries); n < 40 || n > 43 || len(c.Problems) != 1 || c.Problems[0].Code != fault.TreeTooLarge {
		t.Errorf("%d entries, %+v", n, c.Problems)
	}
}

func TestAMillionSkillsAreBounded(t *testing.T) {
	t.Parallel()
	m := &many{source: &source{}}
	s := catalog.New(catalog.Config{Sandboxes: m})
	c, err := s.Of(t.Context(), user)
	if err != nil || len(c.Entries) != 500 || m.reads.Load() != 500 || len(c.Problems) != 1 {
		t.Errorf("%d entries, %d files read, %+v, %v", len(c.Entries), m.reads.Load(), c.Problems, err)
	}
}
