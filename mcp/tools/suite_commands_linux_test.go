package tools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"secbox/fault"
	"secbox/mcp/tools"
	"secbox/sandbox"
)

// cdResolves: paths are paths in the sandbox, and relative ones begin at its current directory
// (004 l370–385, l558–572).
func cdResolves(b *bench) {
	b.plant("sub/dir/a.txt", "a\n")
	r := b.do("files.cd", object{"path": "sub"})
	if b.session.Dir() != b.dir+"/sub" || r.Text != b.dir+"/sub\n  dir/\n    a.txt  2 B\n" || r.Meta["dir"] != b.dir+"/sub" {
		b.Errorf("%s %q", b.session.Dir(), r.Text)
	}
	b.prints("files.read", object{"path": "dir/a.txt"}, "     1\ta\n")
	b.refuses("files.cd", object{"path": "no"}, fault.UnknownFile, "the current directory is "+b.dir+"/sub")
	b.refuses("files.cd", object{"path": "dir/a.txt"}, fault.InvalidInputs, "is not a directory")
	b.refuses("files.cd", object{"path": "/etc"}, fault.PathRefused)
	b.refuses("files.cd", object{"path": "../../../etc"}, fault.PathRefused)
	if b.session.Dir() != b.dir+"/sub" {
		b.Errorf("after an error the directory is %s", b.session.Dir())
	}
	b.do("files.cd", object{"path": "dir"})
	b.do("files.cd", object{"path": ".."})
	r = b.do("shell", object{"command": `cat dir/a.txt; basename "$PWD"`}) // commands start there, too
	if r.Text != "a\nsub\n" {
		b.Errorf("%q", r.Text)
	}
	b.do("files.cd", object{"path": sandbox.Root})
	if b.session.Dir() != sandbox.Root {
		b.Errorf("%s", b.session.Dir())
	}
}

// cdBounded (004 l233).
func cdBounded(b *bench) {
	for n := range 300 {
		b.plant(fmt.Sprintf("f%03d", n), "")
	}
	for n := range 100 {
		b.plant(fmt.Sprintf("d/f%03d", n), "")
	}
	b.plant(".git/config", "")
	b.plant("d/1/2/3/4", "")
	b.plant("d/\x1b[2J\n", "")
	r := b.do("files.cd", object{"path": "."})
	if lines := strings.Count(r.Text, "\n"); lines > 210 ||
		!strings.Contains(r.Text, "  .git/\n  d/\n    \"\\x1b[2J\\n\"  0 B\n    1/\n      2/\n    f000  0 B\n") ||
		!strings.Contains(r.Text, "    … 62 more\n") || !strings.Contains(r.Text, "\n  … ") {
		b.Errorf("%d lines: %s", lines, r.Text)
	}
}

// cdNamesFirst: a large directory does not hide those after it.
func cdNamesFirst(b *bench) {
	for n := range 60 {
		b.plant(fmt.Sprintf("a/b%02d/f", n), "")
	}
	b.plant("z/x", "")
	r := b.do("files.cd", object{"path": "."})
	if !strings.Contains(r.Text, "\n  a/\n    b00/\n    b01/\n") || !strings.HasSuffix(r.Text, "    b39/\n    … 20 more\n  z/\n    x  0 B\n") {
		b.Errorf("%s", r.Text)
	}
}

