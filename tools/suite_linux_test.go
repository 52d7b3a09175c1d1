package tools_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/tools"
)

// TestTools runs all cases in every kind of sandbox. The lines in the names of cases are those of the requirements that they prove.
func TestTools(t *testing.T) {
	t.Parallel()
	for name, open := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			t.Run("Case", func(t *testing.T) {
				for _, c := range cases {
					t.Run(c.name, func(t *testing.T) {
						t.Parallel()
						c.run(newBench(t, p))
					})
				}
			})
		})
	}
}

// bench is one case: a session in its own directory of the shared workspace.
type bench struct {
	*testing.T
	p       place
	session *tools.Session
	dir     string // in the sandbox
	host    string // on this machine
}

var benches atomic.Int64

func newBench(t *testing.T, p place) *bench {
	t.Helper()
	name := fmt.Sprintf("case-%d", benches.Add(1))
	b := &bench{T: t, p: p, dir: sandbox.Root + "/" + name, host: filepath.Join(p.dir, name), session: tools.NewSession(p.sandbox, p.user, installed)}
	b.must(os.Mkdir(b.host, 0o755))
	b.give(b.host)
	b.do("files.cd", object{"path": name})
	return b
}

type object map[string]any

// installed are the skills of the installation.
var installed = folders{
	"both":   {"SKILL.md": {Data: []byte("of the installation\n")}, "run.py": {}},
	"server": {"SKILL.md": {Data: []byte("of the server\n")}, "a/b.txt": {Data: []byte("b\n")}},
}

type folders map[string]fstest.MapFS

func (f folders) Names() []string { return slices.Sorted(maps.Keys(f)) }

func (f folders) Open(name string) fs.FS {
	if folder, ok := f[name]; ok {
		return folder
	}
	return nil
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// give makes a planted file the sandbox's.
func (b *bench) give(path string) {
	b.Helper()
	if b.p.owner > 0 && os.Geteuid() == 0 {
		b.must(os.Lchown(path, b.p.owner, b.p.owner))
	}
}

// plant writes a file from outside of the sandbox, and makes its directories.
func (b *bench) plant(name, content string) {
	b.Helper()
	at := b.host
	steps := strings.Split(name, "/")
	for _, step := range steps[:len(steps)-1] {
		at = filepath.Join(at, step)
		if err := os.Mkdir(at, 0o755); err == nil {
			b.give(at)
		}
	}
	path := filepath.Join(b.host, name)
	b.must(os.WriteFile(path, []byte(content), 0o644))
	b.give(path)
}

func (b *bench) found(name string) string {
	b.Helper()
	content, err := os.ReadFile(filepath.Join(b.host, name))
	b.must(err)
	return string(content)
}

func (b *bench) call(tool string, arguments object) (*tools.Result, error) {
	b.Helper()
	raw, err := json.Marshal(arguments)
	b.must(err)
	for _, t := range tools.All {
		if t.Name == tool {
			return t.Call(b.Context(), b.session, raw)
		}
	}
	b.Fatalf("there is no tool %s", tool)
	return nil, nil
}

// do calls a tool, which must succeed.
func (b *bench) do(tool string, arguments object) *tools.Result {
	b.Helper()
	r, err := b.call(tool, arguments)
	if err != nil {
		b.Fatalf("%s %v: %v", tool, arguments, err)
	}
	return r
}

func (b *bench) prints(tool string, arguments object, want string) {
	b.Helper()
	if r := b.do(tool, arguments); r.Text != want {
		b.Errorf("%s %v: %q, want %q", tool, arguments, r.Text, want)
	}
}

// refuses calls a tool, which must fail with a code and all of some words.
func (b *bench) refuses(tool string, arguments object, code fault.Code, words ...string) {
	b.Helper()
	r, err := b.call(tool, arguments)
	if err == nil {
		b.Errorf("%s %v: %q", tool, arguments, r.Text)
		return
	}
	e := fault.From(err)
	text := e.Message
	for _, f := range e.Fields {
		text += "\n" + f.Field + ": " + f.Reason
	}
	if e.Code != code {
		b.Errorf("%s %v: %v, want %s", tool, arguments, err, code)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			b.Errorf("%s %v: %q does not say %q", tool, arguments, text, word)
		}
	}
}

