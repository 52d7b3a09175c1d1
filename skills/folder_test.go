package skills

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// one opens a catalog whose only folder is text.demo.
func one(t *testing.T, f files) *Snapshot {
	t.Helper()
	dir := t.TempDir()
	f.write(t, filepath.Join(dir, "text.demo"))
	return open(t, dir).Now()
}

// wantProblem checks that one problem is at the file and contains the text.
func wantProblem(t *testing.T, problems []Problem, file, says string) {
	t.Helper()
	for _, p := range problems {
		if p.File == file && strings.Contains(p.Reason, says) {
			return
		}
	}
	t.Errorf("nothing says %q of %q: %+v", says, file, problems)
}

func TestBrokenFolders(t *testing.T) {
	t.Parallel()
	big := func(n int) string { return strings.Repeat("x", n) }
	many := func(n int, name string) files {
		f := demo()
		for i := range n {
			f[fmt.Sprintf(name, i)] = ""
		}
		return f
	}
	for name, c := range map[string]brokenFolder{
		"no manifest":               {demo().without(ManifestFile), ManifestFile, "does not exist"},
		"no SKILL.md":               {demo().without(ReadmeFile), ReadmeFile, "does not exist"},
		"an empty SKILL.md":         {demo().with(ReadmeFile, " \n"), ReadmeFile, "is empty"},
		"a SKILL.md in Latin-1":     {demo().with(ReadmeFile, "caf\xe9"), ReadmeFile, "is not valid UTF-8"},
		"a SKILL.md that is a dir":  {demo().without(ReadmeFile).with(ReadmeFile+"/", ""), ReadmeFile, "does not exist"},
		"a manifest of 10 MiB":      {demo().with(ManifestFile, good+big(10<<20)), ManifestFile, "is larger than 1048576 bytes"},
		"a SKILL.md of 10 MiB":      {demo().with(ReadmeFile, big(10<<20)), ReadmeFile, "is larger than 1048576 bytes"},
		"an entrypoint not there":   {demo().without("run.sh"), ManifestFile, "names ./run.sh, which is no regular file"},
		"an entrypoint that is dir": {demo().without("run.sh").with("run.sh/x", ""), ManifestFile, "names ./run.sh, which is no regular file"},
		"too deep": {
			demo().with(strings.Repeat("d/", 16)+"x", ""), strings.TrimSuffix(strings.Repeat("d/", 16), "/"),
			"is deeper than 16 levels",
		},
		"too many files":       {many(2000, "f%d"), "", "holds more than 2000 files"},
		"too many directories": {many(2001, "d%d/"), "", "holds more than 2000 directories"},
		"too many names":       {many(10_001, ".hidden%d"), ".", "holds more than 10000 entries"},
		"too long a path":      {demo().with(strings.Repeat(strings.Repeat("d", 200)+"/", 6)+"x", ""), "", ""},
	} {
		t.Run(name, c.isFound)
	}
}

type brokenFolder struct {
	files      files
	file, says string // a problem; empty: any
}

func (c brokenFolder) isFound(t *testing.T) {
	t.Parallel()
	now := one(t, c.files)
	problems := brokenOf(t, now, "text.demo")
	if c.says != "" {
		wantProblem(t, problems, c.file, c.says)
	}
	if _, err := now.Get("shell.run"); err != nil {
		t.Errorf("it hides others: %v", err)
	}
}

func TestGoodFolders(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]files{
		"as it is":            demo(),
		"hidden files":        demo().with(".git/config", "x").with(".run.sh.swp", "x").with("lib/.DS_Store", "x"),
		"an empty directory":  demo().with("empty/", ""),
		"as deep as may be":   demo().with(strings.Repeat("d/", 15)+"x", ""),
		"a file of no bytes":  demo().with("none", ""),
		"an underscore below": demo().with("_lib.py", "").with("_lib/x.py", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := one(t, f).Get("text.demo")
			must(t, err)
			for _, file := range s.Files {
				content, err := fs.ReadFile(s.FS(), file.Path)
				must(t, err)
				if string(content) != f[file.Path] || file.Size != int64(len(content)) || strings.Contains(file.Path, "/.") || file.Path[0] == '.' {
					t.Errorf("%+v", file)
				}
			}
		})
	}
}

func TestTooManyBytesAreNotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	folder := filepath.Join(dir, "text.demo")
	demo().write(t, folder)
	// A sparse file of 1 TiB, which would take too long to hash.
	f, err := os.Create(filepath.Join(folder, "huge"))
	must(t, err)
	must(t, f.Truncate(1<<40))
	must(t, f.Close())
	wantProblem(t, brokenOf(t, open(t, dir).Now(), "text.demo"), "", "holds more than 64 MiB")
}