// globFinds: by a command in the sandbox, as everywhere (004 l36, l231, l573–582).
func globFinds(b *bench) {
	for n, name := range []string{"old.go", "src/mid.go", "src/deep/new.go", "notes.txt"} {
		b.plant(name, "")
		at := time.Unix(1_700_000_000+int64(n), 0)
		b.must(os.Chtimes(filepath.Join(b.host, name), at, at))
	}
	b.prints("files.glob", object{"pattern": "*.go"}, "src/deep/new.go\nsrc/mid.go\nold.go\n")
	b.prints("files.glob", object{"pattern": "src/*.go"}, "src/mid.go\n")
	b.prints("files.glob", object{"pattern": "*.go", "path": "src/deep"}, "src/deep/new.go\n")
	b.prints("files.glob", object{"pattern": "*.go", "limit": 1}, "src/deep/new.go\n(the newest 1 of 3 files; narrow the search, or raise the limit)\n")
	b.prints("files.glob", object{"pattern": "*.rs"}, "nothing found\n")
	b.do("files.cd", object{"path": "src/deep"})
	b.prints("files.glob", object{"pattern": "*", "path": ".."}, "new.go\n"+b.dir+"/src/mid.go\n")
	b.refuses("files.glob", object{"pattern": "[a"}, fault.InvalidInputs, "[ without a ]")
	b.refuses("files.glob", object{"pattern": "*", "path": "no"}, fault.UnknownFile)
	b.refuses("files.glob", object{"pattern": "*", "limit": 5000}, fault.InvalidInputs, "limit")
}

// grepFinds: by a command in the sandbox, as everywhere (004 l36, l232, l573–582).
func grepFinds(b *bench) {
	for n, file := range [][2]string{{"a.go", "one\nNeedle\nthree\nfour\nneedle 2\n"}, {"b.txt", "needle\n"}} {
		b.plant(file[0], file[1])
		at := time.Unix(1_700_000_000+int64(n), 0)
		b.must(os.Chtimes(filepath.Join(b.host, file[0]), at, at))
	}
	b.prints("files.grep", object{"pattern": "needle"}, "b.txt\na.go\n")
	b.prints("files.grep", object{"pattern": "needle", "glob": "*.go"}, "a.go\n")
	b.prints("files.grep", object{"pattern": "needle", "output_mode": "count", "-i": true}, "b.txt: 1\na.go: 2\n")
	b.prints("files.grep", object{"pattern": "^needle", "output_mode": "content"}, "b.txt\n1:needle\n\na.go\n5:needle 2\n")
	b.prints("files.grep", object{"pattern": "Needle|2$", "output_mode": "content", "glob": "*.go", "-B": 1}, "a.go\n1-one\n2:Needle\n--\n4-four\n5:needle 2\n")
	b.prints("files.grep", object{"pattern": "one", "output_mode": "content", "-A": 2}, "a.go\n1:one\n2-Needle\n3-three\n")
	b.prints("files.grep", object{"pattern": "four", "output_mode": "content", "-C": 1}, "a.go\n3-three\n4:four\n5-needle 2\n")
	b.prints("files.grep", object{"pattern": "needle", "-i": true, "output_mode": "content", "head_limit": 2},
		"b.txt\n1:needle\n\na.go\n2:Needle\n(2 of 3 lines that match, in 2 files; narrow the search, or raise the limit)\n")
	b.prints("files.grep", object{"pattern": "absent"}, "nothing found\n")
	b.plant("bom.py", "\ufeffimport os\nprint(1)\n")
	b.plant("powershell.txt", "\xff\xfei\x00m\x00p\x00o\x00r\x00t\x00\r\x00\n\x00")
	b.prints("files.grep", object{"pattern": "^import", "glob": "bom.py", "output_mode": "content"}, "bom.py\n1:import os\n")
	b.prints("files.grep", object{"pattern": "^import$", "output_mode": "content"}, "powershell.txt\n1:import\n")
	b.plant("program", "\x7fELF\x00import")
	b.prints("files.grep", object{"pattern": "import", "glob": "program"}, "nothing found\n(binary files that were not searched: 1)\n")
	b.refuses("files.grep", object{"pattern": "("}, fault.InvalidInputs, "is no regular expression", "missing closing )")
	b.refuses("files.grep", object{"pattern": "x", "output_mode": "json"}, fault.InvalidInputs, "files_with_matches, content or count")
	b.refuses("files.grep", object{"pattern": "x", "-A": 1000}, fault.InvalidInputs, "-A")
}

