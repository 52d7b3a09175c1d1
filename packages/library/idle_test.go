//go:build unix

package library_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/sandbox/sandboxtest"
	"secbox/workspace"
)

// idleFixture is a library in which every workspace is idle.
type idleFixture struct{ *fixture }

func setUpIdle(t testing.TB) *idleFixture {
	t.Helper()
	f := &idleFixture{fixture: setUp(t)}
	f.Library = f.another()
	return f
}

// another returns a library of another node.
func (f *idleFixture) another() *library.Library {
	f.t.Helper()
	adapter, err := pathadapter.New(pathadapter.Config{Root: f.root})
	must(f.t, err)
	owner := -1
	if os.Geteuid() == 0 {
		owner = 1000
	}
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner, GID: owner, MarkEvery: 1})
	must(f.t, err)
	f.t.Cleanup(func() { must(f.t, w.Close()) })
	l, err := library.New(library.Config{Workspace: w, Versions: versions.New(w), Registry: f.registry})
	must(f.t, err)
	return l
}

// drop drops idle copies.
func (f *idleFixture) drop() {
	f.t.Helper()
	must(f.t, f.DropIdleCopies(f.t.Context(), 0))
}

func TestStoredCopiesAreDropped(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	for _, id := range []string{"same", "own", "edited", "resized", "chmodded", "roomier", "linked", "touched"} {
		f.upload(alice, library.Baseline, id, demo)
		must(t, f.Materialise(t.Context(), alice, id))
	}
	f.upload(alice, library.Overlay, "own", tree{"SKILL.md": "# Own\n"})
	f.edit(alice, "edited", "a.txt", "new")
	must(t, f.SandboxEdit(t.Context(), alice, "skills/born/SKILL.md", []byte("# Born\n"), nil))
	must(t, f.SandboxEdit(t.Context(), alice, "notes/today.txt", []byte("plain"), nil))
	f.sameSizeEdit("resized")
	must(t, os.Chmod(filepath.Join(f.copyDir(alice, "chmodded"), "SKILL.md"), 0o600))
	must(t, os.Mkdir(filepath.Join(f.copyDir(alice, "roomier"), "empty"), 0o755))
	must(t, os.Symlink("/etc/passwd", filepath.Join(f.copyDir(alice, "linked"), "link")))
	long := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(filepath.Join(f.copyDir(alice, "touched"), "SKILL.md"), long, long)) // no content, and no reason to keep a copy
	before, contents := f.list(alice), f.all()
	f.drop()
	if after := f.list(alice); !slices.Equal(after, before) {
		t.Errorf("the list was\n%+v, and is\n%+v", before, after)
	}
	if now := f.all(); !maps.EqualFunc(now, contents, maps.Equal) {
		t.Errorf("the files were\n%+v, and are\n%+v", contents, now)
	}
	for id, there := range map[string]bool{
		"same": false, "own": false, "touched": false,
		"edited": true, "born": true, "resized": true, "chmodded": true, "roomier": true, "linked": true,
	} {
		if f.exists(f.copyDir(alice, id)) != there {
			t.Errorf("the copy of %s is there: %v", id, !there)
		}
	}
	if got, err := f.SandboxRead(t.Context(), alice, "notes/today.txt"); err != nil || string(got) != "plain" {
		t.Errorf("a plain file is %q (%v)", got, err)
	}
	if f.status(alice, "resized") != library.Modified {
		t.Error("an edit of the same size is not seen")
	}
	// Dropped copies are made again.
	must(t, f.Materialise(t.Context(), alice, "same"))
	f.edit(alice, "same", "more.txt", "1")
	if f.content(alice, "same", "SKILL.md") != demo["SKILL.md"] {
		t.Error("a new copy is another")
	}
}

// all returns the user's skills with their files.
func (f *idleFixture) all() map[string]map[string]string {
	f.t.Helper()
	all := map[string]map[string]string{}
	for _, one := range f.list(alice) {
		all[one.SkillID] = f.everything(alice, one.SkillID)
	}
	return all
}

// sameSizeEdit changes a file and restores its size and times, except for the inode's change time.
func (f *idleFixture) sameSizeEdit(id string) {
	f.t.Helper()
	path := filepath.Join(f.copyDir(alice, id), "SKILL.md")
	fi, err := os.Stat(path)
	must(f.t, err)
	content, err := os.ReadFile(path)
	must(f.t, err)
	content[len(content)-2] ^= 1
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(f.t, err)
	_, err = file.Write(content)
	must(f.t, err)
	must(f.t, file.Close())
	must(f.t, os.Chtimes(path, fi.ModTime(), fi.ModTime()))
}

// TestCopiesOfOlderVersionsAreDropped: also of those that were stored before modes counted.
func TestCopiesOfOlderVersionsAreDropped(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	older := f.uploadOlder(oddOnes)
	f.Library = f.another()
	f.executables(alice)
	f.drop()
	if f.exists(f.copyDir(alice, "script")) {
		t.Error("the copy is still there")
	}
	if got := f.executables(alice); got != "tool.py" || f.listed(alice, "script").Digest != older {
		t.Errorf("made again, executable are %q", got)
	}
}

