package workspace_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/workspace"
	"secbox/workspace/tree/treetest"
)

// TestNoHandleStaysOpen goes through everything, refusals included, and counts this process's
// descriptors.
func TestNoHandleStaysOpen(t *testing.T) {
	// Not parallel: the descriptors are the whole process's.
	f := setUpIn(t, inMemory(t))
	round := func(i int) {
		id := "exec-" + strconv.Itoa(i)
		p, err := f.Project("demo")
		must(t, err)
		must(t, p.NewArtifacts(id))
		_, err = p.Mounts(id, workspace.FullAccess)
		must(t, err)
		release, err := p.PutInputs(id, in("a/b/c", "x"))
		must(t, err)
		release()
		_, _ = p.PutInputs(id, in("a", "x"))
		left := f.dir + "/artifacts/" + id
		write(t, left+"/a/b/c/d", "d")
		write(t, left+"/stdout.txt/a/b", "b")
		must(t, os.Symlink(f.outside, left+"/link"))
		must(t, unix.Mkfifo(left+"/fifo", 0o644))
		must(t, os.Mkdir(left+"/deep", 0o755))
		nest(t, left+"/deep", 100)
		_, err = p.Growth(t.Context(), id)
		must(t, err)
		m, err := p.Collect(t.Context(), id, plenty, workspace.FullAccess)
		must(t, err)
		m.Published = []workspace.ManifestEntry{file(workspace.StdoutName, "x"), file(workspace.MetaName, "x")}
		data, err := m.JSON()
		must(t, err)
		must(t, p.Publish(id, workspace.ManifestName, strings.NewReader(string(data))))
		must(t, p.Publish(id, workspace.StdoutName, strings.NewReader("x")))
		_ = p.Publish(id, workspace.MetaName, failingReader{})
		a, err := p.Artifacts(id, "sha256:"+digest(string(data)), nil)
		must(t, err)
		must(t, os.Rename(left+"/a/b", left+"/a/away"))
		for _, path := range []string{"a/b/c/d", "a/b/c", "a/b/nothing", "link", "link/secret", "fifo", "stdout.txt"} {
			if file, _, err := a.Open(t.Context(), path); err == nil {
				must(t, file.Close())
			}
		}
		file, _, err := a.OpenPublished(t.Context(), workspace.StdoutName)
		must(t, err)
		must(t, file.Close())
		_, _, _ = a.OpenPublished(t.Context(), workspace.MetaName)
		must(t, a.Close())
		_, _ = p.Collect(&treetest.EndsAfter{Context: t.Context(), Looks: 2}, id, plenty, workspace.FullAccess)
		_, _ = f.Project("DEMO")
		_, _ = f.Existing("nothing")
		must(t, f.Writable())
	}
	round(0)
	before := descriptors(t)
	for i := 1; i <= 30; i++ {
		round(i)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors became %d", before, after)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}
