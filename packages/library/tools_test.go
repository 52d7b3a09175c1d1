//go:build unix

package library_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"secbox/fault"
	"secbox/packages/library"
	"secbox/skills"
)

// tool is a package with a manifest whose run.sh is a line that says its version.
func tool(id, version string) tree {
	return tree{
		"SKILL.md": "# Tool\n", "run.sh": "VERSION=" + version + "\n", "data.txt": version,
		"manifest.json": `{"schema_version": "1", "id": "` + id + `", "name": "Tool", "description": "A tool.",
			"interface": {"inputs": {"type": "object"}, "outputs": {"type": "object"}},
			"runtime": {"kind": "docker", "entrypoint": ["bash", "./run.sh"]},
			"permissions": {"fs": {"read": ["inputs/**"], "write": ["artifacts/**"]}, "net": {"mode": "none"}}, "limits": {}}`,
	}
}

// tools returns the digests of the valid packages, and the first problem of the broken ones, by id.
func (f *fixture) tools(o library.Owner) (digests, reasons map[string]string) {
	f.t.Helper()
	found, broken, err := f.Tools(f.t.Context(), o)
	must(f.t, err)
	digests, reasons = map[string]string{}, map[string]string{}
	for _, s := range found {
		digests[s.ID()] = s.Digest
	}
	for _, b := range broken {
		reasons[b.Folder] = b.Problems[0].File + b.Problems[0].Pointer + " " + b.Problems[0].Reason
	}
	return digests, reasons
}

// ready returns the digest of a tool, and the content of its run.sh in containers.
func (f *fixture) ready(o library.Owner, id string) (digest, script string) {
	f.t.Helper()
	s, err := f.Tool(f.t.Context(), o, id)
	must(f.t, err)
	b, err := os.ReadFile(filepath.Join(f.root, "projects", o.ProjectID(), "inputs", ".skill", s.Digest, "run.sh"))
	must(f.t, err)
	return s.Digest, string(b)
}

func TestToolIsUsersVersion(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.upload(alice, library.Baseline, "text.tool", tool("text.tool", "one")).Digest
	f.upload(alice, library.Baseline, "reading", tree{"SKILL.md": "# No tool\n"})
	for _, o := range []library.Owner{alice, bob} {
		digests, reasons := f.tools(o)
		if len(digests) != 1 || digests["text.tool"] != first || len(reasons) != 0 {
			t.Fatalf("%v %v, want %s", digests, reasons, first)
		}
	}
	f.edit(alice, "text.tool", "run.sh", "VERSION=alices\n")
	mine, script := f.ready(alice, "text.tool")
	if digests, _ := f.tools(alice); mine == first || digests["text.tool"] != mine || script != "VERSION=alices\n" {
		t.Errorf("alice's: %s %q, listed %v", mine, script, digests)
	}
	if got := f.listed(alice, "text.tool").Digest; got != mine {
		t.Errorf("the list has %s, want %s", got, mine)
	}
	if digest, script := f.ready(bob, "text.tool"); digest != first || script != "VERSION=one\n" {
		t.Errorf("bob's: %s %q", digest, script)
	}

	// Bob gets alice's when it is the baseline and he has synced.
	_, err := f.Promote(t.Context(), alice, "text.tool", false)
	must(t, err)
	if digest, _ := f.ready(bob, "text.tool"); digest != first {
		t.Errorf("a promotion changed bob's to %s", digest)
	}
	_, err = f.Sync(t.Context(), bob, "text.tool", false)
	must(t, err)
	if digest, script := f.ready(bob, "text.tool"); digest != mine || script != "VERSION=alices\n" {
		t.Errorf("bob's after a sync: %s %q", digest, script)
	}
	must(t, f.Delete(t.Context(), bob, "text.tool", library.Overlay))
	if digests, _ := f.tools(bob); len(digests) != 0 {
		t.Errorf("after bob has deleted it: %v", digests)
	}
	_, err = f.Tool(t.Context(), bob, "text.tool")
	wantFault(t, err, fault.UnknownSkill, "text.tool")
	_, err = f.Tool(t.Context(), bob, "reading")
	wantFault(t, err, fault.UnknownSkill, "has no manifest.json")
	_, err = f.Tool(t.Context(), bob, "../x")
	wantFault(t, err, fault.UnknownSkill, "")
	f.nothingStaged()
}

