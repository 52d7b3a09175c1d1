//go:build unix

package versions_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"secbox/workspace"
)

var toolFiles = map[string]string{"SKILL.md": "# Tool\n", "run.py": "print(1)\n", "lib/one.py": "x = 1\n"}

const toolDir = "tools/skill-creator/"

// tool is a folder as InstallTool takes it. Its digest is none of its content: that is not for
// workspace to know.
func tool() workspace.Folder {
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	tree := fstest.MapFS{}
	f := workspace.Folder{Digest: sum("tool"), FS: tree}
	for path, content := range toolFiles {
		tree[path] = &fstest.MapFile{Data: []byte(content)}
		f.Files = append(f.Files, workspace.FolderFile{Path: path, Size: int64(len(content)), SHA256: sum(content)})
	}
	return f
}

// toolIsWhole compares the tool on disk with its folder.
func toolIsWhole(t *testing.T, root string) {
	t.Helper()
	dir := filepath.Join(root, toolDir, tool().Digest)
	if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
		t.Fatalf("%v %v", fi, err)
	}
	found := 0
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		must(t, err)
		fi, err := d.Info()
		must(t, err)
		rel, _ := filepath.Rel(dir, path)
		switch {
		case d.IsDir():
			if fi.Mode().Perm() != 0o755 || rel != "." && rel != "lib" {
				t.Errorf("%s is %v", rel, fi.Mode())
			}
		case fi.Mode() != 0o644 || read(t, path) != toolFiles[rel]:
			t.Errorf("%s is %v %q", rel, fi.Mode(), read(t, path))
		default:
			found++
		}
		return nil
	}))
	if found != len(toolFiles) {
		t.Errorf("%d files", found)
	}
	if left, err := os.ReadDir(filepath.Join(root, toolDir, ".staging")); err != nil && !os.IsNotExist(err) || len(left) > 0 {
		t.Errorf("left in staging: %v %v", left, err)
	}
}

func TestToolMountedOnlyIntoWorkspaces(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	user, err := f.Project("agent~user")
	must(t, err)
	must(t, user.NewArtifacts(execID))
	before, err := user.Mounts(execID, workspace.FullAccess)
	must(t, err)
	if len(before) != 3 || f.Tool() != nil {
		t.Errorf("before it is installed: %v", before)
	}
	must(t, f.InstallTool(tool()))
	toolIsWhole(t, f.root)
	want := workspace.Mount{Source: filepath.Join(f.root, toolDir, tool().Digest), Target: "/opt/skill-creator", ReadOnly: true}
	for _, access := range []workspace.Access{workspace.FullAccess, {}} {
		mounts, err := user.Mounts(execID, access)
		must(t, err)
		if len(mounts) == 0 || mounts[len(mounts)-1] != want {
			t.Errorf("got %+v", mounts)
		}
		others, err := f.project.Mounts(execID, access)
		must(t, err)
		if slices.Contains(others, want) {
			t.Errorf("another project has %+v", others)
		}
	}
	tree, err := f.Tool().Tree()
	must(t, err)
	defer tree.Close()
	if _, err := tree.Lstat("lib/one.py"); err != nil {
		t.Error(err)
	}
	if err := tree.Write("lib/one.py", nil, nil); err == nil {
		t.Error("it can be written")
	}
}