// A copy stays when the server has lost the version, or the version is damaged.
func TestCopiesOfLostVersionsStay(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(version string) error{
		"gone": os.RemoveAll,
		"damaged": func(version string) error {
			return os.WriteFile(filepath.Join(version, "SKILL.md"), []byte("?"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUpIdle(t)
			up := f.upload(alice, library.Baseline, "demo", demo)
			must(t, f.Materialise(t.Context(), alice, "demo"))
			must(t, lose(filepath.Join(f.root, "agents", alice.AgentID, "skills", "demo", up.Digest)))
			f.drop()
			if got := f.content(alice, "demo", "SKILL.md"); got != demo["SKILL.md"] {
				t.Errorf("got %q", got)
			}
			if !f.exists(f.copyDir(alice, "demo")) {
				t.Error("the copy is gone")
			}
		})
	}
}

// TestDroppedWhileInUse has 32 clients of two nodes read and edit eight workspaces from which both
// nodes drop copies all the time. Every successful edit is kept.
func TestDroppedWhileInUse(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	const users, clients = 8, 4
	rounds := sandboxtest.Soak(4, 50)
	f.upload(library.Owner{AgentID: "agent001", UserID: "u0"}, library.Baseline, "demo", demo)
	f.upload(library.Owner{AgentID: "agent001", UserID: "u0"}, library.Baseline, "same", demo)
	nodes := []*library.Library{f.Library, f.another()}
	ctx, stop := context.WithCancel(t.Context())
	var droppers, editors sync.WaitGroup
	for _, node := range nodes {
		droppers.Go(func() {
			for ctx.Err() == nil {
				if err := node.DropIdleCopies(ctx, 0); err != nil && ctx.Err() == nil {
					t.Errorf("dropping: %v", err)
				}
			}
		})
	}
	for user := range users {
		o := library.Owner{AgentID: "agent001", UserID: "u" + strconv.Itoa(user)}
		for client := range clients {
			editors.Go(func() {
				c := client32{t: t, ctx: ctx, o: o, name: fmt.Sprintf("client%d.txt", client)}
				for round := range rounds {
					c.l = nodes[(round+client)%len(nodes)]
					c.round(strconv.Itoa(round))
				}
			})
		}
	}
	editors.Wait()
	stop()
	droppers.Wait()
	last := strconv.Itoa(rounds - 1)
	for user := range users {
		o := library.Owner{AgentID: "agent001", UserID: "u" + strconv.Itoa(user)}
		for client := range clients {
			name := fmt.Sprintf("client%d.txt", client)
			if got := f.content(o, "demo", name); got != last {
				t.Errorf("%s of %s in the skill is %q", name, o.UserID, got)
			}
			if got, err := f.SandboxRead(t.Context(), o, "plain/"+name); err != nil || string(got) != last {
				t.Errorf("%s of %s is %q (%v)", name, o.UserID, got, err)
			}
		}
		must(t, f.Materialise(t.Context(), o, "same"))
	}
	for range 2 { // the first call finds the use by Materialise on the other node, perhaps
		must(t, nodes[1].DropIdleCopies(t.Context(), 0))
	}
	for user := range users {
		o := library.Owner{AgentID: "agent001", UserID: "u" + strconv.Itoa(user)}
		if f.exists(f.copyDir(o, "same")) || !f.exists(f.copyDir(o, "demo")) {
			t.Errorf("%s has a copy of same, or none of demo", o.UserID)
		}
	}
}

// client32 is one of 32 clients; each writes its own files.
type client32 struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // of one test
	l    *library.Library
	o    library.Owner
	name string
}

func (c client32) round(content string) {
	text := []byte(content)
	c.do("an edit", func() error { return c.l.Edit(c.ctx, c.o, "demo", c.name, text, nil) })
	c.do("reading it", func() error {
		got, err := c.l.Read(c.ctx, c.o, "demo", c.name)
		if err == nil && !bytes.Equal(got, text) {
			c.t.Errorf("%s of %s is %q, and was written as %q", c.name, c.o.UserID, got, text)
		}
		return err
	})
	c.do("a plain edit", func() error { _, err := c.l.SandboxEdit(c.ctx, c.o, "plain/"+c.name, text, nil); return err })
	c.do("reading that", func() error {
		got, err := c.l.SandboxRead(c.ctx, c.o, "plain/"+c.name)
		if err == nil && !bytes.Equal(got, text) {
			c.t.Errorf("the plain %s of %s is %q, and was written as %q", c.name, c.o.UserID, got, text)
		}
		return err
	})
	c.do("a list", func() error {
		list, err := c.l.List(c.ctx, c.o)
		if err == nil && (len(list) != 2 || list[0].Status != library.Modified) {
			c.t.Errorf("%s has %+v", c.o.UserID, list)
		}
		return err
	})
	c.do("a download", func() error { return c.l.Download(c.ctx, c.o, "demo", io.Discard) })
}

// do repeats an operation that failed because of another client.
func (c client32) do(what string, f func() error) {
	for {
		err := f()
		if fault.Is(err, fault.SkillChanged) {
			continue
		}
		if err != nil {
			c.t.Errorf("%s: %v", what, err)
		}
		return
	}
}