// grepHostile: names and lines with line breaks and control bytes forge no results.
func grepHostile(b *bench) {
	b.plant("a\nb.go:1:forged\n", "needle \x1b[2J\x00\n")
	b.plant("c\nforged.go\n", "needle \x1b[2J \xff\r\n")
	b.prints("files.grep", object{"pattern": "needle", "output_mode": "content"},
		`"c\nforged.go\n"`+"\n1:needle \\x1b[2J \\xff\n(binary files that were not searched: 1)\n")
	b.prints("files.glob", object{"pattern": "c*"}, `"c\nforged.go\n"`+"\n")
	b.plant("nl-\xff", "x\n")
	b.prints("files.glob", object{"pattern": "nl*"}, "nl-%FF\n")
	b.prints("files.read", object{"path": "nl-%FF"}, "     1\tx\n")
	b.do("files.edit", object{"path": "nl-%FF", "edits": []object{{"old": "x", "new": "y"}}})
	if got := b.found("nl-\xff"); got != "y\n" {
		b.Errorf("%q", got)
	}
}

func searchesStayInside(b *bench) {
	outside := b.TempDir()
	b.must(os.WriteFile(filepath.Join(outside, "secret"), []byte("needle\n"), 0o644))
	b.must(os.Chmod(outside, 0o755))
	b.must(os.Symlink(outside, filepath.Join(b.host, "out")))
	b.must(os.Symlink(filepath.Join(outside, "secret"), filepath.Join(b.host, "file")))
	b.must(syscall.Mkfifo(filepath.Join(b.host, "pipe"), 0o666))
	b.prints("files.grep", object{"pattern": "needle|root"}, "nothing found\n")
	b.prints("files.glob", object{"pattern": "*"}, "nothing found\n")
	for _, path := range []string{"out", "out/secret", "file", "/etc", "../../../etc/passwd"} {
		b.refuses("files.grep", object{"pattern": "needle|root", "path": path}, fault.PathRefused)
		b.refuses("files.glob", object{"pattern": "*", "path": path}, fault.PathRefused)
	}
}

func searchesTakeFiles(b *bench) {
	b.plant("d/a.txt", "needle\n")
	b.plant("e.txt", "needle\n")
	b.must(os.Symlink("d/a.txt", filepath.Join(b.host, "link")))
	b.prints("files.grep", object{"pattern": "needle", "path": "d/a.txt", "output_mode": "content"}, "d/a.txt\n1:needle\n")
	b.prints("files.grep", object{"pattern": "needle", "path": "link"}, "link\n")
}

func shellRuns(b *bench) {
	r := b.do("shell", object{"command": "echo out; echo err >&2; exit 3"})
	if r.Text != "out\nstderr:\nerr\n(exit code 3)\n" || !r.Failed || r.Meta["exit_code"] != 3 || r.Meta["timed_out"] != false {
		b.Errorf("%q %v", r.Text, r.Meta)
	}
	b.prints("shell", object{"command": "true"}, "(no output)\n")
	b.prints("shell", object{"command": `printf 'a\033[2J\377\r\nb'`}, "a\\x1b[2J\\xff\nb\n")
	b.refuses("shell", object{"command": " "}, fault.InvalidInputs, "command: is empty")
	b.do("shell", object{"command": "echo made > made.txt"})
	if got := b.found("made.txt"); got != "made\n" {
		b.Errorf("%q", got)
	}
	b.plant("gone/x", "")
	b.do("files.cd", object{"path": "gone"})
	b.must(os.RemoveAll(filepath.Join(b.host, "gone")))
	b.refuses("shell", object{"command": "true"}, fault.UnknownFile, b.dir+"/gone")
}

func shellTimesOut(b *bench) {
	r := b.do("shell", object{"command": "trap '' TERM; echo begun; sleep 100000", "timeout_ms": 300})
	if r.Text != "begun\n(timed out and killed; exit code -1)\n" || !r.Failed || r.Meta["exit_code"] != -1 || r.Meta["timed_out"] != true {
		b.Errorf("%q %v", r.Text, r.Meta)
	}
	if !strings.Contains(b.Name(), "none") && !strings.Contains(b.Name(), "docker") { // of the others it is not known how it ended
		return
	}
	for limit := 2000; ; limit *= 2 {
		r := b.do("shell", object{"command": "trap 'exit 3' TERM; while :; do sleep 0.01; done", "timeout_ms": limit})
		if strings.HasSuffix(r.Text, "(timed out: ended after SIGTERM with exit code 3)\n") && r.Failed && r.Meta["exit_code"] == -1 {
			return
		}
		if limit > 20_000 { // else the machine was too slow
			b.Fatalf("%q %v", r.Text, r.Meta)
		}
	}
}