// A tool that an edit or a command broke is listed as broken, with the reason; others are not
// affected.
func TestBrokenTool(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(t *testing.T, dir string)
		reason string
	}{
		"the entrypoint removed": {
			func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "run.sh"))) },
			"manifest.json/runtime/entrypoint/1 names ./run.sh",
		},
		"a link": {func(t *testing.T, dir string) { must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "x"))) }, `"x" is a link`},
		"the manifest a link": {func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "manifest.json")))
			must(t, os.Symlink("../../../../../../outside/secret", filepath.Join(dir, "manifest.json")))
		}, `"manifest.json" is a link`},
		"the manifest a FIFO": {func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "manifest.json")))
			must(t, syscall.Mkfifo(filepath.Join(dir, "manifest.json"), 0o644))
		}, `"manifest.json" is a link or special file`},
		"the manifest a directory": {func(t *testing.T, dir string) {
			must(t, os.Remove(filepath.Join(dir, "manifest.json")))
			must(t, os.Mkdir(filepath.Join(dir, "manifest.json"), 0o755))
		}, "manifest.json is no regular file"},
		"a manifest of 10 MiB": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(strings.Repeat(" ", 10<<20)), 0o644))
		}, "manifest.json is larger than"},
		"a file with a hole of a terabyte": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "big"), nil, 0o644))
			must(t, os.Truncate(filepath.Join(dir, "big"), 1<<40))
		}, "64 MiB"},
		"many files": {func(t *testing.T, dir string) {
			for n := range 2001 {
				must(t, os.WriteFile(filepath.Join(dir, strings.Repeat("x", n%200+1)+string(rune('a'+n/200))), nil, 0o644))
			}
		}, "2000 files"},
		"a manifest that is no JSON": {func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, "manifest.json"), []byte("{"), 0o644))
		}, "manifest.json "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			for _, id := range []string{"text.tool", "text.good"} {
				f.upload(alice, library.Overlay, id, tool(id, "one"))
			}
			f.edit(alice, "text.tool", "data.txt", "materialised")
			c.spoil(t, f.copyDir(alice, "text.tool"))
			digests, reasons := f.tools(alice)
			if len(digests) != 1 || digests["text.good"] == "" || len(reasons) != 1 || !strings.Contains(reasons["text.tool"], c.reason) {
				t.Errorf("%v %v", digests, reasons)
			}
			_, err := f.Tool(t.Context(), alice, "text.tool")
			wantFault(t, err, fault.UnknownSkill, "broken=true")
			if strings.Contains(err.Error(), "secret\n") {
				t.Error(err)
			}
			f.ready(alice, "text.good")
		})
	}
}

// A call for unchanged packages reads nothing, and a package of two users is loaded once.
func TestToolsAreReadOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "text.tool", tool("text.tool", "one"))
	f.tools(alice)
	before := f.reads()
	f.tools(alice)
	f.tools(bob)
	if read := f.reads() - before; read != 0 {
		t.Errorf("%d files were read of a version that is known", read)
	}
	f.edit(alice, "text.tool", "run.sh", "VERSION=alices\n")
	f.later(time.Minute) // the copy's times can be believed by now
	f.tools(alice)
	before = f.reads()
	f.tools(alice)
	if read := f.reads() - before; read != 0 {
		t.Errorf("%d files were read of a copy in which nothing has changed", read)
	}
}

// The folder in the inputs equals its digest, even while the copy is edited.
func TestToolIsEditedWhileItIsCopied(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.upload(alice, library.Baseline, "text.tool", tool("text.tool", "0"))
	stop := make(chan struct{})
	var editing, taking sync.WaitGroup
	editing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			text := "VERSION=" + strings.Repeat("x", n%7) + "\n"
			for _, file := range []string{"run.sh", "data.txt"} {
				if err := f.Edit(t.Context(), alice, "text.tool", file, []byte(text), nil); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	taken := make(chan string, 400)
	for range 8 {
		taking.Go(func() {
			for range 25 {
				switch s, err := f.Tool(t.Context(), alice, "text.tool"); {
				case err == nil:
					taken <- s.Digest
				case !fault.Is(err, fault.SkillChanged):
					t.Error(err)
				}
			}
		})
	}
	taking.Wait()
	close(stop)
	editing.Wait()
	close(taken)
	some := 0
	for digest := range taken {
		some++
		if got := digestOf(t, filepath.Join(f.root, "projects", alice.ProjectID(), "inputs", ".skill", digest)); got != digest {
			t.Errorf("%s holds %s", digest, got)
		}
	}
	if some == 0 {
		t.Error("no tool could be taken")
	}
}

// digestOf returns the digest of a directory on disk.
func digestOf(t *testing.T, dir string) string {
	t.Helper()
	var list []skills.File
	must(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, path))
		fi, statErr := e.Info()
		sum := sha256.Sum256(content)
		list = append(list, skills.File{
			Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:]),
			Executable: fi.Mode()&0o100 != 0, Program: bytes.HasPrefix(content, []byte("#!")),
		})
		return errors.Join(err, statErr)
	}))
	return skills.Digest(list)
}