func TestEntrypoints(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ entrypoint, where, says string }{
		{`["bash", "./run.sh"]`, "", ""},
		{`["python", "-I", "./lib/x.py", "../up", "a/../b", "."]`, "", ""}, // only what begins with ./ names a file of ours
		{`["./bin/tool"]`, "", ""},
		{`["./elf", "x"]`, "", ""},
		{`["./run.sh"]`, "0", `put its interpreter before it, as in ["bash", "./run.sh"]`},
		{`["bash", "./none.sh"]`, "1", "is no regular file of the skill's folder"},
		{`["bash", "./lib"]`, "1", "is no regular file of the skill's folder"},
		{`["bash", "./Run.sh"]`, "1", "is no regular file of the skill's folder"},
		{`["bash", "./"]`, "1", "must name a file below the skill's folder"},
		{`["bash", "./."]`, "1", "must name a file below the skill's folder"},
		{`["bash", "./../text.demo/run.sh"]`, "1", "must name a file below the skill's folder"},
		{`["bash", "./lib/../run.sh"]`, "1", "must name a file below the skill's folder"},
		{`["bash", ".//run.sh"]`, "1", "must name a file below the skill's folder"},
		{`["bash", "./lib\\x.py"]`, "1", "must name a file below the skill's folder"},
		{`["bash", "./run.sh/"]`, "1", "must name a file below the skill's folder"},
		{`["bash", "./.hidden/x"]`, "1", "hidden files do not belong to a skill"},
		{`["bash", "./..x"]`, "1", "hidden files do not belong to a skill"},
	} {
		t.Run(c.entrypoint, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f := files{}.with("x", "")
			for path, content := range demo().with("bin/tool", "#!/bin/sh\n").with("elf", "\x7fELF\x02").with("lib/x.py", "").with(".hidden/x", "").with("..x",
				"#!") {
				f[path] = content
			}
			f.with(ManifestFile, set(t, "/runtime/entrypoint", c.entrypoint)).write(t, filepath.Join(dir, "text.demo"))
			now := open(t, dir).Now()
			if c.says == "" {
				_, err := now.Get("text.demo")
				must(t, err)
				return
			}
			wants(t, brokenOf(t, now, "text.demo"), "/runtime/entrypoint/"+c.where, c.says)
		})
	}
}

// TestDigest guards the documented format: records and folders in workspaces depend on it.
func TestDigest(t *testing.T) {
	t.Parallel()
	got := Digest([]File{{Path: "a", Size: 1, SHA256: "00"}, {Path: "b/c", Size: 22, SHA256: "ff", Executable: true, Program: true}})
	// printf 'secbox skill 1\n00 - 1 a\nff x 22 b/c\n' | sha256sum
	if want := "883d0b2ef2fc9b74dd575555b6f141bda093fd973f3477085688360ef7ac3f3b"; got != want {
		t.Errorf("got %s", got)
	}
	base, err := one(t, demo()).Get("text.demo")
	must(t, err)
	for name, f := range map[string]files{
		"content":       demo().with("run.sh", "echo ho\n"),
		"a name":        demo().with("run2.sh", "echo hi\n"),
		"an empty file": demo().with("x", ""),
		"SKILL.md":      demo().with(ReadmeFile, "# Other\n"),
		"the manifest":  demo().with(ManifestFile, good+"\n"),
	} {
		s, err := one(t, f).Get("text.demo")
		must(t, err)
		if s.Digest == base.Digest {
			t.Errorf("%s does not count", name)
		}
	}
	// The digest is the same embedded, on disk, and with any mode.
	dir := t.TempDir()
	demo().write(t, filepath.Join(dir, "text.demo"))
	must(t, os.Chmod(filepath.Join(dir, "text.demo", "run.sh"), 0o755))
	s, err := open(t, dir).Now().Get("text.demo")
	must(t, err)
	embeddedFS := fstest.MapFS{}
	for path, content := range demo() {
		embeddedFS["text.demo/"+path] = &fstest.MapFile{Data: []byte(content), Mode: 0o444}
	}
	src := source{name: BuiltIn, open: func() (sourceDir, error) { return embeddedSource{embedded{embeddedFS}}, nil }}
	must(t, src.refresh())
	if e := src.states["text.demo"].skill; e.Digest != base.Digest || s.Digest != base.Digest {
		t.Errorf("%s, %s, %s", base.Digest, s.Digest, e.Digest)
	}
}
