package library_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"secbox/packages/library"
)

// mapped is a command that holds a shared map of a file in alice's copy, and has written to it: as
// long as the page stays dirty, its next writes do not change the file's times.
type mapped struct {
	t    *testing.T
	page []byte
}

func (f *fixture) mapFile(id, path string) mapped {
	f.t.Helper()
	t := f.t.(*testing.T)
	must(t, f.Materialise(t.Context(), alice, id))
	p, err := f.Workspace.Project(alice.ProjectID())
	must(t, err)
	end := p.BeginExec()
	t.Cleanup(end)
	file, err := os.OpenFile(filepath.Join(f.copyDir(alice, id), path), os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	fi, err := file.Stat()
	must(t, err)
	page, err := syscall.Mmap(int(file.Fd()), 0, int(fi.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { must(t, syscall.Munmap(page)) })
	copy(page, bytes.Clone(page)) // makes the page dirty
	f.later(time.Hour)
	return mapped{t, page}
}

// TestMappedWriteIsSeen: a write through a memory map does not change the file's times; reads,
// lists and promotions see it nevertheless.
func TestMappedWriteIsSeen(t *testing.T) {
	t.Parallel()
	const was, evil = "print('was')\n", "print('bad')\n"
	files := tree{"SKILL.md": "# Demo\n", "main.py": was}
	for name, check := range map[string]func(t *testing.T, f *fixture){
		"status": func(t *testing.T, f *fixture) {
			if s := f.status(alice, "demo"); s != library.Modified {
				t.Errorf("it is %s", s)
			}
		},
		"promotion": func(t *testing.T, f *fixture) {
			p := f.promote(alice, "demo", false)
			if got := f.content(library.Owner{AgentID: alice.AgentID, UserID: "carol"}, "demo", "main.py"); got != evil ||
				p.Digest != f.listed(alice, "demo").Digest {
				t.Errorf("the baseline has %q", got)
			}
		},
		"sync": func(t *testing.T, f *fixture) {
			f.upload(bob, library.Baseline, "demo", tree{"SKILL.md": "# Demo\n", "main.py": "print('new')\n"})
			done, err := f.Sync(t.Context(), alice, "demo", false)
			must(t, err)
			if got := f.content(alice, "demo", "main.py"); got != evil || !slices.Equal(done.Conflicts, []string{"main.py"}) {
				t.Errorf("the user has %q, conflicts are %v", got, done.Conflicts)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			f.upload(alice, library.Baseline, "demo", files)
			m := f.mapFile("demo", "main.py")
			for range 2 {
				if s := f.status(alice, "demo"); s != library.Unchanged {
					t.Fatalf("before the write it is %s", s)
				}
			}
			copy(m.page, evil)
			check(t, f)
		})
	}
	t.Run("invoke", func(t *testing.T) {
		t.Parallel()
		f := setUp(t)
		f.upload(alice, library.Baseline, "text.tool", tool("text.tool", "one"))
		m := f.mapFile("text.tool", "run.sh")
		first, _ := f.ready(alice, "text.tool")
		copy(m.page, "VERSION=two\n")
		if digest, script := f.ready(alice, "text.tool"); digest == first || script != "VERSION=two\n" {
			t.Errorf("%s %q", digest, script)
		}
	})
}

// TestStatDataFromBeforeCommand: a command that changes nothing makes no file to be read again,
// neither while it runs nor later.
func TestStatDataFromBeforeCommand(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "demo", demo)
	f.upload(alice, library.Baseline, "other", tree{"SKILL.md": "# Other\n", "main.py": "1\n"})
	must(t, f.Materialise(t.Context(), alice, "demo"))
	f.later(time.Hour)
	f.list(alice)
	f.mapFile("other", "main.py")
	f.list(alice)
	before := f.reads()
	f.list(alice)
	if read := f.reads() - before; read != 2 {
		t.Errorf("%d files were read, want the two of the skill that was made while a command runs", read)
	}
}
