//go:build unix

package library_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/library"
)

func TestEditCopiesWholeSkill(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "data/log.txt", "1\n")
	want := maps.Clone(demo)
	want["data/log.txt"] = "1\n"
	if got := f.everything(alice, "demo"); !maps.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := f.everything(bob, "demo"); !maps.Equal(got, demo) {
		t.Errorf("the other user has %q", got)
	}
	if s := f.status(alice, "demo"); s != library.Modified {
		t.Errorf("it is %s", s)
	}
	// Files that a command has deleted do not come back from the baseline.
	must(t, os.Remove(filepath.Join(f.copyDir(alice, "demo"), "main.py")))
	if _, err := f.Read(t.Context(), alice, "demo", "main.py"); !fault.Is(err, fault.UnknownFile) {
		t.Errorf("got %v", err)
	}
	f.edit(alice, "demo", "utils/helper.py", "x = 2\n")
	if f.exists(filepath.Join(f.copyDir(alice, "demo"), "main.py")) {
		t.Error("a removed file came back")
	}
	f.nothingStaged()
}

func TestFilesBelongToContainerUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // only root can change owners
	}
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "a/b/c.txt", "1")
	must(t, f.SandboxEdit(t.Context(), alice, "x/y.txt", []byte("1"), nil))
	must(t, filepath.Walk(filepath.Join(f.root, "projects", alice.ProjectID(), "work"), func(path string, fi os.FileInfo, err error) error {
		must(t, err)
		if st := fi.Sys().(*syscall.Stat_t); st.Uid != 1000 || st.Gid != 1000 {
			t.Errorf("%s belongs to %d:%d", path, st.Uid, st.Gid)
		}
		want := os.FileMode(0o644)
		if fi.IsDir() {
			want = 0o755
		}
		if fi.Mode().Perm() != want {
			t.Errorf("%s is %v", path, fi.Mode())
		}
		return nil
	}))
	script := filepath.Join(f.copyDir(alice, "demo"), "main.py")
	must(t, os.Chmod(script, 0o755))
	f.edit(alice, "demo", "main.py", "print()\n")
	if fi, err := os.Stat(script); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("an edit made it %v, %v", fi.Mode(), err)
	}
}

func TestLinesOfAFile(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", tree{"SKILL.md": "# x\n", "a.txt": "1\r\n2\r\n3\r\n"})
	edit := func(start, end int, with string) error {
		return f.Edit(t.Context(), alice, "demo", "a.txt", []byte(with), &library.LineRange{Start: start, End: end})
	}
	must(t, edit(2, 2, "two\nand a half"))
	if got := f.content(alice, "demo", "a.txt"); got != "1\r\ntwo\r\nand a half\r\n3\r\n" {
		t.Errorf("got %q", got)
	}
	for _, bad := range [][2]int{{0, 1}, {3, 2}, {1, 99}, {99, 99}, {-1, -1}} {
		if err := edit(bad[0], bad[1], "x"); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	err := f.Edit(t.Context(), alice, "demo", "none.txt", []byte("x"), &library.LineRange{Start: 1, End: 1})
	wantFault(t, err, fault.UnknownFile, "none.txt")
	err = f.Edit(t.Context(), alice, "demo", "big", make([]byte, library.MaxFileBytes+1), nil)
	wantFault(t, err, fault.FileTooLarge, "upload")
}

var escapes = []string{
	"", ".", "/", "..", "../x", "a/../../x", "a/../x", "/etc/passwd", `..\x`, `a\..\..\x`, "C:/x", "c:x", "a\x00b", "a/\x00", "con", "a/nul.txt",
	"a.", "a /b", "a\nb", "\xff", "./..", "a//../../x", strings.Repeat("a/", 70) + "x", strings.Repeat("a", 300), strings.Repeat("a/", 3000),
}

func TestPathsLeadingOutAreRefused(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "x", "1")
	for _, path := range escapes {
		for name, do := range map[string]func() error{
			"read":         func() error { _, err := f.Read(t.Context(), alice, "demo", path); return err },
			"edit":         func() error { return f.Edit(t.Context(), alice, "demo", path, []byte("x"), nil) },
			"sandbox read": func() error { _, err := f.SandboxRead(t.Context(), alice, path); return err },
			"sandbox edit": func() error { return f.SandboxEdit(t.Context(), alice, path, []byte("x"), nil) },
		} {
			err := do()
			if !fault.Is(err, fault.PathRefused) {
				t.Errorf("%s of %.40q: %v", name, path, err)
				continue
			}
			if fields := fault.From(err).Fields; len(fields) != 1 || fields[0].Field != "path" {
				t.Errorf("%s of %.40q names %v", name, path, fields)
			}
		}
	}
}

