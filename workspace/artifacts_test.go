//go:build unix

package workspace_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"secbox/fault"
	"secbox/workspace"
)

// TestAlteredFilesAreNotServed changes files after they were collected, each without a change of
// its size.
func TestAlteredFilesAreNotServed(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/a", "good")
	write(t, f.left+"/gone", "good")
	write(t, f.left+"/b", "good")
	m := f.collect(t, plenty)
	for _, name := range []string{workspace.StdoutName, workspace.MetaName} {
		entry, err := workspace.Describe(workspace.File{Name: name, Content: strings.NewReader("ours")})
		must(t, err)
		m.Published = append(m.Published, entry)
		must(t, f.project.Publish(execID, name, strings.NewReader("ours")))
	}
	f.publish(t, m)

	write(t, f.left+"/a", "evil")
	must(t, os.Remove(f.left+"/gone"))
	write(t, f.left+"/stdout.txt", "evil")
	a := f.artifacts(t)
	for _, path := range []string{"a", "gone"} {
		if got, err := contentOf(a.Open(t.Context(), path)); !fault.Is(err, fault.ArtifactAltered) || got != "" ||
			!strings.Contains(fault.From(err).Message, path) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if got, err := contentOf(a.Open(t.Context(), "b")); err != nil || got != "good" {
		t.Errorf("b: %q, %v", got, err)
	}
	if _, _, err := a.OpenPublished(t.Context(), workspace.StdoutName); !fault.Is(err, fault.ArtifactAltered) {
		t.Errorf("stdout.txt: %v", err)
	}
	r, entry, err := a.OpenPublished(t.Context(), workspace.MetaName)
	if got, err := all(r, err); err != nil || got != "ours" || entry.SHA256 != digest("ours") {
		t.Errorf("meta.json: %q, %v", got, err)
	}
	recorded := "sha256:" + digest(read(t, f.left+"/manifest.json"))
	r, entry, err = f.project.OpenPublished(t.Context(), execID, recorded, workspace.ManifestName, nil)
	if got, err := all(r, err); err != nil || got != read(t, f.left+"/manifest.json") || entry.SHA256 != digest(got) {
		t.Errorf("manifest.json: %q, %v", got, err)
	}

	if _, err := f.project.Artifacts(execID, "sha256:"+digest("another"), nil); !fault.Is(err, fault.ArtifactAltered) ||
		!strings.Contains(fault.From(err).Message, "manifest_digest") {
		t.Errorf("manifest.json: %v", err)
	}
	if _, _, err := f.project.OpenPublished(t.Context(), execID, "sha256:"+digest("another"), workspace.ManifestName, nil); !fault.Is(err,
		fault.ArtifactAltered) || !strings.Contains(fault.From(err).Message, "manifest_digest") {
		t.Errorf("manifest.json as a file: %v", err)
	}
}

// TestManifestCountsAsMemory: the memory of a manifest is counted before it is read, and given
// back.
func TestManifestCountsAsMemory(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/a", "good")
	m := f.collect(t, plenty)
	entry, err := workspace.Describe(workspace.File{Name: workspace.MetaName, Content: strings.NewReader("ours")})
	must(t, err)
	m.Published = append(m.Published, entry)
	must(t, f.project.Publish(execID, workspace.MetaName, strings.NewReader("ours")))
	f.publish(t, m)
	text := read(t, f.left+"/manifest.json")
	recorded := "sha256:" + digest(text)

	var held, most int64
	reserve := func(bytes int64) error {
		held += bytes
		most = max(most, held)
		return nil
	}
	a, err := f.project.Artifacts(execID, recorded, reserve)
	must(t, err)
	if held < 3*int64(len(text)) {
		t.Errorf("an open manifest of %d bytes counts as %d", len(text), held)
	}
	must(t, a.Close())
	if held != 0 {
		t.Errorf("%d bytes are held after Close", held)
	}
	most = 0
	_, err = contentOf(f.project.OpenPublished(t.Context(), execID, recorded, workspace.MetaName, reserve))
	must(t, err)
	if held != 0 || most < int64(len(text)) {
		t.Errorf("meta.json: %d bytes are held, at most %d", held, most)
	}
	most = 0
	_, err = contentOf(f.project.OpenPublished(t.Context(), execID, recorded, workspace.ManifestName, reserve))
	must(t, err)
	if most != 0 {
		t.Errorf("the manifest as a file takes %d bytes of memory", most)
	}

	full := fault.New(fault.ServerBusy, "full")
	refuse := func(bytes int64) error {
		if bytes > 0 {
			return full
		}
		return nil
	}
	if _, err := f.project.Artifacts(execID, recorded, refuse); !errors.Is(err, full) {
		t.Errorf("without memory: %v", err)
	}
}

// TestFileIsHashedOnce: a file that last changed long enough ago is not read again until its stat
// data change.
func TestFileIsHashedOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/a", "good")
	m := f.collect(t, plenty)
	f.publish(t, m)
	for range 2 {
		if _, err := f.content(t, "a"); err != nil || f.KnownIntact() != 0 {
			t.Errorf("a file that was just changed is remembered: %v", err)
		}
	}
	f.TrustNewStats()
	for range 2 {
		if _, err := f.content(t, "a"); err != nil || f.KnownIntact() != 1 {
			t.Errorf("%d are remembered, %v", f.KnownIntact(), err)
		}
	}

	m.Files[0].SHA256 = digest("else")
	f.publish(t, m)
	if _, err := f.content(t, "a"); !fault.Is(err, fault.ArtifactAltered) {
		t.Errorf("a digest that is not the file's: %v", err)
	}
	fi, err := os.Lstat(f.left + "/a")
	must(t, err)
	f.RememberIntact(fi, digest("else"))
	if _, err := f.content(t, "a"); err != nil {
		t.Errorf("a remembered file was read again: %v", err)
	}
	write(t, f.left+"/a", "evil")
	must(t, os.Chtimes(f.left+"/a", fi.ModTime(), fi.ModTime()))
	if _, err := f.content(t, "a"); !fault.Is(err, fault.ArtifactAltered) {
		t.Errorf("a file that was changed after it was remembered: %v", err)
	}
}