// TestDamagedToolIsRestored puts other entries in the tool's place: after the start, the tool is
// complete and alone there. The target of a link is not touched.
func TestDamagedToolIsRestored(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, f *fixture, dir string){
		"nothing":          func(*testing.T, *fixture, string) {},
		"gone":             func(t *testing.T, _ *fixture, dir string) { must(t, os.RemoveAll(dir)) },
		"a file changed":   func(t *testing.T, _ *fixture, dir string) { write(t, dir+"/run.py", "print(2)\n") },
		"a file gone":      func(t *testing.T, _ *fixture, dir string) { must(t, os.Remove(dir+"/lib/one.py")) },
		"a file longer":    func(t *testing.T, _ *fixture, dir string) { write(t, dir+"/run.py", "print(1)\n#") },
		"a file more":      func(t *testing.T, _ *fixture, dir string) { write(t, dir+"/json.py", "") },
		"a hidden file":    func(t *testing.T, _ *fixture, dir string) { write(t, dir+"/lib/.x", "") },
		"a directory more": func(t *testing.T, _ *fixture, dir string) { must(t, os.Mkdir(dir+"/json", 0o755)) },
		"half there":       func(t *testing.T, _ *fixture, dir string) { must(t, os.RemoveAll(dir+"/lib")) },
		"file as directory": func(t *testing.T, _ *fixture, dir string) {
			must(t, os.Remove(dir+"/run.py"))
			must(t, os.Mkdir(dir+"/run.py", 0o755))
		},
		"directory as file": func(t *testing.T, _ *fixture, dir string) {
			must(t, os.RemoveAll(dir+"/lib"))
			write(t, dir+"/lib", "")
		},
		"not legible":  func(t *testing.T, _ *fixture, dir string) { must(t, os.Chmod(dir+"/run.py", 0o600)) },
		"a closed lib": func(t *testing.T, _ *fixture, dir string) { must(t, os.Chmod(dir+"/lib", 0o700)) },
		"a link to the same": func(t *testing.T, _ *fixture, dir string) {
			must(t, os.Rename(dir+"/run.py", dir+"-run.py"))
			must(t, os.Symlink(dir+"-run.py", dir+"/run.py"))
		},
		"a link outside": func(t *testing.T, f *fixture, dir string) {
			must(t, os.RemoveAll(dir))
			must(t, os.Symlink(f.outside, dir))
		},
		"a link in place": func(t *testing.T, _ *fixture, dir string) {
			must(t, os.Rename(dir, dir+".moved"))
			must(t, os.Symlink(dir+".moved", dir))
		},
		"a file in place": func(t *testing.T, _ *fixture, dir string) { must(t, os.RemoveAll(dir)); write(t, dir, "x") },
		"a FIFO in place": func(t *testing.T, _ *fixture, dir string) {
			must(t, os.RemoveAll(dir))
			must(t, unix.Mkfifo(dir, 0o644))
		},
		"a FIFO in it": func(t *testing.T, _ *fixture, dir string) {
			must(t, os.Remove(dir+"/run.py"))
			must(t, unix.Mkfifo(dir+"/run.py", 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			must(t, f.InstallTool(tool()))
			damage(t, f, filepath.Join(f.root, toolDir, tool().Digest))
			w := open(t, f.root)
			must(t, w.InstallTool(tool()))
			toolIsWhole(t, f.root)
			mounts, err := workspaceOf(t, w).Mounts(execID, workspace.FullAccess)
			if err != nil || len(mounts) != 4 {
				t.Errorf("%v %v", mounts, err)
			}
			// A running node accepts the restored tool, as it is equal.
			if mounts, err := workspaceOf(t, f.node).Mounts(execID, workspace.FullAccess); err != nil || len(mounts) != 4 {
				t.Errorf("the older node: %v %v", mounts, err)
			}
		})
	}
}

// workspaceOf is a workspace with the artifacts of execID.
func workspaceOf(t *testing.T, w node) *workspace.Project {
	t.Helper()
	p, err := w.Project("agent~user")
	must(t, err)
	_ = p.NewArtifacts(execID) // perhaps there already
	return p
}