type testCase struct {
	name string
	run  func(*bench)
}

var cases = []testCase{
	{"l224 Read numbers lines", readNumbersLines},
	{"l350 Read tells the digest through the sandbox", readTellsDigest},
	{"Read shows images and names other files", readKinds},
	{"Read opens no FIFO, device or link out", readHostile},
	{"Read is bounded", readBounded},
	{"Read while a file grows", readGrowing},
	{"l584-602 Write makes parents", writeMakesParents},
	{"Write refuses what has changed", writeRefusesChanged},
	{"Write stays inside", writeStaysInside},
	{"l225-228 Edit replaces exactly", editReplaces},
	{"Edit changes all or nothing", editAllOrNothing},
	{"Edit shows the nearest lines", editNearest},
	{"Edit makes a new file", editCreates},
	{"l231 l375-383 l558-572 Cd validates and resolves", cdResolves},
	{"Cd shows a bounded tree", cdBounded},
	{"l36 l229 l573-582 Glob through Exec", globFinds},
	{"l36 l230 l573-582 Grep through Exec", grepFinds},
	{"Grep shows hostile names and lines", grepHostile},
	{"Searches stay inside", searchesStayInside},
	{"Searches take a single file", searchesTakeFiles},
	{"l54-66 Shell runs a line", shellRuns},
	{"l70 Shell times out", shellTimesOut},
	{"Shell shows head and tail", shellBounded},
	{"Shell reports progress", shellReports},
	{"l241-248 l533 Skill reads global ones first", skillReads},
	{"l297-323 Skill lists files recursively", skillLists},
}

func readNumbersLines(b *bench) {
	b.plant("a.txt", "one\ntwo\r\n\tthree\n\nlast")
	b.prints("files.read", object{"path": "a.txt"}, "     1\tone\n     2\ttwo\\x0d\n     3\t\tthree\n     4\t\n     5\tlast\n")
	b.prints("files.read", object{"path": b.dir + "/a.txt", "offset": 2, "limit": 1}, "     2\ttwo\\x0d\n(lines 2 to 2 of 5; go on with offset 3)\n")
	b.prints("files.read", object{"path": "a.txt", "offset": 9}, "(the file has 5 lines: none at offset 9)\n")
	b.plant("empty", "")
	b.prints("files.read", object{"path": "empty"}, "(the file is empty)\n")
	b.plant("dos.txt", "one\r\ntwo\r\n")
	b.prints("files.read", object{"path": "dos.txt"}, "     1\tone\n     2\ttwo\n(lines end with \\r\\n)\n")
	b.plant("mixed.txt", "one\r\ntwo\nthree\r\nfour\n")
	b.prints("files.read", object{"path": "mixed.txt"}, "     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour\n(2 of 4 lines end with \\r\\n, which is not shown)\n")
	b.plant("odd", "\x1b[31mred\x1b[0m \xff\xfe ä\u0085\n")
	b.prints("files.read", object{"path": "odd"}, "     1\t\\x1b[31mred\\x1b[0m \\xff\\xfe ä\\u0085\n")
	b.refuses("files.read", object{"path": "no.txt"}, fault.UnknownFile, "there is no "+b.dir+"/no.txt", "files.glob")
	b.refuses("files.read", object{"path": "."}, fault.InvalidInputs, "is a directory")
	b.refuses("files.read", object{"path": "a.txt", "offset": -1}, fault.InvalidInputs, "offset: must be at least 1")
}

func readTellsDigest(b *bench) {
	b.plant("a.txt", "content\n")
	r := b.do("files.read", object{"path": "a.txt", "limit": 1})
	if r.Meta["sha256"] != "434728a410a78f56fc1b5899c3593436e61ab0c731e9072d95e96db290205e53" || r.Meta["size"] != int64(8) {
		b.Errorf("%v", r.Meta)
	}
}