// TestCollidingNames: an edit makes no second spelling of a name, in a skill or in the workspace;
// files that a command made in two spellings can be edited.
func TestCollidingNames(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.SandboxEdit(t.Context(), alice, "d/Über.txt", []byte("1"), nil))
	for name, edit := range map[string]func(path string) error{
		"a skill":       func(path string) error { return f.Edit(t.Context(), alice, "demo", path, []byte("1"), nil) },
		"the workspace": func(path string) error { return f.SandboxEdit(t.Context(), alice, path, []byte("1"), nil) },
	} {
		must(t, edit("d/Über.txt"))
		for _, path := range []string{"d/über.txt", "d/U\u0308ber.txt", "D/other"} {
			if err := edit(path); !fault.Is(err, fault.InvalidRequest) || fault.From(err).Fields[0].Field != "path" {
				t.Errorf("%s: %q: %v", name, path, err)
			}
		}
	}
	must(t, os.WriteFile(filepath.Join(f.root, "projects", alice.ProjectID(), "work/d/über.txt"), nil, 0o644))
	must(t, f.SandboxEdit(t.Context(), alice, "d/über.txt", []byte("1"), nil))
	must(t, f.SandboxEdit(t.Context(), alice, "d/Über.txt", []byte("1"), nil))
}

// TestSkillMDIsSpelledSo in a skill's root; in folders below it is a file like any other.
func TestSkillMDIsSpelledSo(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.edit(alice, "demo", "SKILL.md", "# Other\n")
	must(t, f.SandboxEdit(t.Context(), alice, "skills/demo/SKILL.md", []byte("# Third\n"), nil))
	for _, path := range []string{"Skill.md", "SKILL.MD"} {
		if err := f.Edit(t.Context(), alice, "demo", path, []byte("x"), nil); !fault.Is(err, fault.PathRefused) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"skills/demo/Skill.md", "skills", "skills/demo", "skills/SKILL.md", "Skills/demo/x"} {
		if err := f.SandboxEdit(t.Context(), alice, path, []byte("x"), nil); !fault.Is(err, fault.PathRefused) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if one := f.listed(alice, "demo"); one.Name != "Third" {
		t.Errorf("got %+v", one)
	}
}

// TestListedFilesCanBeOpened and written, also if their names are not UTF-8.
func TestListedFilesCanBeOpened(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.Materialise(t.Context(), alice, "demo"))
	work := filepath.Join(f.root, "projects", alice.ProjectID(), "work")
	must(t, os.MkdirAll(filepath.Join(work, "d\xff"), 0o755))
	for _, file := range []string{"caf\xe9.txt", "d\xff/100%", "skills/demo/\xe9"} {
		must(t, os.WriteFile(filepath.Join(work, file), []byte(file), 0o644))
	}
	list, err := f.SandboxFiles(t.Context(), alice)
	must(t, err)
	for shown, file := range map[string]string{"caf%E9.txt": "caf\xe9.txt", "d%FF/100%": "d\xff/100%", "skills/demo/%E9": "skills/demo/\xe9"} {
		if !slices.Contains(list, shown) {
			t.Errorf("%q is not in %q", shown, list)
		}
		if got, err := f.SandboxRead(t.Context(), alice, shown); err != nil || string(got) != file {
			t.Errorf("%s: %q, %v", shown, got, err)
		}
		must(t, f.SandboxEdit(t.Context(), alice, shown, []byte("new"), nil))
		if got, err := os.ReadFile(filepath.Join(work, file)); err != nil || string(got) != "new" {
			t.Errorf("%s: %q, %v", shown, got, err)
		}
	}
	if got, err := f.Read(t.Context(), alice, "demo", "%E9"); err != nil || string(got) != "new" {
		t.Errorf("in the skill: %q, %v", got, err)
	}
}

