//go:build unix

package workspace_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace"
	"secbox/workspace/tree/treetest"
)

var (
	must     = treetest.Must
	write    = treetest.Write
	read     = treetest.Read
	gone     = treetest.Gone
	deadline = treetest.Deadline
	inMemory = treetest.InMemory
	nest     = treetest.Nest
	fill     = treetest.Fill
	count    = treetest.Count
	sparse   = treetest.Sparse
)

const execID = "0190f5fe-7c00-7a00-8000-000000000001"

// fixture is a fresh workspace with one project and one exec's artifacts.
type fixture struct {
	*workspace.Workspace
	root    string // of the workspace
	outside string // a directory beside it, with a file "secret": no test may change or show it
	project *workspace.Project
	dir     string // of the project
	left    string // the artifacts of execID
}

func open(t testing.TB, root string) *workspace.Workspace {
	t.Helper()
	adapter, err := pathadapter.New(pathadapter.Config{Root: root})
	must(t, err)
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner(), GID: owner()})
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return w
}

// owner is the containers' user: root gives the directories away, other users keep them.
func owner() int {
	if os.Geteuid() == 0 {
		return 1000
	}
	return -1
}

func setUp(t testing.TB) *fixture {
	t.Helper()
	return setUpIn(t, t.TempDir())
}

func setUpIn(t testing.TB, base string) *fixture {
	t.Helper()
	f := &fixture{root: filepath.Join(base, "ws"), outside: filepath.Join(base, "outside")}
	must(t, os.Mkdir(f.outside, 0o755))
	write(t, filepath.Join(f.outside, "secret"), "secret")
	f.Workspace = open(t, f.root)
	var err error
	f.project, err = f.Project("demo")
	must(t, err)
	must(t, f.project.NewArtifacts(execID))
	f.dir = filepath.Join(f.root, "projects", "demo")
	f.left = filepath.Join(f.dir, "artifacts", execID)
	t.Cleanup(func() {
		if entries, err := os.ReadDir(f.outside); err != nil || len(entries) != 1 || read(t, filepath.Join(f.outside, "secret")) != "secret" {
			t.Errorf("the directory beside the workspace was changed: %v %v", entries, err)
		}
	})
	return f
}

func (f *fixture) collect(t testing.TB, maxBytes int64) workspace.Manifest {
	t.Helper()
	m, err := f.project.Collect(deadline(t), execID, maxBytes, workspace.FullAccess)
	must(t, err)
	return m
}

// publish writes the manifest as a runner does.
func (f *fixture) publish(t testing.TB, m workspace.Manifest) {
	t.Helper()
	data, err := m.JSON()
	must(t, err)
	must(t, f.project.Publish(execID, workspace.ManifestName, strings.NewReader(string(data))))
}

// artifacts opens the artifacts as if the digest of the manifest on the disk were recorded.
func (f *fixture) artifacts(t testing.TB) *workspace.Artifacts {
	t.Helper()
	a, err := f.project.Artifacts(execID, "sha256:"+digest(read(t, f.left+"/manifest.json")), nil)
	must(t, err)
	t.Cleanup(func() { a.Close() })
	return a
}

// content reads an artifact.
func (f *fixture) content(t testing.TB, path string) (string, error) {
	t.Helper()
	return contentOf(f.artifacts(t).Open(t.Context(), path))
}

// contentOf is all for the results of Open and OpenPublished.
func contentOf(r io.ReadSeekCloser, _ workspace.ManifestEntry, err error) (string, error) {
	return all(r, err)
}

func all(r io.ReadCloser, err error) (string, error) {
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(r)
	return string(data), errors.Join(err, r.Close())
}

func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("got %v, want code %s", err, code)
	}
}

func ownedBy(fi fs.FileInfo, uid int) bool { return int(fi.Sys().(*syscall.Stat_t).Uid) == uid }
