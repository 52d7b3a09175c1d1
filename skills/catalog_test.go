package skills

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"secbox/fault"
)

// named returns the demo with another id.
func named(t testing.TB, id string) files {
	return demo().with(ManifestFile, set(t, "/id", `"`+id+`"`))
}

// replace atomically replaces a skill's folder, as a deployment would.
func replace(t testing.TB, dir, folder string, f files) {
	t.Helper()
	f.write(t, filepath.Join(dir, ".new"))
	must(t, os.RemoveAll(filepath.Join(dir, folder)))
	must(t, os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, folder)))
}

func ids(s *Snapshot) string {
	var list []string
	for _, skill := range s.Skills() {
		if skill.Source == SkillsDir {
			list = append(list, skill.ID())
		}
	}
	return strings.Join(list, " ")
}

func TestBrokenSkillHidesOnlyItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named(t, "b.ok").write(t, filepath.Join(dir, "b.ok"))
	named(t, "a.ok").write(t, filepath.Join(dir, "a.ok"))
	named(t, "a.ok").write(t, filepath.Join(dir, "a.other"))
	demo().without(ManifestFile).write(t, filepath.Join(dir, "My Skill"))
	files{"x": "neither of the two files"}.write(t, filepath.Join(dir, "assets"))
	demo().write(t, filepath.Join(dir, "_draft.skill"))
	demo().write(t, filepath.Join(dir, ".hidden.skill"))
	files{"README.md": "a file, no folder"}.write(t, dir)
	now := open(t, dir).Now()
	if got := ids(now); got != "a.ok b.ok" {
		t.Errorf("skills: %s", got)
	}
	var broken []string
	for _, b := range now.Broken() {
		broken = append(broken, b.Source+" "+b.Folder)
	}
	if got := strings.Join(broken, ", "); got != "skills_dir My Skill, skills_dir a.other" {
		t.Errorf("broken: %s", got)
	}
	_, err := now.Get("a.other")
	if !fault.Is(err, fault.UnknownSkill) || !strings.Contains(fault.From(err).Message, "broken=true") || fault.From(err).Fields[0].Reason != "is broken" {
		t.Errorf("%v", err)
	}
	_, err = now.Get("no.such")
	if !fault.Is(err, fault.UnknownSkill) || strings.Contains(fault.From(err).Message, "broken") ||
		fault.From(err).Fields[0].Reason != "is not in the catalog" {
		t.Errorf("%v", err)
	}
}

func TestTwoSkillsWithOneID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named(t, "shell.run").write(t, filepath.Join(dir, "shell.run"))
	c := open(t, dir)
	s, err := c.Now().Get("shell.run")
	must(t, err)
	if s.Source != BuiltIn {
		t.Errorf("the operator's folder took the place of a built-in skill")
	}
	problems := brokenOf(t, c.Now(), "shell.run")
	if len(problems) != 1 || problems[0].Pointer != "/id" || !strings.Contains(problems[0].Reason, "a skill that is there already (built-in) and stays") {
		t.Errorf("%+v", problems)
	}
	layer, err := c.Layer("shell.run")
	must(t, err)
	if layer.Image != nil {
		t.Error("the layer is the operator's")
	}
	if _, err := c.Layer("no.such"); !fault.Is(err, fault.UnknownSkill) {
		t.Error(err)
	}
}

func TestUnreadableSkillsDir(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{filepath.Join(t.TempDir(), "none"), file} {
		_, err := Open(Config{Dir: dir})
		e := fault.From(err)
		if e.Code != fault.InvalidSettings || !strings.Contains(e.Message, "sandbox.skills_dir") || !strings.Contains(e.Message, dir) ||
			len(e.Fields) != 1 || e.Fields[0].Field != "sandbox.skills_dir" {
			t.Errorf("%s: %v", dir, err)
		}
	}
	crowded := t.TempDir()
	for n := range maxFolders + 1 {
		must(t, os.WriteFile(filepath.Join(crowded, fmt.Sprint(n)), nil, 0o600))
	}
	if _, err := Open(Config{Dir: crowded}); !fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), "more than 10000 entries") {
		t.Error(err)
	}
}