func readKinds(b *bench) {
	png := "\x89PNG\r\n\x1a\n" + strings.Repeat("\x00", 100)
	for name, c := range map[string]struct{ content, mime string }{
		"a.txt": {png, "image/png"}, "b": {"\xff\xd8\xff\xe0 jpeg", "image/jpeg"}, "c": {"GIF89a", "image/gif"}, "d": {"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"},
	} {
		b.plant(name, c.content)
		if r := b.do("files.read", object{"path": name}); r.MIME != c.mime || string(r.Image) != c.content || !strings.Contains(r.Text, c.mime) {
			b.Errorf("%s: %q %s", name, r.Text, r.MIME)
		}
	}
	b.plant("large.png", png+strings.Repeat("x", 5<<20))
	if r := b.do("files.read", object{"path": "large.png"}); r.Image != nil || !strings.Contains(r.Text, "more than the 5242880 that can be shown") {
		b.Errorf("%q", r.Text)
	}
	b.plant("program", "\x7fELF\x00\x01")
	b.prints("files.read", object{"path": "program"}, b.dir+"/program is not text: application/octet-stream, 6 bytes. Look into it with a command, such as xxd or strings.")
}

// readHostile: none of them blocks.
func readHostile(b *bench) {
	b.must(syscall.Mkfifo(filepath.Join(b.host, "pipe"), 0o666))
	b.must(os.Symlink("/etc/passwd", filepath.Join(b.host, "out")))
	b.must(os.Symlink("../../../etc/passwd", filepath.Join(b.host, "up")))
	b.must(os.Symlink("/dev/zero", filepath.Join(b.host, "zero")))
	b.plant("a.txt", "x\n")
	b.must(os.Symlink("a.txt", filepath.Join(b.host, "in")))
	b.refuses("files.read", object{"path": "pipe"}, fault.InvalidInputs, "a named pipe")
	for _, name := range []string{"out", "up", "zero", "/etc/passwd", "../../etc/passwd", sandbox.Root + "/../etc/passwd"} {
		b.refuses("files.read", object{"path": name}, fault.PathRefused, "leads out of the workspace")
	}
	b.prints("files.read", object{"path": "in"}, "     1\tx\n")
	b.refuses("files.read", object{"path": "a\x00b"}, fault.InvalidInputs)
	b.plant("new\nline \x1b[2J", "x\n")
	b.prints("files.read", object{"path": "new\nline \x1b[2J"}, "     1\tx\n")
	b.refuses("files.read", object{"path": "no\nfile"}, fault.UnknownFile, `no\nfile"`)
}

func readBounded(b *bench) {
	b.plant("many", strings.Repeat("line\n", 3000))
	if r := b.do("files.read", object{"path": "many"}); strings.Count(r.Text, "\n") != 2001 || !strings.HasSuffix(r.Text, "  2000\tline\n(lines 1 to 2000 of 3000; go on with offset 2001)\n") {
		b.Errorf("%d bytes: %q", len(r.Text), r.Text[max(0, len(r.Text)-100):])
	}
	b.plant("long", strings.Repeat("ä", 5000)+"\nshort\n")
	b.prints("files.read", object{"path": "long"}, "     1\t"+strings.Repeat("ä", 1000)+" … (8000 more bytes in this line)\n     2\tshort\n")
	b.plant("wide", strings.Repeat(strings.Repeat("x", 1500)+"\n", 1000))
	if r := b.do("files.read", object{"path": "wide"}); len(r.Text) > 257<<10 || !strings.Contains(r.Text, "of 1000; go on with offset 174)") {
		b.Errorf("%d bytes: %q", len(r.Text), r.Text[max(0, len(r.Text)-100):])
	}
	path := filepath.Join(b.host, "huge")
	b.must(os.WriteFile(path, nil, 0o644))
	b.must(os.Truncate(path, sandbox.MaxFileBytes+1))
	b.give(path)
	b.refuses("files.read", object{"path": "huge"}, fault.FileTooLarge)
}

