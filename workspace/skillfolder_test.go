//go:build unix

package workspace_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"secbox/fault"
	"secbox/workspace"
)

// folder is a small tree with an executable file and a directory; its digest is not computed.
func folder(digest string) workspace.Folder {
	contents := map[string]string{"manifest.json": "{}", "run.sh": "echo hi", "lib/deep/data": strings.Repeat("x", 100_000), "empty": ""}
	f := workspace.Folder{Digest: digest}
	files := fstest.MapFS{}
	for name, content := range contents {
		files[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
		sum := sha256.Sum256([]byte(content))
		f.Files = append(f.Files, workspace.FolderFile{
			Path: name, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Executable: name == "run.sh",
		})
	}
	f.FS = files
	return f
}

var (
	digestA = strings.Repeat("a1", 32)
	digestB = strings.Repeat("b2", 32)
)

func TestPutFolder(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	a := folder(digestA)
	must(t, f.project.PutFolder(a))
	dir := filepath.Join(f.dir, "inputs/.skill", digestA)
	for _, file := range a.Files {
		want, err := fs.ReadFile(a.FS, file.Path)
		must(t, err)
		if got := read(t, filepath.Join(dir, file.Path)); got != string(want) {
			t.Errorf("%s: %d bytes, want %d", file.Path, len(got), len(want))
		}
		info, err := os.Stat(filepath.Join(dir, file.Path))
		must(t, err)
		if executable := info.Mode()&0o111 == 0o111; executable != file.Executable || info.Mode()&0o444 != 0o444 {
			t.Errorf("%s: mode %v", file.Path, info.Mode())
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "lib/deep")); err != nil || info.Mode().Perm()&0o755 != 0o755 {
		t.Errorf("a directory that the container's user cannot enter: %v %v", info, err)
	}
	before, err := os.Stat(dir)
	must(t, err)
	must(t, f.project.PutFolder(a))
	after, err := os.Stat(dir)
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("a folder that is there was written again")
	}
	must(t, f.project.PutFolder(folder(digestB)))
	nothingStaged(t, f)
}

// TestPutFolderReplacesDamagedFolder finds folders whose content does not match their names, as
// after half a restore.
func TestPutFolderReplacesDamagedFolder(t *testing.T) {
	t.Parallel()
	for what, harm := range map[string]func(t *testing.T, dir string){
		"changed":   func(t *testing.T, dir string) { write(t, filepath.Join(dir, "run.sh"), "echo no") },
		"missing":   func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "lib/deep/data"))) },
		"longer":    func(t *testing.T, dir string) { write(t, filepath.Join(dir, "empty"), "not any more") },
		"a file":    func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)); write(t, dir, "") },
		"a link":    func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)); must(t, os.Symlink("/etc", dir)) },
		"FIFO":      func(t *testing.T, dir string) { swap(t, filepath.Join(dir, "run.sh"), fifo) },
		"link":      func(t *testing.T, dir string) { swap(t, filepath.Join(dir, "run.sh"), link) },
		"a new dir": func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)); must(t, os.Mkdir(dir, 0o755)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			a := folder(digestA)
			must(t, f.project.PutFolder(a))
			dir := filepath.Join(f.dir, "inputs/.skill", digestA)
			harm(t, dir)
			next, err := open(t, f.root).Project("demo") // the node's next life
			must(t, err)
			must(t, next.PutFolder(a))
			if got := read(t, filepath.Join(dir, "run.sh")); got != "echo hi" {
				t.Errorf("run.sh is %q", got)
			}
			if got := len(read(t, filepath.Join(dir, "lib/deep/data"))); got != 100_000 {
				t.Errorf("data has %d bytes", got)
			}
			nothingStaged(t, f)
		})
	}
}

func swap(t *testing.T, path string, put func(path string) error) {
	t.Helper()
	must(t, os.Remove(path))
	must(t, put(path))
}

func fifo(path string) error { return syscall.Mkfifo(path, 0o644) }
func link(path string) error { return os.Symlink("/etc/hostname", path) }

// TestPutFolderWithChangedSource leaves nothing of a folder whose source has changed.
func TestPutFolderWithChangedSource(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(files fstest.MapFS){
		"other content": func(files fstest.MapFS) { files["run.sh"] = &fstest.MapFile{Data: []byte("echo ho")} },
		"longer":        func(files fstest.MapFS) { files["run.sh"] = &fstest.MapFile{Data: []byte("echo hi; and more")} },
		"shorter":       func(files fstest.MapFS) { files["run.sh"] = &fstest.MapFile{} },
		"gone":          func(files fstest.MapFS) { delete(files, "run.sh") },
		"a directory":   func(files fstest.MapFS) { files["run.sh"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755} },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			a := folder(digestA)
			change(a.FS.(fstest.MapFS))
			wantCode(t, f.project.PutFolder(a), fault.SkillChanged)
			if _, err := os.Lstat(filepath.Join(f.dir, "inputs/.skill", digestA)); !os.IsNotExist(err) {
				t.Errorf("there is a folder: %v", err)
			}
			nothingStaged(t, f)
			must(t, f.project.PutFolder(folder(digestA)))
		})
	}
}