// syncBuffer is a log that several goroutines can write to.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// lines returns the lines logged since the last call, without times.
func (s *syncBuffer) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.TrimSpace(s.b.String())
	s.b.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := &syncBuffer{}
	c, err := Open(Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))})
	must(t, err)
	log.lines()
	step := func(what string, change func(), changed bool, wantIDs string, logged ...string) {
		t.Helper()
		before := c.Now()
		change()
		if got := c.Reload(); got != changed {
			t.Errorf("%s: changed is %v", what, got)
		}
		if got := ids(c.Now()); got != wantIDs {
			t.Errorf("%s: skills are %q, not %q", what, got, wantIDs)
		}
		if (before.Version() != c.Now().Version()) != changed {
			t.Errorf("%s: version", what)
		}
		lines := log.lines()
		if len(lines) != len(logged) {
			t.Errorf("%s: logged %q", what, lines)
		}
		for n, line := range lines {
			if n < len(logged) && !strings.Contains(line, logged[n]) {
				t.Errorf("%s: logged %s, not %s", what, line, logged[n])
			}
		}
		if c.Reload() || len(log.lines()) > 0 {
			t.Errorf("%s: once more, it says that something has changed", what)
		}
	}
	step("nothing", func() {}, false, "")
	step("a new one", func() { replace(t, dir, "text.demo", demo()) }, true, "text.demo", `msg="skill loaded" skill_id=text.demo`)
	old, err := c.Now().Get("text.demo")
	must(t, err)
	step("the same again", func() { replace(t, dir, "text.demo", demo()) }, false, "text.demo")
	if same, _ := c.Now().Get("text.demo"); same != old {
		t.Error("an unchanged skill is another one")
	}
	step("a script edited in place, of equal size", func() {
		must(t, os.WriteFile(filepath.Join(dir, "text.demo", "run.sh"), []byte("echo ho\n"), 0o644))
	}, true, "text.demo", `msg="skill replaced" skill_id=text.demo`)
	step("a second one", func() { replace(t, dir, "a.b", named(t, "a.b")) }, true, "a.b text.demo", `msg="skill loaded" skill_id=a.b`)
	step("half a manifest", func() {
		must(t, os.WriteFile(filepath.Join(dir, "a.b", ManifestFile), []byte(good[:200]), 0o644))
	}, true, "text.demo", `msg="skill removed" skill_id=a.b`, `msg="skill broken" folder=a.b source=skills_dir file=manifest.json`)
	step("another half", func() {
		must(t, os.WriteFile(filepath.Join(dir, "a.b", ManifestFile), []byte("{?"), 0o644))
	}, true, "text.demo", `msg="skill broken" folder=a.b`)
	step("the rest", func() {
		must(t, os.WriteFile(filepath.Join(dir, "a.b", ManifestFile), []byte(set(t, "/id", `"a.b"`)), 0o644))
	}, true, "a.b text.demo", `msg="skill loaded" skill_id=a.b`)
	step("gone", func() { must(t, os.RemoveAll(filepath.Join(dir, "a.b"))) }, true, "text.demo", `msg="skill removed" skill_id=a.b`)
	step("the folder away", func() { must(t, os.Rename(dir, dir+".away")) }, false, "text.demo", `msg="the folder of skills cannot be read`)
	step("the folder still away", func() {}, false, "text.demo")
	step("the folder back", func() { must(t, os.Rename(dir+".away", dir)) }, false, "text.demo", `msg="the folder of skills can be read again"`)
	step("an empty folder in its place", func() {
		must(t, os.Rename(dir, dir+".away"))
		must(t, os.Mkdir(dir, 0o755))
	}, true, "", `msg="skill removed" skill_id=text.demo`)
	if old.Readme != "# Demo\n" {
		t.Error("a skill in use has changed")
	}
}

// TestUnchangedFolderIsNotReadAgain checks it for files that are older than the ticks of file
// systems' clocks.
func TestUnchangedFolderIsNotReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	demo().write(t, filepath.Join(dir, "text.demo"))
	named(t, "a.b").write(t, filepath.Join(dir, "a.b"))
	s := &source{name: SkillsDir, open: func() (sourceDir, error) { return openDisk(dir) }, settle: time.Hour}
	must(t, s.refresh())
	must(t, s.refresh())
	if s.reads != 4 {
		t.Errorf("%d reads: recent changes must be read again", s.reads)
	}
	s.settle = -1
	must(t, s.refresh())
	must(t, s.refresh())
	must(t, s.refresh())
	if s.reads != 6 {
		t.Errorf("%d reads of two folders that did not change", s.reads-4)
	}
	// The file is written, and its size and modification time are restored: only its change time
	// differs.
	path := filepath.Join(dir, "a.b", "run.sh")
	fi, err := os.Stat(path)
	must(t, err)
	must(t, os.WriteFile(path, []byte("echo ho\n"), 0o644))
	if runtime.GOOS != "windows" { // where no change time is read
		must(t, os.Chtimes(path, time.Time{}, fi.ModTime()))
	}
	before := s.states["a.b"].skill.Digest
	must(t, s.refresh())
	if s.reads != 7 || s.states["a.b"].skill.Digest == before {
		t.Errorf("%d reads", s.reads-6)
	}
}

// changing is a file system in which a file changes when another one is opened.
type changing struct {
	fs.FS   // no more than Open: MapFS has shortcuts around it
	reading func()
}