// readGrowing: a file that is appended to without end is read to an end.
func readGrowing(b *bench) {
	b.plant("log", strings.Repeat("line\n", 1000))
	f, err := os.OpenFile(filepath.Join(b.host, "log"), os.O_APPEND|os.O_WRONLY, 0)
	b.must(err)
	defer f.Close()
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; n < 100_000; n++ {
			select {
			case <-ended:
				return
			default:
				_, _ = f.WriteString("more\n")
			}
		}
	}()
	for range 5 {
		if r, err := b.call("files.read", object{"path": "log"}); err == nil && !strings.HasPrefix(r.Text, "     1\tline\n") {
			b.Errorf("%.100q", r.Text)
		}
	}
	close(ended)
	<-stopped
}

func writeMakesParents(b *bench) {
	r := b.do("files.write", object{"path": "deep/er/a.txt", "content": "hi\n"})
	if b.found("deep/er/a.txt") != "hi\n" || !strings.Contains(r.Text, "made "+b.dir+"/deep/er/a.txt: 3 bytes") || r.Meta["sha256"] == nil || r.Meta["sha256_before"] != nil {
		b.Errorf("%q %v", r.Text, r.Meta)
	}
	for name, want := range map[string]os.FileMode{"deep": 0o755, "deep/er/a.txt": 0o644} {
		if fi, err := os.Stat(filepath.Join(b.host, name)); err != nil || fi.Mode().Perm() != want {
			b.Errorf("%s: %v %v", name, fi.Mode(), err)
		}
	}
	first := r.Meta["sha256"]
	if r = b.do("files.write", object{"path": "deep/er/a.txt", "content": ""}); b.found("deep/er/a.txt") != "" || r.Meta["sha256_before"] != first {
		b.Errorf("%q %v", r.Text, r.Meta)
	}
	b.plant("file", "")
	b.refuses("files.write", object{"path": "file/below", "content": ""}, fault.InputConflict, "use another path")
	b.refuses("files.write", object{"path": "deep", "content": ""}, fault.InvalidInputs, "is a directory")
}

func writeRefusesChanged(b *bench) {
	b.plant("a.txt", "old\n")
	b.refuses("files.write", object{"path": "a.txt", "content": "new\n"}, fault.FileChanged, "read it first (files.read)")
	b.do("files.read", object{"path": "a.txt", "limit": 1})
	b.plant("a.txt", "someone else's\n")
	b.refuses("files.write", object{"path": "a.txt", "content": "new\n"}, fault.FileChanged, "has changed since it was read", "read it again")
	if got := b.found("a.txt"); got != "someone else's\n" {
		b.Errorf("%q", got)
	}
	b.do("files.read", object{"path": b.dir + "/./a.txt"})
	b.do("files.write", object{"path": "a.txt", "content": "new\n"})
	b.must(os.Remove(filepath.Join(b.host, "a.txt")))
	b.do("files.write", object{"path": "a.txt", "content": "again\n"})
	if got := b.found("a.txt"); got != "again\n" {
		b.Errorf("%q", got)
	}
}

func writeStaysInside(b *bench) {
	outside := b.TempDir()
	b.must(os.Symlink(outside, filepath.Join(b.host, "out")))
	b.must(syscall.Mkfifo(filepath.Join(b.host, "pipe"), 0o666))
	b.refuses("files.write", object{"path": "pipe", "content": "x"}, fault.InvalidInputs, "a named pipe")
	b.refuses("files.edit", object{"path": "pipe", "edits": []object{{"old": "x", "new": "y"}}}, fault.InvalidInputs, "a named pipe")
	for _, name := range []string{"out/a.txt", "../../../a.txt", "/tmp/a.txt", "/opt/skill-creator/a.txt"} {
		b.refuses("files.write", object{"path": name, "content": "x"}, fault.PathRefused)
		b.refuses("files.edit", object{"path": name, "create": "x"}, fault.PathRefused)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		b.Errorf("%v %v", left, err)
	}
}

