package main

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	cdx "github.com/CycloneDX/cyclonedx-go"

	"secbox/internal/buildinfo"
)

// commitTime is the time of a release's commit.
var commitTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// newTestRelease returns a release of this clone that writes into a directory of the test.
func newTestRelease(t *testing.T) *release {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return &release{root: root, out: t.TempDir(), work: t.TempDir(), commit: "c0ffee", time: commitTime, log: io.Discard}
}

func write(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestVersionIsThatInTheChangelog(t *testing.T) {
	t.Parallel()
	changes, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^## \[(\d.*)\] - \d{4}-\d\d-\d\d$`).FindSubmatch(changes); m == nil || string(m[1]) != buildinfo.Version {
		t.Errorf("CHANGELOG.md begins with version %q, and the programs say %s", m, buildinfo.Version)
	}
}

// TestSameBytes builds the smallest program twice, in two directories whose files have other times,
// modes and another order.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	archives := map[string][]string{}
	for i, mode := range []os.FileMode{0o644, 0o600} {
		r := newTestRelease(t)
		dir := filepath.Join(r.work, "secbox-x")
		if err := r.build(t.Context(), target{"linux", runtime.GOARCH}, "sandbox-init", filepath.Join(dir, "bin", "sandbox-init")); err != nil {
			t.Fatal(err)
		}
		files := []string{"LICENSE", "scripts/lib.sh", "a"}
		if i == 1 {
			files = []string{"a", "scripts/lib.sh", "LICENSE"}
		}
		for _, f := range files {
			write(t, filepath.Join(dir, f), f, mode)
			if at := time.Unix(int64(i)*1e9, 0); os.Chtimes(filepath.Join(dir, f), at, at) != nil {
				t.Fatal("no such file")
			}
		}
		for name, pack := range map[string]func(io.Writer, string, time.Time) error{"a.tar.gz": writeTar, "a.zip": writeZip} {
			if err := r.pack(dir, name, pack); err != nil {
				t.Fatal(err)
			}
			sum, err := digest(filepath.Join(r.out, name))
			if err != nil {
				t.Fatal(err)
			}
			archives[name] = append(archives[name], string(sum))
		}
		if i == 1 {
			checkModes(t, filepath.Join(r.out, "a.zip"))
		}
	}
	for name, sums := range archives {
		if sums[0] != sums[1] {
			t.Errorf("two builds of %s differ", name)
		}
	}
}

func checkModes(t *testing.T, file string) {
	t.Helper()
	archive, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var list []string
	for _, f := range archive.File {
		list = append(list, f.Mode().String()+" "+f.Name)
	}
	if got := strings.Join(list, "\n"); got != "-rw-r--r-- secbox-x/LICENSE\n-rw-r--r-- secbox-x/a\n-rwxr-xr-x secbox-x/bin/sandbox-init\n"+
		"-rwxr-xr-x secbox-x/scripts/lib.sh" {
		t.Errorf("the archive holds\n%s", got)
	}
}

// TestParts reads the licences of everything that the programs are made of.
func TestParts(t *testing.T) {
	t.Parallel()
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	r := newTestRelease(t)
	parts, err := r.parts(t.Context(), []target{{"linux", "amd64"}, {"windows", "arm64"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"github.com/hashicorp/yamux": "MPL-2.0", "github.com/spf13/cobra": "Apache-2.0", "std": "BSD-3-Clause", "htmx.org": "0BSD",
		"github.com/inconshreveable/mousetrap": "Apache-2.0", // only on Windows
	} {
		found := false
		for _, p := range parts {
			found = found || p.name == name && strings.Join(p.licences, " ") == want
		}
		if !found {
			t.Errorf("%s is no part, or its licence is not %s", name, want)
		}
	}
	all := string(notices(parts))
	for _, want := range []string{"github.com/hashicorp/yamux v", "MPL-2.0; https://github.com/hashicorp/yamux", "Mozilla Public License", "Zero-Clause BSD"} {
		if !strings.Contains(all, want) {
			t.Errorf("the notices lack %q", want)
		}
	}
	if n := strings.Count(all, "Version 2.0, January 2004"); n > 20 { // some texts differ by a line
		t.Errorf("the notices have the Apache license %d times", n)
	}

	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).Encode(bom(parts, "c0ffee", commitTime)); err != nil {
		t.Fatal(err)
	}
	var list cdx.BOM
	if err := cdx.NewBOMDecoder(&b, cdx.BOMFileFormatJSON).Decode(&list); err != nil {
		t.Fatal(err)
	}
	if list.Metadata.Timestamp != "2026-11-30T12:00:00Z" || len(*list.Components) != len(parts) ||
		len(*(*list.Dependencies)[0].Dependencies) != len(parts) {
		t.Errorf("the bill of materials has %d components of %d", len(*list.Components), len(parts))
	}
}

func TestLicencesThatMayNotBeDistributed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, content, says string }{
		"none":    {"README.md", "free", "has no licence"},
		"unknown": {"LICENSE", "You may use this on Mondays.", "0 % of LICENSE is a known licence"},
		"GPL": {"COPYING", "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General " +
			"Public License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version.", "GPL-3.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := part{name: "example.com/m", version: "v1.0.0", dir: t.TempDir()}
			write(t, filepath.Join(p.dir, c.file), c.content, 0o644)
			if err := p.read(p.dir); err != nil {
				t.Fatal(err)
			}
			if err := p.judge(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSignature(t *testing.T) {
	t.Parallel()
	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := secret.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	write(t, file, string(text), 0o600)
	key, err := readKey(file, "")
	if err != nil {
		t.Fatal(err)
	}
	r := newTestRelease(t)
	write(t, filepath.Join(r.out, "secbox-x.zip"), "x", 0o644)
	if err := r.finish(key); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(r.out, sumsFile))
	if err != nil || string(sums) != "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  secbox-x.zip\n" {
		t.Errorf("%s %v", sums, err)
	}
	signature, err := os.ReadFile(filepath.Join(r.out, sumsFile+".minisig"))
	if err != nil || !minisign.Verify(public, sums, signature) || minisign.Verify(public, append(sums, ' '), signature) {
		t.Errorf("the signature is wrong: %s %v", signature, err)
	}
	if key.public() != public.String() {
		t.Errorf("the public half is %s", key.public())
	}
	write(t, file, "no key", 0o600)
	if _, err := readKey(file, ""); err == nil || !strings.Contains(err.Error(), "minisign -G makes one") {
		t.Errorf("%v", err)
	}
}

// TestForeignFilesStay: the directory of a release is emptied only if it holds a release.
func TestForeignFilesStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secbox-0.1.0-linux-amd64.deb"), "old", 0o644)
	write(t, filepath.Join(dir, "thesis.tex"), "mine", 0o644)
	if err := emptied(dir); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("%v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%v %v", files, err)
	}
	if err := os.Remove(filepath.Join(dir, "thesis.tex")); err != nil {
		t.Fatal(err)
	}
	if err := emptied(dir); err != nil {
		t.Error(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v %v", files, err)
	}
}