func (c changing) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "run.sh") {
		c.reading()
	}
	return c.FS.Open(name)
}

func TestFolderChangesWhileItIsRead(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{}
	for path, content := range demo() {
		tree["text.demo/"+path] = &fstest.MapFile{Data: []byte(content)}
	}
	change := func() {}
	c := changing{tree, func() { change() }}
	s := source{name: SkillsDir, settle: -1, open: func() (sourceDir, error) { return embeddedSource{embedded{c}}, nil }}
	n := 0
	change = func() {
		n++
		tree["text.demo/extra"] = &fstest.MapFile{Data: []byte(strings.Repeat("x", n))}
	}
	must(t, s.refresh())
	if k := s.states["text.demo"]; k.skill != nil || !strings.Contains(k.problems[0].Reason, "changed while it was read") {
		t.Fatalf("%+v", k)
	}
	change = func() {}
	must(t, s.refresh())
	first := s.states["text.demo"].skill
	if first == nil {
		t.Fatalf("%+v", s.states["text.demo"])
	}
	// The skill stays while its folder is being changed, and is replaced after that.
	tree["text.demo/other"] = &fstest.MapFile{}
	change = func() {
		n++
		tree["text.demo/extra"] = &fstest.MapFile{Data: []byte(strings.Repeat("x", n))}
	}
	must(t, s.refresh())
	if k := s.states["text.demo"]; k.skill != first || k.settled {
		t.Fatalf("%+v", k)
	}
	change = func() {}
	must(t, s.refresh())
	if k := s.states["text.demo"]; k.skill == nil || k.skill == first {
		t.Fatalf("%+v", k)
	}
}

func TestListenersGetChangesInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir)
	heard := make(chan string, 100)
	c.OnChange(func(s *Snapshot) { heard <- "1 " + ids(s) })
	c.OnChange(func(s *Snapshot) { heard <- "2 " + ids(s) })
	replace(t, dir, "a.a", named(t, "a.a"))
	c.Reload() // before Watch runs
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Watch(ctx, time.Hour)
	}()
	replace(t, dir, "b.b", named(t, "b.b"))
	c.Reload()
	must(t, os.RemoveAll(filepath.Join(dir, "a.a")))
	c.Reload()
	for _, want := range []string{"1 a.a", "2 a.a", "1 a.a b.b", "2 a.a b.b", "1 b.b", "2 b.b"} {
		if got := <-heard; got != want {
			t.Errorf("heard %q, not %q", got, want)
		}
	}
	cancel()
	<-ended
	if len(heard) > 0 {
		t.Errorf("heard %s too", <-heard)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir)
	heard := make(chan *Snapshot, 100)
	c.OnChange(func(s *Snapshot) { heard <- s })
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		c.Watch(ctx, time.Millisecond)
	}()
	replace(t, dir, "text.demo", demo())
	for s := range heard {
		if ids(s) == "text.demo" {
			break
		}
	}
	cancel()
	<-ended
}

// TestConcurrentUse is for the race detector, and checks that no incomplete catalog is ever
// visible.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	replace(t, dir, "text.demo", demo())
	c := open(t, dir)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				now := c.Now()
				if len(now.Skills())+len(now.Broken()) == 0 || now.Version() == "" {
					t.Error("an empty catalog")
				}
				if s, err := now.Get("text.demo"); err == nil {
					must(t, s.CheckInputs(t.Context(), []byte(`{"text":"x"}`)))
				}
				c.Reload()
			}
		})
	}
	for n := range 30 {
		must(t, os.WriteFile(filepath.Join(dir, "text.demo", "run.sh"), fmt.Appendf(nil, "echo %d\n", n), 0o644))
	}
	must(t, os.RemoveAll(filepath.Join(dir, "text.demo")))
	close(stop)
	wait.Wait()
	c.Reload()
	if got := ids(c.Now()); got != "" {
		t.Error(got)
	}
}

func TestEqualCatalogsHaveEqualVersions(t *testing.T) {
	t.Parallel()
	make := func(f files) string {
		dir := t.TempDir()
		f.write(t, filepath.Join(dir, "text.demo"))
		return open(t, dir).Now().Version()
	}
	a, b, broken, other := make(demo()), make(demo()), make(demo().with(ManifestFile, "{}")), make(demo().with(ManifestFile, "[]"))
	if a != b || a == broken || broken == other || a == open(t, "").Now().Version() {
		t.Error(a, b, broken, other)
	}
}

func TestPendingQueueIsBounded(t *testing.T) {
	t.Parallel()
	c := open(t, "")
	c.OnChange(func(*Snapshot) {})
	for range 100 {
		c.announce(&Snapshot{})
	}
	if len(c.pending) != maxPending {
		t.Error(len(c.pending))
	}
}