func TestPutFolderStaysInside(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, name := range []string{"../evil", "/evil", "a/../../evil", ".", ""} {
		a := folder(digestA)
		a.Files = append(a.Files, workspace.FolderFile{Path: name})
		if err := f.project.PutFolder(a); err == nil {
			t.Errorf("a file %q was accepted", name)
		}
	}
	for _, digest := range []string{"", "..", "../x", strings.Repeat("A1", 32), digestA + "/x", digestA[:63]} {
		a := folder(digest)
		if err := f.project.PutFolder(a); err == nil {
			t.Errorf("a folder was put under the name %q", digest)
		}
	}
	// A link where the directory belongs: nothing is written through it.
	must(t, os.RemoveAll(filepath.Join(f.dir, "inputs/.skill")))
	must(t, os.Symlink(f.outside, filepath.Join(f.dir, "inputs/.skill")))
	if err := f.project.PutFolder(folder(digestA)); err == nil {
		t.Error("a folder was put through a link")
	}
	if _, err := f.project.PutSkillInput(workspace.NewSkillInput(), []byte("{}")); err == nil {
		t.Error("an input was put through a link")
	}
}

func TestPutFolderAtOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	other, err := open(t, f.root).Project("demo") // another node
	must(t, err)
	var all sync.WaitGroup
	for n := range 32 {
		all.Go(func() {
			project := f.project
			if n%2 == 0 {
				project = other
			}
			if err := project.PutFolder(folder(digestA)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := read(t, filepath.Join(f.dir, "inputs/.skill", digestA, "run.sh")); got != "echo hi" {
		t.Errorf("run.sh is %q", got)
	}
	nothingStaged(t, f)
}

// TestRequestsCannotNameSkills: inputs cannot name the directory of skills, in any spelling.
func TestRequestsCannotNameSkills(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".skill/x", ".Skill/" + digestA + "/run.sh", "./.SKILL/.in/x.json", "//.skill"} {
		if clean, err := workspace.CleanInputPath(name); err == nil {
			t.Errorf("%q was accepted as %q", name, clean)
		}
	}
}

func TestPutSkillInput(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	name := workspace.NewSkillInput()
	if name == workspace.NewSkillInput() {
		t.Fatal("two invokes got one name")
	}
	release, err := f.project.PutSkillInput(name, []byte(`{"a":1}`))
	must(t, err)
	path := filepath.Join(f.dir, "inputs", name)
	if got := read(t, path); got != `{"a":1}` {
		t.Errorf("it holds %q", got)
	}
	if _, err := f.project.PutSkillInput(name, []byte("other")); err == nil {
		t.Error("an input was replaced")
	}
	dir, err := os.Stat(filepath.Dir(path))
	must(t, err)
	if dir.Mode().Perm() != 0o711 {
		t.Errorf("containers can list the inputs: %v", dir.Mode())
	}
	release()
	release()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the input is still there: %v", err)
	}
	for _, bad := range []string{"x.json", ".skill/x.json", ".skill/.in/../x.json", "../x", "/etc/x", ".skill/.in/a/b"} {
		if _, err := f.project.PutSkillInput(bad, nil); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestSkillInputsOfACrash go when their node comes back much later, and no sooner: another node's
// may be in use.
func TestSkillInputsOfACrash(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	old, young := workspace.NewSkillInput(), workspace.NewSkillInput()
	for _, name := range []string{old, young} {
		_, err := f.project.PutSkillInput(name, []byte("{}"))
		must(t, err)
	}
	long := time.Now().Add(-8 * 24 * time.Hour)
	must(t, os.Chtimes(filepath.Join(f.dir, "inputs", old), long, long))
	next, err := open(t, f.root).Project("demo")
	must(t, err)
	_, err = next.PutSkillInput(workspace.NewSkillInput(), []byte("{}"))
	must(t, err)
	if _, err := os.Lstat(filepath.Join(f.dir, "inputs", old)); !os.IsNotExist(err) {
		t.Errorf("the old one is still there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(f.dir, "inputs", young)); err != nil {
		t.Errorf("the young one is gone: %v", err)
	}
}

// TestUnusedSkillFolders go when a new one comes; the use of one keeps it.
func TestUnusedSkillFolders(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	dir := filepath.Join(f.dir, "inputs/.skill")
	used, unused, digestC := digestA, digestB, strings.Repeat("c3", 32)
	must(t, f.project.PutFolder(folder(used)))
	must(t, f.project.PutFolder(folder(unused)))
	long := time.Now().Add(-8 * 24 * time.Hour)
	for _, name := range []string{used, unused, ".in"} {
		must(t, os.Chtimes(filepath.Join(dir, name), long, long))
	}
	must(t, f.project.PutFolder(folder(used)))
	must(t, f.project.PutFolder(folder(digestC)))
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{".in", used, digestC}; !slices.Equal(names, want) {
		t.Errorf("left are %q, want %q", names, want)
	}
	must(t, f.project.PutFolder(folder(unused)))
	if got := read(t, filepath.Join(dir, unused, "run.sh")); got != "echo hi" {
		t.Errorf("back is %q", got)
	}
}

func TestReadCollected(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, filepath.Join(f.left, "out.json"), `{"ok":true}`)
	got, err := f.project.ReadCollected(execID, "out.json", 100)
	if err != nil || string(got) != `{"ok":true}` {
		t.Errorf("%q %v", got, err)
	}
	if _, err := f.project.ReadCollected(execID, "out.json", 10); err == nil {
		t.Error("more was read than allowed")
	}
	must(t, os.Symlink("/etc/hostname", filepath.Join(f.left, "link")))
	must(t, fifo(filepath.Join(f.left, "fifo")))
	for _, name := range []string{"link", "fifo", "missing", "../x", "."} {
		if got, err := f.project.ReadCollected(execID, name, 100); err == nil {
			t.Errorf("%s was read: %q", name, got)
		}
	}
}

// nothingStaged checks that no half-written tree is left beside the inputs.
func nothingStaged(t *testing.T, f *fixture) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(f.dir, ".staging"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if slices.Sort(names); len(names) > 0 {
		t.Errorf(".staging holds %v", names)
	}
}