func editReplaces(b *bench) {
	b.plant("a.go", "package a\n\nfunc A() {}\nfunc B() {}\n")
	r := b.do("files.edit", object{"path": "a.go", "edits": []object{{"old": "func A() {}\n", "new": "func A() {\n\treturn\n}\n"}}})
	if got := b.found("a.go"); got != "package a\n\nfunc A() {\n\treturn\n}\nfunc B() {}\n" || !strings.Contains(r.Text, "; replacements: 1\n") || r.Meta["sha256_before"] == r.Meta["sha256"] {
		b.Errorf("%q %q %v", got, r.Text, r.Meta)
	}
	b.refuses("files.edit", object{"path": "a.go", "edits": []object{{"old": "func", "new": "fn"}}}, fault.InvalidInputs, "edits[0].old", "occurs 2 times", "at lines 3, 6", "set all")
	b.do("files.edit", object{"path": "a.go", "edits": []object{{"old": "func", "new": "fn", "all": true}}})
	if got := b.found("a.go"); strings.Count(got, "fn ") != 2 {
		b.Errorf("%q", got)
	}
	b.plant("dos.txt", "one\r\ntwo\r\nthree\r\n")
	b.do("files.edit", object{"path": "dos.txt", "edits": []object{{"old": "one\ntwo\n", "new": "1\n2\n"}}})
	if got := b.found("dos.txt"); got != "1\r\n2\r\nthree\r\n" {
		b.Errorf("%q", got)
	}
	b.plant("latin1", "\xe4 old\n")
	b.do("files.edit", object{"path": "latin1", "edits": []object{{"old": "old", "new": "new"}}})
	if got := b.found("latin1"); got != "\xe4 new\n" {
		b.Errorf("%q", got)
	}
	b.do("files.write", object{"path": "a.go", "content": "x"}) // an edit counts as reading
}

func editAllOrNothing(b *bench) {
	b.plant("a.txt", "one two three\n")
	b.refuses("files.edit", object{"path": "a.txt", "edits": []object{{"old": "one", "new": "1"}, {"old": "four", "new": "4"}}}, fault.InvalidInputs, "edits[1].old", "nothing was changed")
	b.refuses("files.edit", object{"path": "a.txt", "edits": []object{{"old": "one", "new": "one"}}}, fault.InvalidInputs, "is the same as old")
	b.refuses("files.edit", object{"path": "a.txt", "edits": []object{{"old": "", "new": "one"}}}, fault.InvalidInputs, "is empty")
	b.refuses("files.edit", object{"path": "a.txt"}, fault.InvalidInputs, "give at least one edit")
	b.refuses("files.edit", object{"path": "no.txt", "edits": []object{{"old": "a", "new": "b"}}}, fault.UnknownFile)
	if got := b.found("a.txt"); got != "one two three\n" {
		b.Errorf("%q", got)
	}
	b.do("files.edit", object{"path": "a.txt", "edits": []object{{"old": "one", "new": "two"}, {"old": "two two", "new": "2"}}})
	if got := b.found("a.txt"); got != "2 three\n" {
		b.Errorf("%q", got)
	}
}

func editNearest(b *bench) {
	b.plant("a.go", "package a\n\nfunc Alpha(x int) error {\n\treturn nil\n}\n\nfunc Beta(x int) error {\n")
	b.refuses("files.edit", object{"path": "a.go", "edits": []object{{"old": "    func Alpha(x, y int) error {\n", "new": ""}}}, fault.InvalidInputs,
		"is not in "+b.dir+"/a.go", "     3\tfunc Alpha(x int) error {", "     7\tfunc Beta(x int) error {")
	b.refuses("files.edit", object{"path": "a.go", "edits": []object{{"old": "@@@@", "new": ""}}}, fault.InvalidInputs, "No line is like it")
}

func editCreates(b *bench) {
	b.do("files.edit", object{"path": "sub/new.txt", "create": "hello\n"})
	if got := b.found("sub/new.txt"); got != "hello\n" {
		b.Errorf("%q", got)
	}
	b.refuses("files.edit", object{"path": "sub/new.txt", "create": "other\n"}, fault.InputConflict, "exists")
	b.refuses("files.edit", object{"path": "x", "create": "", "edits": []object{{"old": "a", "new": "b"}}}, fault.InvalidInputs, "leave edits out")
}

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
	if lines := strings.Count(r.Text, "\n"); lines > 210 || !strings.Contains(r.Text, "  .git/\n  d/\n    \"\\x1b[2J\\n\"  0 B\n    1/\n      2/\n    f000  0 B\n") ||
		!strings.Contains(r.Text, "    … 62 more\n") || !strings.Contains(r.Text, "\n  … ") {
		b.Errorf("%d lines: %s", lines, r.Text)
	}
}

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
	b.refuses("files.grep", object{"pattern": "("}, fault.InvalidInputs, "is no regular expression", "missing closing )")
	b.refuses("files.grep", object{"pattern": "x", "output_mode": "json"}, fault.InvalidInputs, "files_with_matches, content or count")
	b.refuses("files.grep", object{"pattern": "x", "-A": 1000}, fault.InvalidInputs, "-A")
}

