package workspace_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAHomeIsSavedAndPutBack(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir())
	p, err := w.Project("agent~user")
	if err != nil {
		t.Fatal(err)
	}
	h, err := p.Home()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(w.Root(), "projects", "agent~user", ".home", "home")
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("tool", "one")
	if err := h.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	write("tool", "two")
	write("other", "")
	if !h.Intact() {
		t.Error("a home with other files is another home")
	}
	if err := h.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if h.Intact() {
		t.Error("a home that was put back is the one that was mounted")
	}
	if got, err := os.ReadFile(filepath.Join(home, "tool")); err != nil || string(got) != "one" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := os.Lstat(filepath.Join(home, "other")); err == nil {
		t.Error("what came after the save is still there")
	}

	// A restore that was cut short after the home went out of the way is finished by the next one who asks.
	if h, err = p.Home(); err != nil {
		t.Fatal(err)
	}
	if err := h.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(home); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Home(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(home, "tool")); err != nil || string(got) != "one" {
		t.Errorf("%q %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(home)); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}

func TestAHomeThatIsALinkIsRefused(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"the home": ".home/home", "what it lies in": ".home"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, t.TempDir())
			p, err := w.Project("agent~user")
			if err != nil {
				t.Fatal(err)
			}
			outside := t.TempDir()
			link := filepath.Join(w.Root(), "projects", "agent~user", filepath.FromSlash(at))
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, link); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Home(); err == nil {
				t.Error("a link is taken for a home")
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("%v %v", left, err)
			}
		})
	}
}

func TestAHomeStaysWhenItsWorkspaceIsPacked(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	p := f.project()
	if _, err := p.Home(); err != nil {
		t.Fatal(err)
	}
	project := f.dir
	for _, name := range []string{"work/file", ".home/home/tool"} {
		if err := os.WriteFile(filepath.Join(project, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.later(48 * time.Hour)
	f.pack()
	if _, err := os.Lstat(filepath.Join(project, "work")); err == nil {
		t.Error("work/ is there")
	}
	if fi, err := os.Lstat(filepath.Join(project, ".home", "home", "tool")); err != nil || fi.Mode()&fs.ModeType != 0 {
		t.Errorf("the home: %v", err)
	}
}