// TestReplacedToolIsNotMounted replaces a directory on the path to the tool while core-api runs: no
// exec of a workspace starts, no warm container is used, and nothing is read. Other projects
// continue.
func TestReplacedToolIsNotMounted(t *testing.T) {
	t.Parallel()
	steps := []string{"tools", "tools/skill-creator", toolDir + tool().Digest}
	for _, step := range steps {
		for kind, place := range map[string]func(t *testing.T, f *fixture, path string){
			"link outside":         func(t *testing.T, f *fixture, path string) { must(t, os.Symlink(f.outside, path)) },
			"link to the original": func(t *testing.T, _ *fixture, path string) { must(t, os.Symlink(filepath.Base(path)+".moved", path)) },
			"link to nothing":      func(t *testing.T, _ *fixture, path string) { must(t, os.Symlink("nothing", path)) },
			"file":                 func(t *testing.T, _ *fixture, path string) { write(t, path, "x") },
			"fifo":                 func(t *testing.T, _ *fixture, path string) { must(t, unix.Mkfifo(path, 0o644)) },
			"nothing":              func(*testing.T, *fixture, string) {},
			"another directory": func(t *testing.T, _ *fixture, path string) {
				must(t, os.CopyFS(path, os.DirFS(path+".moved")))
				must(t, filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
					if err == nil && d.Name() == "run.py" {
						err = os.WriteFile(p, []byte("print(2)\n"), 0o644)
					}
					return err
				}))
			},
		} {
			t.Run(strings.ReplaceAll(step[:min(len(step), 24)], "/", "_")+" "+kind, func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				must(t, f.InstallTool(tool()))
				user, err := f.Project("agent~user")
				must(t, err)
				waits, err := user.PrepareMounts(waitingID, workspace.FullAccess)
				must(t, err)
				if !waits.Intact() {
					t.Fatal("it is not intact from the beginning")
				}
				path := filepath.Join(f.root, step)
				must(t, os.Rename(path, path+".moved"))
				place(t, f, path)
				if waits.Intact() {
					t.Error("a container that waits is used")
				}
				if place, err := user.PrepareMounts(execID, workspace.FullAccess); err == nil {
					t.Errorf("got %+v", place.Mounts)
				} else if !strings.Contains(err.Error(), "restart core-api") {
					t.Errorf("no remedy in %q", err)
				}
				if _, err := os.Lstat(filepath.Join(f.root, "projects/agent~user/artifacts", execID)); !os.IsNotExist(err) {
					t.Errorf("an exec that was not started has left artifacts: %v", err)
				}
				if tree, err := f.Tool().Tree(); err == nil {
					tree.Close()
					t.Error("it is read")
				}
				if mounts, err := f.project.Mounts(execID, workspace.FullAccess); err != nil || len(mounts) != 3 {
					t.Errorf("another project: %v %v", mounts, err)
				}
			})
		}
	}
}

// TestToolPathIsTaken has a link or file where the tool's directories should be: the start fails
// with a remedy.
func TestToolPathIsTaken(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"tools", "tools/skill-creator"} {
		for kind, place := range map[string]func(t *testing.T, f *fixture, path string){
			"link": func(t *testing.T, f *fixture, path string) { must(t, os.Symlink(f.outside, path)) },
			"file": func(t *testing.T, _ *fixture, path string) { write(t, path, "x") },
		} {
			t.Run(strings.ReplaceAll(step, "/", "_")+" "+kind, func(t *testing.T) {
				t.Parallel()
				f := setUp(t)
				path := filepath.Join(f.root, step)
				must(t, os.MkdirAll(filepath.Dir(path), 0o755))
				place(t, f, path)
				if err := f.InstallTool(tool()); err == nil || !strings.Contains(err.Error(), "remove it") {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// TestManyNodesInstallTheToolAtOnce, over something damaged: each of them can use it afterwards,
// and it is whole.
func TestManyNodesInstallTheToolAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		root := t.TempDir()
		dir := filepath.Join(root, toolDir, tool().Digest)
		must(t, os.MkdirAll(dir+"/lib", 0o755))
		write(t, dir+"/run.py", "print(2)\n")
		nodes := make([]node, 8)
		for i := range nodes {
			nodes[i] = open(t, root)
		}
		var wait sync.WaitGroup
		for _, w := range nodes {
			wait.Go(func() {
				if err := w.InstallTool(tool()); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		toolIsWhole(t, root)
		for _, w := range nodes {
			if mounts, err := workspaceOf(t, w).Mounts(execID, workspace.FullAccess); err != nil || len(mounts) != 4 {
				t.Errorf("%v %v", mounts, err)
			}
		}
	}
}