// TestFileChangedWhileReadIsCut: nothing is returned after the change.
func TestFileChangedWhileReadIsCut(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	write(t, f.left+"/a", "goodgood")
	f.publish(t, f.collect(t, plenty))
	r, _, err := f.artifacts(t).Open(t.Context(), "a")
	must(t, err)
	defer r.Close()
	half := make([]byte, 4)
	if _, err := io.ReadFull(r, half); err != nil || string(half) != "good" {
		t.Fatalf("%q, %v", half, err)
	}
	must(t, os.Truncate(f.left+"/a", 7))
	if rest, err := io.ReadAll(r); err == nil || len(rest) != 0 {
		t.Errorf("read on: %q", rest)
	}
	if _, ok := r.(io.WriterTo); ok {
		t.Error("io.Copy would pass the check by")
	}
}

// TestCollectedFilesBelongToCoreAPI gives a job's tree the rights that a job can give it, and a
// second name in work/.
func TestCollectedFilesBelongToCoreAPI(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	uid := os.Geteuid()
	write(t, f.left+"/open/file", "file")
	write(t, f.left+"/empty", "")
	write(t, f.left+"/linked", "linked")
	must(t, os.Symlink("file", f.left+"/symlink"))
	must(t, os.Link(f.left+"/linked", f.dir+"/work/other"))
	for _, name := range []string{"open", "open/file", "empty", "linked", "symlink"} {
		if uid == 0 {
			must(t, os.Lchown(f.left+"/"+name, owner(), owner()))
		}
		if name != "symlink" {
			must(t, os.Chmod(f.left+"/"+name, 0o777))
		}
	}
	wantFiles(t, f.collect(t, plenty), file("empty", ""), file("linked", "linked"), file("open/file", "file"),
		workspace.ManifestEntry{Path: "symlink", Kind: workspace.KindSymlink})
	for _, name := range []string{"open", "open/file", "empty", "linked", "symlink"} {
		fi, err := os.Lstat(f.left + "/" + name)
		must(t, err)
		if !ownedBy(fi, uid) || fi.Mode().IsRegular() && (fi.Mode().Perm()&0o022 != 0 || fi.Sys().(*syscall.Stat_t).Nlink != 1) {
			t.Errorf("%s: %+v", name, fi.Sys())
		}
	}
	other, err := os.Lstat(f.dir + "/work/other")
	must(t, err)
	if uid == 0 && !ownedBy(other, owner()) {
		t.Error("the job's own name of the file was taken from it")
	}
	write(t, f.dir+"/work/other", "forged")
	if got := read(t, f.left+"/linked"); got != "linked" {
		t.Errorf("the artifact is %q now", got)
	}
}

// TestProjectsArePrivate: no other user of the host reaches a project, also one that an earlier
// version has made.
func TestProjectsArePrivate(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // nothing can be taken away then
	}
	f := setUp(t)
	projects := f.root + "/projects"
	must(t, os.Chown(projects, owner(), owner()))
	must(t, os.Chmod(projects, 0o755))
	open(t, f.root)
	fi, err := os.Lstat(projects)
	must(t, err)
	if fi.Mode().Perm() != 0o700 || !ownedBy(fi, 0) {
		t.Errorf("%v", fi.Mode())
	}
}
