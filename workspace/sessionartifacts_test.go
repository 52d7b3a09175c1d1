//go:build unix

package workspace_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"secbox/workspace"
)

// inSession is the id of an exec in the session execID.
const inSession = "01920000-0000-7000-8000-00000000beef"

// TestArtifactsOfSession: the directory of an exec leaves its session's, and what processes do with
// files that they have open changes nothing that was collected.
func TestArtifactsOfSession(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	made, err := f.project.NewSessionArtifacts(execID, inSession)
	must(t, err)
	there := filepath.Join(f.left, inSession)
	write(t, there+"/held", "mine")
	held, err := os.OpenFile(there+"/held", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer held.Close()
	write(t, filepath.Join(f.dir, "work/w"), "work")
	for link, target := range map[string]string{
		"own": "/workspace/artifacts/" + inSession + "/held", "up": "../../work/w", "no": "../work/w", "no2": "/workspace/artifacts/held",
		"another": "/workspace/artifacts/other/held",
	} {
		must(t, os.Symlink(target, there+"/"+link))
	}
	kept, err := f.project.TakeSessionArtifacts(execID, inSession, made)
	if err != nil || !kept {
		t.Fatal(kept, err)
	}
	m, err := f.project.CollectBeside(deadline(t), inSession, 1<<20, workspace.FullAccess)
	must(t, err)
	want := map[string]string{
		"held": digest("mine"), "own": digest("mine"), "up": digest("work"), "no": workspace.KindSymlink, "no2": workspace.KindSymlink,
		"another": workspace.KindSymlink,
	}
	got := map[string]string{}
	for _, entry := range m.Files {
		if got[entry.Path] = entry.SHA256; entry.SHA256 == "" {
			got[entry.Path] = entry.Kind
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v", m.Files)
	}
	_, err = held.WriteString(" and more")
	must(t, err)
	if got := read(t, filepath.Join(f.dir, "artifacts", inSession, "held")); got != "mine" {
		t.Errorf("held is %q now", got)
	}
	if entries, err := os.ReadDir(f.left); err != nil || len(entries) != 0 {
		t.Errorf("in the session: %v %v", entries, err)
	}
}

// TestArtifactsOfSessionThatAreGone: an exec whose directory was removed or replaced has none.
func TestArtifactsOfSessionThatAreGone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, f *fixture, dir string){
		"removed": func(t *testing.T, _ *fixture, dir string) { must(t, os.Remove(dir)) },
		"a link": func(t *testing.T, f *fixture, dir string) {
			must(t, os.Remove(dir))
			must(t, os.Symlink(f.outside, dir))
		},
		"a file": func(t *testing.T, _ *fixture, dir string) { must(t, os.Remove(dir)); write(t, dir, "x") },
		"another directory": func(t *testing.T, _ *fixture, dir string) {
			must(t, os.Remove(dir))
			must(t, os.Mkdir(dir, 0o755))
			write(t, dir+"/forged", "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			made, err := f.project.NewSessionArtifacts(execID, inSession)
			must(t, err)
			change(t, f, filepath.Join(f.left, inSession))
			kept, err := f.project.TakeSessionArtifacts(execID, inSession, made)
			if err != nil || kept {
				t.Fatal(kept, err)
			}
			m, err := f.project.CollectBeside(deadline(t), inSession, 1<<20, workspace.FullAccess)
			must(t, err)
			wantFiles(t, m)
		})
	}
}
