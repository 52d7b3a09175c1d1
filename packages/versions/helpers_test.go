//go:build unix

package versions_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"secbox/packages/versions"
	"secbox/pathadapter"
	"secbox/workspace"
	"secbox/workspace/tree/treetest"
)

const (
	execID    = "0190f5fe-7c00-7a00-8000-000000000001"
	waitingID = "0190f5fe-7c00-7a00-8000-000000000002"
)

var (
	must  = treetest.Must
	write = treetest.Write
	read  = treetest.Read
)

// node is one node's workspace and store.
type node struct {
	*workspace.Workspace
	*versions.Store
}

func open(t testing.TB, root string) node {
	t.Helper()
	adapter, err := pathadapter.New(pathadapter.Config{Root: root})
	must(t, err)
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: owner(), GID: owner()})
	must(t, err)
	s := versions.New(w)
	t.Cleanup(func() { must(t, s.Close()); must(t, w.Close()) })
	return node{w, s}
}

// owner is who the containers run as: root gives the directories away, any other user keeps them.
func owner() int {
	if os.Geteuid() == 0 {
		return 1000
	}
	return -1
}

// fixture is a node with a fresh root and one project.
type fixture struct {
	node
	root    string
	outside string // a directory beside it, with a file "secret", that no test may change
	project *workspace.Project
}

func setUp(t testing.TB) *fixture {
	t.Helper()
	base := t.TempDir()
	f := &fixture{root: filepath.Join(base, "ws"), outside: filepath.Join(base, "outside")}
	write(t, filepath.Join(f.outside, "secret"), "secret")
	f.node = open(t, f.root)
	var err error
	f.project, err = f.Project("demo")
	must(t, err)
	must(t, f.project.NewArtifacts(execID))
	t.Cleanup(func() {
		if entries, err := os.ReadDir(f.outside); err != nil || len(entries) != 1 || read(t, filepath.Join(f.outside, "secret")) != "secret" {
			t.Errorf("the directory beside the workspace was changed: %v %v", entries, err)
		}
	})
	return f
}

func TestAsAnOrdinaryUser(t *testing.T) { treetest.AsUser(t, "^$", "TestDamagedToolIsRestored") }

// TestAgentsArePrivate: no other user of the host reaches agents/, also where an earlier version
// has made it.
func TestAgentsArePrivate(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // nothing can be taken away then
	}
	f := setUp(t)
	_, err := f.Agent("a1")
	must(t, err)
	agents := f.root + "/agents"
	must(t, os.Chown(agents, owner(), owner()))
	must(t, os.Chmod(agents, 0o755))
	_, err = open(t, f.root).Agent("a1")
	must(t, err)
	fi, err := os.Lstat(agents)
	must(t, err)
	if fi.Mode().Perm() != 0o700 || fi.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%v", fi.Mode())
	}
}
