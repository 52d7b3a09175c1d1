//go:build unix

package workspace_test

import (
	"embed"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
)

// packs are read from the program: it also runs as another user, elsewhere.
//
//go:embed testdata/packed
var packs embed.FS

func packOf(t testing.TB, name string) string {
	t.Helper()
	content, err := packs.ReadFile("testdata/packed/" + name)
	must(t, err)
	return string(content)
}

// packed lays out the workspace as an older core-api left it: testdata/packed has packs that
// core-api wrote in November 2026.
func (f *idleFixture) packed() {
	f.t.Helper()
	must(f.t, os.RemoveAll(f.work))
	must(f.t, os.MkdirAll(f.dir+"/.home", 0o700))
	for from, to := range map[string]string{"pack.tar.zst": ".idle", "saved.tar.zst": ".home"} {
		write(f.t, filepath.Join(f.dir, to, from), packOf(f.t, from))
	}
}

// isUnpacked checks the files of testdata/packed.
func (f *idleFixture) isUnpacked() {
	f.t.Helper()
	at := time.Unix(1_700_000_000, 123456789)
	for name, want := range map[string]struct {
		mode    os.FileMode
		content string
		dated   bool
	}{
		"work/notes.txt": {0o644, "mine\n", true}, "work/second-name": {0o644, "mine\n", true},
		"work/skills/own/SKILL.md": {0o644, "# Own\n", false}, "work/skills/own/run.sh": {0o750, "#!/bin/sh\n", false},
		"work/ä \xff": {0o644, strings.Repeat("x", 3000), false}, ".home/home/.local/bin/tool": {0o755, "#!/bin/sh\n", true},
		"work/sparse": {0o644, strings.Repeat("\x00", 8<<20) + "data" + strings.Repeat("\x00", 8<<20-4), true},
	} {
		fi, err := os.Lstat(filepath.Join(f.dir, name))
		must(f.t, err)
		if fi.Mode() != want.mode || want.dated && !fi.ModTime().Equal(at) || read(f.t, filepath.Join(f.dir, name)) != want.content {
			f.t.Errorf("%s: %v, %v, or another content", name, fi.Mode(), fi.ModTime())
		}
	}
	if to, err := os.Readlink(f.work + "/link"); err != nil || to != "../../../outside" {
		f.t.Errorf("the link leads to %q, %v", to, err)
	}
	if fi, err := os.Lstat(f.work + "/empty"); err != nil || fi.Mode() != os.ModeDir|0o700 || !fi.ModTime().Equal(at) {
		f.t.Errorf("the empty directory: %v, %v", fi, err)
	}
	var one, two syscall.Stat_t
	must(f.t, syscall.Stat(f.work+"/notes.txt", &one))
	if must(f.t, syscall.Stat(f.work+"/second-name", &two)); one.Ino != two.Ino {
		f.t.Error("a hard link is a copy")
	}
	if must(f.t, syscall.Stat(f.work+"/sparse", &one)); one.Blocks*512 > 1<<20 {
		f.t.Errorf("the sparse file takes %d bytes", one.Blocks*512)
	}
	if entries, err := os.ReadDir(f.dir + "/.home"); err != nil || len(entries) != 1 {
		f.t.Errorf(".home has %v, %v", entries, err)
	}
	for _, name := range []string{"pack.tar.zst", "waking.tar.zst", "work"} {
		gone(f.t, f.dir+"/.idle/"+name)
	}
}

// TestPacksOfOlderVersions: a workspace that an older core-api has packed comes back whole, from
// each state in which a crash may have left it, at once or with the first use.
func TestPacksOfOlderVersions(t *testing.T) {
	t.Parallel()
	unpack := func(f *idleFixture) error { return f.existing().Unpack(f.t.Context()) }
	idle := func(f *idleFixture, name string) string { return f.dir + "/.idle/" + name }
	for name, test := range map[string]struct {
		leave func(f *idleFixture) error
		use   func(f *idleFixture) error
	}{
		"at the start":  {nil, unpack},
		"by a project":  {nil, func(f *idleFixture) error { f.project(); return unpack(f) }},
		"by files":      {nil, func(f *idleFixture) error { _, err := f.existing().Work(); return err }},
		"by a sandbox":  {nil, func(f *idleFixture) error { _, err := f.existing().WorkDir(); return err }},
		"by a home":     {nil, func(f *idleFixture) error { _, err := f.existing().Home(); return err }},
		"twice":         {nil, func(f *idleFixture) error { must(f.t, unpack(f)); return unpack(f) }},
		"half unpacked": {func(f *idleFixture) error { return os.MkdirAll(idle(f, "out-1/a"), 0o700) }, unpack},
		"almost":        {func(f *idleFixture) error { return os.Rename(idle(f, "pack.tar.zst"), idle(f, "waking.tar.zst")) }, unpack},
		"an empty work": {func(f *idleFixture) error { return os.Mkdir(f.work, 0o755) }, unpack},
		"an old home":   {func(f *idleFixture) error { return os.MkdirAll(f.dir+"/.home/unpacked/x", 0o755) }, unpack},
		"half packed": {func(f *idleFixture) error {
			must(f.t, unpack(f))
			write(f.t, idle(f, "pack.tar.zst"), "cut sh")
			write(f.t, f.dir+"/.home/saved.tar.zst", "cut sh")
			return os.Rename(f.work, idle(f, "work"))
		}, unpack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUpIdle(t)
			f.packed()
			if test.leave != nil {
				must(t, test.leave(f))
			}
			must(t, test.use(f))
			f.isUnpacked()
		})
	}
}

// TestPacksThatCannotBeUnpacked: they stay as they are, and the workspace cannot be used before
// they are repaired.
func TestPacksThatCannotBeUnpacked(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	f.packed()
	pack := f.dir + "/.idle/pack.tar.zst"
	whole := read(t, pack)
	write(t, pack, whole[:len(whole)-9])
	if _, err := f.Project(idleID); !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), "projects/agent~user/.idle/pack.tar.zst") {
		t.Error(err)
	}
	if _, err := f.existing().Work(); !fault.Is(err, fault.Internal) {
		t.Error(err)
	}
	gone(t, f.work)
	write(t, pack, whole)
	f.project()
	must(t, f.existing().Unpack(t.Context()))
	f.isUnpacked()
}

// TestPackBesideOtherFiles: packed files are set aside if another program has made a work/
// meanwhile.
func TestPackBesideOtherFiles(t *testing.T) {
	t.Parallel()
	f := setUpIdle(t)
	f.packed()
	write(t, f.work+"/other", "1")
	if err := f.existing().Unpack(t.Context()); !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), "/.idle/left-") {
		t.Error(err)
	}
	must(t, f.existing().Unpack(t.Context()))
	read(t, f.work+"/other")
	read(t, f.dir+"/.home/home/.local/bin/tool")
	if left, err := filepath.Glob(f.dir + "/.idle/left-*-pack.tar.zst"); err != nil || len(left) != 1 || read(t, left[0]) != packOf(t, "pack.tar.zst") {
		t.Errorf("set aside are %v, %v", left, err)
	}
}
