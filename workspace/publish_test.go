//go:build unix

package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"secbox/fault"
	"secbox/workspace"
)

type failingReader struct{}

func (failingReader) Seek(int64, int) (int64, error) { return 0, nil }

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("capture is gone") }

func TestPublishReplacesOtherFiles(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	must(t, os.Symlink(f.outside+"/secret", f.left+"/stdout.txt"))
	must(t, os.Symlink(f.outside+"/new", f.left+"/stderr.txt"))
	write(t, f.left+"/meta.json/a/b", "planted")
	must(t, os.Chmod(f.left+"/meta.json", 0))
	write(t, f.left+"/manifest.json", "planted")
	must(t, os.Link(f.outside+"/secret", f.left+"/hard"))
	must(t, os.Rename(f.left+"/hard", f.left+"/manifest.json"))
	for _, name := range []string{workspace.StdoutName, workspace.StderrName, workspace.MetaName, workspace.ManifestName, workspace.StdoutName} {
		must(t, f.project.Publish(execID, name, strings.NewReader("ours: "+name)))
		fi, err := os.Lstat(filepath.Join(f.left, name))
		must(t, err)
		if fi.Mode() != 0o644 {
			t.Errorf("%s has the mode %v", name, fi.Mode())
		}
		if got := read(t, filepath.Join(f.left, name)); got != "ours: "+name {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if n := count(t, f.left); n != 4 {
		t.Errorf("%d entries, so something temporary stayed", n)
	}
	if err := f.project.Publish(execID, "../x", strings.NewReader("x")); err == nil {
		t.Error("published under a strange name")
	}
	if err := f.project.Publish(execID, workspace.MetaName, failingReader{}); err == nil {
		t.Error("half a file was published")
	}
	if got := read(t, f.left+"/meta.json"); got != "ours: meta.json" {
		t.Errorf("half a file was published: %q", got)
	}
}

func TestOpenPublishedFollowsNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	must(t, os.Symlink(f.outside+"/secret", f.left+"/stdout.txt"))
	must(t, unix.Mkfifo(f.left+"/stderr.txt", 0o644))
	must(t, os.Mkdir(f.left+"/meta.json", 0o755))
	write(t, f.left+"/x", "x")
	m := workspace.Manifest{ExecID: execID} // of a version that listed none of them
	f.publish(t, m)
	a := f.artifacts(t)
	for _, name := range []string{"stdout.txt", "stderr.txt", "meta.json", "x", "../stdout.txt", ""} {
		_, _, err := a.OpenPublished(t.Context(), name)
		wantCode(t, err, fault.UnknownArtifact)
	}
	for _, name := range []string{"stdout.txt", "stderr.txt", "meta.json", "x", "../x"} {
		m.Published = append(m.Published, file(name, "secret"))
	}
	f.publish(t, m)
	a = f.artifacts(t)
	for name, code := range map[string]fault.Code{
		"stdout.txt": fault.ArtifactAltered, "stderr.txt": fault.ArtifactAltered, "meta.json": fault.ArtifactAltered,
		"x": fault.UnknownArtifact, "../x": fault.UnknownArtifact, "": fault.UnknownArtifact,
	} {
		_, _, err := a.OpenPublished(t.Context(), name)
		wantCode(t, err, code)
	}
	_, err := f.project.Artifacts("no-such-exec", "", nil)
	wantCode(t, err, fault.UnknownArtifact)
}

// TestOnlyFilesOfManifestAreOpened is the escape test of downloads.
func TestOnlyFilesOfManifestAreOpened(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/a/b/c", "abc")
	write(t, f.left+"/d", "d")
	write(t, f.left+"/e", "e")
	write(t, f.left+"/g/h", "h")
	must(t, os.Symlink("/etc/passwd", f.left+"/passwd"))
	m := f.collect(t, plenty)
	f.publish(t, m)
	must(t, f.project.Publish(execID, workspace.StdoutName, strings.NewReader("out")))
	write(t, f.left+"/late", "not in the manifest")

	if got, err := f.content(t, "a/b/c"); err != nil || got != "abc" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, path := range []string{
		"", ".", "..", "/", "a", "a/b", "a/b/", "a//b/c", "./a/b/c", "a/./b/c", "a/../d", "../" + execID + "/d", "../../../../outside/secret", f.left + "/d",
		"/etc/passwd",
		"passwd", "late", "stdout.txt", "manifest.json", "meta.json", `a\b\c`, "D", "d\x00", "d/", "a/b/c/d", strings.Repeat("a/", 3000), "\xff",
	} {
		_, err := f.content(t, path)
		wantCode(t, err, fault.UnknownArtifact)
	}

	// Collected files that are something else now.
	must(t, os.Remove(f.left+"/d"))
	must(t, os.Symlink(f.outside+"/secret", f.left+"/d"))
	must(t, os.Remove(f.left+"/e"))
	must(t, unix.Mkfifo(f.left+"/e", 0o644))
	must(t, os.Rename(f.left+"/a/b", f.left+"/a/moved"))
	must(t, os.Symlink("moved", f.left+"/a/b"))
	write(t, f.left+"/g/h", "longer")
	for _, path := range []string{"d", "e", "a/b/c", "g/h"} {
		_, err := f.content(t, path)
		wantCode(t, err, fault.ArtifactAltered)
	}

	// A forged manifest does not lead out either.
	evil := workspace.Manifest{ExecID: execID, Files: []workspace.ManifestEntry{
		{Path: "../../../../outside/secret", Size: 6, Kind: "file"},
		{Path: f.outside + "/secret", Size: 6, Kind: "file"},
		{Path: "d", Size: 6, Kind: "file"},
		{Path: ".", Kind: "file"},
		{Path: "", Kind: "file"},
		{Path: "a", Kind: "file"},
	}}
	f.publish(t, evil)
	for _, entry := range evil.Files {
		if _, err := f.content(t, entry.Path); !fault.Is(err, fault.UnknownArtifact) && !fault.Is(err, fault.ArtifactAltered) {
			t.Errorf("%q: %v", entry.Path, err)
		}
	}
}

func TestDamagedManifests(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	good := `{"exec_id": "` + execID + `"}`
	wants := func(content string, code fault.Code) {
		t.Helper()
		_, err := f.project.Artifacts(execID, "sha256:"+digest(content), nil)
		wantCode(t, err, code)
	}
	wants(good, fault.UnknownArtifact)
	for _, content := range []string{"", "{", "[]", `{"exec_id":"another"}`, `{"exec_id":1}`} {
		must(t, f.project.Publish(execID, workspace.ManifestName, strings.NewReader(content)))
		wants(content, fault.Internal)
		wants(good, fault.ArtifactAltered)
	}
	sparse(t, f.left+"/manifest.json", 10<<30)
	wants(good, fault.ArtifactAltered)
	must(t, os.Remove(f.left+"/manifest.json"))
	must(t, os.Symlink(f.outside+"/secret", f.left+"/manifest.json"))
	wants("secret", fault.ArtifactAltered)
}
