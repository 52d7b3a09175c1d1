package storetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/audit/translog/verify"
	"secbox/pathadapter"
	"secbox/workspace"
)

// files is a workspace with the artifacts of some execs.
type files struct {
	project *workspace.Project
	root    string // of the artifacts
}

func newFiles(t *testing.T) files {
	t.Helper()
	root := t.TempDir()
	adapter, err := pathadapter.New(pathadapter.Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	w, err := workspace.Open(workspace.Options{Adapter: adapter, UID: -1, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	project, err := w.Project("demo")
	if err != nil {
		t.Fatal(err)
	}
	return files{project, filepath.Join(root, filepath.FromSlash(filepath.Dir(project.ArtifactsPath("x"))))}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// leave publishes the artifacts a.txt and b.txt of an exec, and returns the digest of their
// manifest.
func (f files) leave(t *testing.T, execID string) string {
	t.Helper()
	if err := f.project.NewArtifacts(execID); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.txt", "b.txt"} {
		write(t, filepath.Join(f.root, execID, name), name)
	}
	m, err := f.project.Collect(t.Context(), execID, 1<<20, workspace.FullAccess)
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.JSON()
	if err == nil {
		err = f.project.Publish(execID, workspace.ManifestName, strings.NewReader(string(text)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return digestOf(text)
}

func digestOf(manifest []byte) string {
	sum := sha256.Sum256(manifest)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// check is verify.Options.Artifacts.
func (f files) check(ctx context.Context, r audit.Record, report func(what, expected, found string)) (int, error) {
	if !strings.HasPrefix(r.ManifestDigest, "sha256:") {
		return 0, nil
	}
	return f.project.CheckArtifacts(ctx, r.ExecID, r.ManifestDigest, report)
}

// verifyArtifacts names every change of artifacts and manifests.
func verifyArtifacts(t *testing.T, f Fixture) {
	e, left := newEvidence(t, f), newFiles(t)
	var execs []audit.Record
	for range 2 {
		r := record()
		mustOpen(t, e.Audit(), r)
		r.ManifestDigest = left.leave(t, r.ExecID)
		if _, err := e.Audit().Close(t.Context(), in(ended(r), func(c *audit.Record) { c.ManifestDigest = r.ManifestDigest })); err != nil {
			t.Fatal(err)
		}
		execs = append(execs, r)
	}
	logAll(t, sequencer(t, e.TransparencyLog(), "n1", e.keyFile))
	e.unprotect(t)
	one, two := execs[0].ExecID, execs[1].ExecID
	if lines, sum, _ := e.verify(t, verify.Options{Artifacts: left.check}); len(lines) > 0 || sum.ArtifactFiles != 6 {
		t.Fatalf("before: %q, %+v", lines, sum)
	}
	path := func(execID, name string) string { return filepath.Join(left.root, execID, name) }
	rename := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	swap := func(a, b string) {
		aside := filepath.Join(left.root, "aside")
		rename(a, aside)
		rename(b, a)
		rename(aside, b)
	}
	text, err := os.ReadFile(path(one, workspace.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	manifest := string(text)
	other := strings.Replace(manifest, `"a.txt"`, `"aa.txt"`, 1)
	for _, a := range []struct {
		name         string
		change, undo func()
		says         []string
	}{
		{
			"changed", func() { write(t, path(one, "a.txt"), "b.txt") }, func() { write(t, path(one, "a.txt"), "a.txt") },
			[]string{`exec ONE: artifact "a.txt": expected the size 5 and the SHA-256 `},
		},
		{
			"added", func() { write(t, path(one, "c.txt"), "c") }, func() { os.Remove(path(one, "c.txt")) },
			[]string{`exec ONE: artifact "c.txt": expected no such file, found one that the manifest does not have`},
		},
		{
			"removed", func() { os.Remove(path(one, "a.txt")) }, func() { write(t, path(one, "a.txt"), "a.txt") },
			[]string{`exec ONE: artifact "a.txt": expected the size 5 and the SHA-256 ` + digestOf([]byte("a.txt"))[len("sha256:"):] +
				", found none"},
		},
		{
			"swapped", func() { swap(path(one, "a.txt"), path(one, "b.txt")) }, func() { swap(path(one, "a.txt"), path(one, "b.txt")) },
			[]string{`exec ONE: artifact "a.txt": expected `, `exec ONE: artifact "b.txt": expected `},
		},
		{
			"swapped with those of another exec", func() { swap(path(one, ""), path(two, "")) },
			func() { swap(path(one, ""), path(two, "")) },
			[]string{
				"exec ONE: manifest.json: expected " + execs[0].ManifestDigest,
				"exec TWO: manifest.json: expected " + execs[1].ManifestDigest,
			},
		},
		{
			"the manifest", func() { write(t, path(one, workspace.ManifestName), other) },
			func() { write(t, path(one, workspace.ManifestName), manifest) },
			[]string{"exec ONE: manifest.json: expected " + execs[0].ManifestDigest},
		},
		{
			"the manifest with its row and an artifact, last since it stays", func() {
				write(t, path(one, workspace.ManifestName), other)
				rename(path(one, "a.txt"), path(one, "aa.txt"))
				e.mustSQL(t, fmt.Sprintf("UPDATE sandbox_execs SET manifest_digest = '%s' WHERE exec_id = '%s'", digestOf([]byte(other)),
					one))
			}, func() {},
			[]string{fmt.Sprintf("exec ONE: manifest_digest: expected %q, found %q", execs[0].ManifestDigest, digestOf([]byte(other)))},
		},
	} {
		a.change()
		lines, _, kept := e.verify(t, verify.Options{Artifacts: left.check})
		names := strings.NewReplacer("ONE", one, "TWO", two)
		if len(lines) != len(a.says) || kept != nil {
			t.Errorf("%s: %d differences: %q", a.name, len(lines), lines)
		}
		for _, says := range a.says {
			if !strings.Contains("\n"+strings.Join(lines, "\n"), "\n"+names.Replace(says)) {
				t.Errorf("%s: %q is not in %q", a.name, names.Replace(says), lines)
			}
		}
		a.undo()
	}
}
