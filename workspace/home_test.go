//go:build unix

package workspace_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"secbox/workspace"
)

func TestHomeIsSavedAndRestored(t *testing.T) {
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
		t.Error("a file from after the save is still there")
	}

	// A restore that was interrupted after the home was moved away is finished by the next one.
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

func TestHomeLinkIsRefused(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"the home": ".home/home", "its parent": ".home"} {
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

// TestIdleHomeIsPacked packs a home with its workspace, not while a container holds it, and brings it back for the next one.
func TestIdleHomeIsPacked(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	home, saved := filepath.Join(f.dir, ".home", "home"), filepath.Join(f.dir, ".home", "saved.tar.zst")
	_, err := f.existing().Home()
	must(t, err)
	tool := filepath.Join(home, ".local", "bin", "tool")
	must(t, os.MkdirAll(filepath.Dir(tool), 0o755))
	must(t, os.WriteFile(tool, []byte("one"), 0o755))
	must(t, os.WriteFile(filepath.Join(f.work, "notes"), []byte("two"), 0o600))

	place, err := f.existing().WorkDir()
	must(t, err)
	f.later(day + time.Minute)
	if done, err := f.tryPack(); done || err != nil {
		t.Errorf("packed while it is in use: %v, %v", done, err)
	}
	if _, err := os.Lstat(tool); err != nil {
		t.Error(err)
	}
	place.Close()

	f.pack()
	if _, err := os.Lstat(home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the home is still there: %v", err)
	}
	_, err = f.existing().Home()
	must(t, err)
	if got, err := os.ReadFile(tool); err != nil || string(got) != "one" {
		t.Errorf("%q %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(home)); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}

	// A home that no pack can hold stays, and the workspace is packed without it. A pack beside a home is an old one.
	must(t, os.WriteFile(saved, []byte("cut short"), 0o600))
	must(t, syscall.Mkfifo(filepath.Join(home, "fifo"), 0o600))
	release, err := f.existing().Use()
	must(t, err)
	release()
	f.pack()
	if _, err := os.Lstat(tool); err != nil {
		t.Error(err)
	}
	if last := f.events[len(f.events)-2]; last.Kind != workspace.IdleKept || last.Err == nil {
		t.Errorf("told %+v", f.events)
	}
	_, err = f.existing().Home()
	must(t, err)
}