// grepHostile: names and lines with line breaks and control bytes forge no results.
func grepHostile(b *bench) {
	b.plant("a\nb.go:1:forged\n", "needle \x1b[2J\x00\n")
	b.plant("c\nforged.go\n", "needle \x1b[2J \xff\r\n")
	b.prints("files.grep", object{"pattern": "needle", "output_mode": "content"}, `"c\nforged.go\n"`+"\n1:needle \\x1b[2J \\xff\n")
	b.prints("files.glob", object{"pattern": "c*"}, `"c\nforged.go\n"`+"\n")
	b.plant("nl-\xff", "")
	b.prints("files.glob", object{"pattern": "nl*"}, `"nl-\xff"`+"\n")
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
	r := b.do("shell", object{"command": "echo begun; sleep 100000", "timeout_ms": 300})
	if r.Text != "begun\n(timed out and killed; exit code -1)\n" || !r.Failed || r.Meta["exit_code"] != -1 || r.Meta["timed_out"] != true {
		b.Errorf("%q %v", r.Text, r.Meta)
	}
}

func shellBounded(b *bench) {
	r := b.do("shell", object{"command": "echo first; seq 1 100000; echo last; seq 1 100000 >&2"})
	if len(r.Text) > 34<<10 || !strings.HasPrefix(r.Text, "first\n1\n2\n") || !strings.Contains(r.Text, "bytes left out") || !strings.Contains(r.Text, "100000\nlast\nstderr:\n1\n2\n") {
		b.Errorf("%d bytes: %.60q … %q", len(r.Text), r.Text, r.Text[max(0, len(r.Text)-60):])
	}
}

func shellReports(b *bench) {
	reports := make(chan string, 100)
	ctx := tools.WithCaller(b.Context(), tools.Caller{Progress: func(output string) { reports <- output }})
	ended := make(chan error, 1)
	go func() {
		_, err := b.session.Shell(ctx, tools.ShellParams{Command: "echo begun; until [ -e go ]; do sleep 0.05; done"})
		ended <- err
	}()
	if got := <-reports; got != "begun\n" {
		b.Errorf("%q", got)
	}
	b.plant("go", "")
	b.must(<-ended)
}

// skillReads: SKILL.md comes first, then the list of files.
func skillReads(b *bench) {
	name := filepath.Base(b.dir) // the skills of all cases are in one directory
	b.plantSkill(name, "SKILL.md", "of the user\n")
	b.plantSkill(name, "run.py", "print(1)\n")
	b.plantSkill("both", "SKILL.md", "of the user\n")
	b.prints("skills.read", object{"name": name}, "of the user\n\nFiles of the skill in /workspace/skills/"+name+":\nSKILL.md\nrun.py\n")
	b.prints("skills.read", object{"name": name, "file": "run.py"}, "print(1)\n")
	b.prints("skills.read", object{"name": "both"}, "of the installation\n\nFiles of the skill:\nSKILL.md\nrun.py\n")
	b.prints("skills.read", object{"name": "server", "file": "a/b.txt"}, "b\n")
	b.refuses("skills.read", object{"name": "no"}, fault.UnknownSkill, "both, server", name)
	b.refuses("skills.read", object{"name": name, "file": "no.py"}, fault.UnknownFile, "has no such file", "run.py")
	for _, bad := range []object{{"name": ".."}, {"name": "a/b"}, {"name": name, "file": "../../x"}, {"name": name, "file": "/etc/passwd"}} {
		b.refuses("skills.read", bad, fault.InvalidInputs)
	}
}

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