func shellBounded(b *bench) {
	r := b.do("shell", object{"command": "echo first; seq 1 100000; echo last; seq 1 100000 >&2"})
	if len(r.Text) > 34<<10 || !strings.HasPrefix(r.Text, "first\n1\n2\n") || !strings.Contains(r.Text, "bytes left out") ||
		!strings.Contains(r.Text, "100000\nlast\nstderr:\n1\n2\n") {
		b.Errorf("%d bytes: %.60q … %q", len(r.Text), r.Text, r.Text[max(0, len(r.Text)-60):])
	}
}

func shellReports(b *bench) {
	reports := make(chan string, 100)
	ctx := tools.WithCaller(b.Context(), tools.Caller{Progress: func(output string) { reports <- output }})
	ended := make(chan error, 1)
	go func() {
		_, err := b.session.Shell(ctx, tools.ShellParams{Command: "printf 'begun\\033[2J\\n'; until [ -e go ]; do sleep 0.05; done"})
		ended <- err
	}()
	if got := <-reports; got != "begun\\x1b[2J\n" {
		b.Errorf("%q", got)
	}
	b.plant("go", "")
	b.must(<-ended)
}

// skillReads: SKILL.md comes first, then the list of files; a skill of the installation is found
// before the user's (004 l241, l242, l243, l248).
func skillReads(b *bench) {
	name := filepath.Base(b.dir) // the skills of all cases are in one directory
	b.plantSkill(name, "SKILL.md", "of the user\n")
	b.plantSkill(name, "run.py", "print(1)\n")
	b.plantSkill("both", "SKILL.md", "of the user\n")
	readme := name + "-notes"
	b.plantSkill(readme, "README.md", "# Notes\n")
	b.prints("skills.read", object{"name": name}, "of the user\n\nFiles of the skill in /workspace/skills/"+name+":\nSKILL.md\nrun.py\n")
	b.prints("skills.read", object{"name": name, "file": "run.py"}, "print(1)\n")
	b.prints("skills.read", object{"name": "both"}, "of the installation\n\nFiles of the skill:\nSKILL.md\nrun.py\n")
	b.prints("skills.read", object{"name": "server", "file": "a/b.txt"}, "b\n")
	b.prints("skills.read", object{"name": readme}, "# Notes\n\nFiles of the skill in /workspace/skills/"+readme+":\nREADME.md\n")
	b.refuses("skills.read", object{"name": "no"}, fault.UnknownSkill, "both, server", name)
	b.refuses("skills.read", object{"name": name, "file": "no.py"}, fault.UnknownFile, "has no such file", "run.py")
	for _, bad := range []object{{"name": ".."}, {"name": "a/b"}, {"name": name, "file": "../../x"}, {"name": name, "file": "/etc/passwd"}} {
		b.refuses("skills.read", bad, fault.InvalidInputs)
	}
}

// skillLists: all files below (004 l244).
func skillLists(b *bench) {
	name := filepath.Base(b.dir)
	b.plantSkill(name, "SKILL.md", "text\n")
	b.plantSkill(name, "a/b/c/d.txt", "")
	b.plantSkill(name, "a/new\nline", "")
	b.prints("skills.read", object{"name": name}, "text\n\nFiles of the skill in /workspace/skills/"+name+":\nSKILL.md\na/b/c/d.txt\n\"a/new\\nline\"\n")
}

// plantSkill writes a file of a skill of the user.
func (b *bench) plantSkill(skill, name, content string) {
	b.Helper()
	top := *b
	top.host = b.p.dir
	top.plant("skills/"+skill+"/"+name, content)
}