func TestSandboxFiles(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if got, err := f.SandboxFiles(t.Context(), alice); err != nil || got == nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := f.SandboxRead(t.Context(), alice, "a"); !fault.Is(err, fault.UnknownFile) {
		t.Errorf("got %v", err)
	}
	must(t, f.SandboxEdit(t.Context(), alice, "temp.txt", []byte("Hello\n"), nil))
	must(t, f.SandboxEdit(t.Context(), alice, "data/log.txt", []byte("1\n"), nil))
	must(t, f.SandboxEdit(t.Context(), alice, "temp.txt", []byte("World"), &library.LineRange{Start: 1, End: 1}))
	got, err := f.SandboxFiles(t.Context(), alice)
	if err != nil || strings.Join(got, " ") != "data/log.txt temp.txt" {
		t.Errorf("got %v, %v", got, err)
	}
	if b, err := f.SandboxRead(t.Context(), alice, "temp.txt"); err != nil || string(b) != "World\n" {
		t.Errorf("got %q, %v", b, err)
	}
	if err := f.SandboxEdit(t.Context(), alice, "data", []byte("x"), nil); !fault.Is(err, fault.PathRefused) {
		t.Errorf("a file in a directory's place: %v", err)
	}
	if err := f.SandboxEdit(t.Context(), alice, "temp.txt/x", []byte("x"), nil); !fault.Is(err, fault.PathRefused) {
		t.Errorf("a directory in a file's place: %v", err)
	}
	f.nothingStaged()
}

func TestSandboxEditCopiesWholeSkill(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.SandboxEdit(t.Context(), alice, "skills/demo/main.py", []byte("print(2)\n"), nil))
	want := maps.Clone(demo)
	want["main.py"] = "print(2)\n"
	if got := f.everything(alice, "demo"); !maps.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	must(t, f.SandboxEdit(t.Context(), alice, "skills/own/SKILL.md", []byte("# Own\n"), nil))
	if one := f.listed(alice, "own"); one.Status != library.NewSkill || one.Name != "Own" {
		t.Errorf("got %+v", one)
	}
	wantFault(t, f.SandboxEdit(t.Context(), alice, "skills/DEMO/x", []byte("x"), nil), fault.SkillConflict, `"demo"`)
	wantFault(t, f.SandboxEdit(t.Context(), alice, "skills/skill-creator/x", []byte("x"), nil), fault.ReservedSkill, "skill-creator")
}

// TestEditWithRestoredTimeIsSeen: the time of the inode's change cannot be put back.
func TestEditWithRestoredTimeIsSeen(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	must(t, f.Materialise(t.Context(), alice, "demo"))
	// An hour later, so that the stat data is old enough to be trusted.
	f.later(time.Hour)
	if s := f.status(alice, "demo"); s != library.Unchanged {
		t.Fatalf("it is %s", s)
	}
	path := filepath.Join(f.copyDir(alice, "demo"), "main.py")
	fi, err := os.Stat(path)
	must(t, err)
	if before := f.reads(); before == 0 {
		t.Fatal("nothing was read")
	} else if f.list(alice); f.reads() != before {
		t.Error("a second look read files again")
	}
	must(t, os.WriteFile(path, []byte("print('ho')\n"), 0o600))
	must(t, os.Chtimes(path, fi.ModTime(), fi.ModTime()))
	if now, err := os.Stat(path); err != nil || now.Size() != fi.Size() || !now.ModTime().Equal(fi.ModTime()) {
		t.Fatal("the edit shows", err)
	}
	if s := f.status(alice, "demo"); s != library.Modified {
		t.Errorf("it is %s", s)
	}
}
