package tools_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"secbox/fault"
	"secbox/sandbox"
)

// readNumbersLines (004 l226).
func readNumbersLines(b *bench) {
	b.plant("a.txt", "one\ntwo\r\n\tthree\n\nlast")
	const ends = "(1 of 5 lines end with \\r\\n, shown as \\x0d)\n"
	b.prints("files.read", object{"path": "a.txt"}, "     1\tone\n     2\ttwo\\x0d\n     3\t\tthree\n     4\t\n     5\tlast\n"+ends)
	b.prints("files.read", object{"path": b.dir + "/a.txt", "offset": 2, "limit": 1}, "     2\ttwo\\x0d\n(lines 2 to 2 of 5; go on with offset 3)\n"+ends)
	for _, as := range []any{"2", "2.0", json.Number("2.0"), json.Number("2e0")} { // numbers as programs and models write them
		b.prints("files.read", object{"path": "a.txt", "offset": as, "limit": json.Number("1.0"), "description": "reads a line"},
			"     2\ttwo\\x0d\n(lines 2 to 2 of 5; go on with offset 3)\n"+ends)
	}
	b.prints("files.read", object{"path": "a.txt", "offset": 9, "limit": nil}, "(the file has 5 lines: none at offset 9)\n"+ends)
	b.plant("empty", "")
	b.prints("files.read", object{"path": "empty"}, "(the file is empty)\n")
	b.plant("dos.txt", "one\r\ntwo\r\n")
	b.prints("files.read", object{"path": "dos.txt"}, "     1\tone\n     2\ttwo\n(lines end with \\r\\n)\n")
	b.plant("dos.txt", "one\r\ntwo\r\nlast")
	b.prints("files.read", object{"path": "dos.txt"}, "     1\tone\n     2\ttwo\n     3\tlast\n(lines end with \\r\\n)\n")
	b.plant("dos.txt", "one\r\ntwo\r\nthree\n")
	b.prints("files.read", object{"path": "dos.txt"}, "     1\tone\n     2\ttwo\n     3\tthree\n(2 of 3 lines end with \\r\\n, which is not shown)\n")
	b.plant("dos.txt", "one\r\ntwo\r")
	b.prints("files.read", object{"path": "dos.txt"}, "     1\tone\n     2\ttwo\\x0d\n(lines end with \\r\\n)\n")
	b.plant("mixed.txt", "one\r\ntwo\nthree\r\nfour\n")
	b.prints("files.read", object{"path": "mixed.txt"},
		"     1\tone\n     2\ttwo\n     3\tthree\n     4\tfour\n(2 of 4 lines end with \\r\\n, which is not shown)\n")
	b.plant("odd", "\x1b[31mred\x1b[0m \xff\xfe ä\u0085\n")
	b.prints("files.read", object{"path": "odd"}, "     1\t\\x1b[31mred\\x1b[0m \\xff\\xfe ä\\u0085\n")
	b.refuses("files.read", object{"path": "no.txt"}, fault.UnknownFile, "there is no "+b.dir+"/no.txt", "files_glob")
	b.refuses("files.read", object{"path": "."}, fault.InvalidInputs, "is a directory")
	b.refuses("files.read", object{"path": "a.txt", "offset": -1}, fault.InvalidInputs, "offset: must be at least 1")
}

// readTellsDigest: it is the digest of the bytes that the sandbox has sent (004 l221, l390–398).
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
		"a.txt": {png, "image/png"}, "b": {"\xff\xd8\xff\xe0 jpeg", "image/jpeg"}, "c": {"GIF89a", "image/gif"},
		"d": {"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"},
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
	b.prints("files.read", object{"path": "program"}, b.dir+
		"/program is not text: application/octet-stream, 6 bytes. Look into it with a command, such as xxd or file.")
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
	if r := b.do("files.read", object{"path": "many"}); strings.Count(r.Text, "\n") != 2001 ||
		!strings.HasSuffix(r.Text, "  2000\tline\n(lines 1 to 2000 of 3000; go on with offset 2001)\n") {
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

// readGrowing: a file that is appended to without end is read, searched and edited to an end.
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
	if r := b.do("files.grep", object{"pattern": "^line$", "path": "log", "output_mode": "count"}); !strings.Contains(r.Text, "1000") {
		b.Errorf("%.100q", r.Text)
	}
	_, err = b.call("files.edit", object{"path": "log", "edits": []object{{"old": "line\nmore\n", "new": "last line\nmore\n"}}})
	if err != nil && !fault.Is(err, fault.FileChanged) && !fault.Is(err, fault.InvalidInputs) { // InvalidInputs: it has grown by nothing
		b.Error(err)
	}
	close(ended)
	<-stopped
}

// opensNothingSpecial: opening a FIFO blocks, reading some devices never ends, and writing would
// replace them.
func opensNothingSpecial(b *bench) {
	b.must(os.Mkdir(filepath.Join(b.host, "special"), 0o755))
	b.give(filepath.Join(b.host, "special"))
	special := func(name string) string { return filepath.Join(b.host, "special", name) }
	b.must(syscall.Mkfifo(special("pipe"), 0o666))
	socket, err := net.Listen("unix", special("socket"))
	b.must(err)
	defer socket.Close()
	b.must(os.Symlink("pipe", special("link")))
	names := []string{"pipe", "socket", "link"}
	switch err := syscall.Mknod(special("zero"), syscall.S_IFCHR|0o666, 1<<8|5); { // as /dev/zero
	case err == nil:
		names = append(names, "zero")
	case !errors.Is(err, fs.ErrPermission): // only root makes devices
		b.Fatal(err)
	}
	b.plant("special/text", "needle\n")
	for _, name := range names {
		file := "special/" + name
		for tool, arguments := range map[string]object{
			"files.read":     {"path": file},
			"files.download": {"path": file},
			"files.upload":   {"path": file, "data": "eA=="},
			"files.write":    {"path": file, "content": "x"},
			"files.edit":     {"path": file, "edits": []object{{"old": "a", "new": "b"}}},
			"files.cd":       {"path": file},
		} {
			b.refuses(tool, arguments, fault.InvalidInputs)
		}
		if _, err := b.call("files.edit", object{"path": file, "create": "x"}); err == nil {
			b.Errorf("%s was made anew", file)
		}
		if r, err := b.call("files.grep", object{"pattern": ".", "path": file}); err == nil && strings.Contains(r.Text, name) {
			b.Errorf("%s was searched: %q", file, r.Text)
		}
		fi, err := os.Lstat(special(name))
		b.must(err)
		if fi.Mode().IsRegular() {
			b.Errorf("%s was replaced", file)
		}
	}
	b.prints("files.grep", object{"pattern": "needle", "path": "special"}, "special/text\n")
	if r := b.do("files.glob", object{"pattern": "*", "path": "special"}); !strings.HasPrefix(r.Text, "special/text") || strings.Contains(r.Text, "pipe") ||
		strings.Contains(r.Text, "zero") {
		b.Errorf("%q", r.Text)
	}
	b.do("files.cd", object{"path": "special"}) // lists names and kinds
}

// writeMakesParents (004 l584–596).
func writeMakesParents(b *bench) {
	r := b.do("files.write", object{"path": "deep/er/a.txt", "content": "hi\n"})
	if b.found("deep/er/a.txt") != "hi\n" || !strings.Contains(r.Text, "made "+b.dir+"/deep/er/a.txt: 3 bytes") || r.Meta["sha256"] == nil ||
		r.Meta["sha256_before"] != nil {
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
	b.refuses("files.write", object{"path": "a.txt", "content": "new\n"}, fault.FileChanged, "read it first (files_read)")
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

// editReplaces (004 l227, l230).
func editReplaces(b *bench) {
	b.plant("a.go", "package a\n\nfunc A() {}\nfunc B() {}\n")
	r := b.do("files.edit", object{"path": "a.go", "edits": []object{{"old": "func A() {}\n", "new": "func A() {\n\treturn\n}\n"}}})
	if got := b.found("a.go"); got != "package a\n\nfunc A() {\n\treturn\n}\nfunc B() {}\n" || !strings.Contains(r.Text, "; replacements: 1\n") ||
		r.Meta["sha256_before"] == r.Meta["sha256"] {
		b.Errorf("%q %q %v", got, r.Text, r.Meta)
	}
	b.refuses("files.edit", object{"path": "a.go", "edits": []object{{"old": "func", "new": "fn"}}}, fault.InvalidInputs, "edits[0].old", "occurs 2 times",
		"at lines 3, 6", "set all")
	b.do("files.edit", object{"path": "a.go", "edits": []object{{"old": "func", "new": "fn", "all": true}}})
	if got := b.found("a.go"); strings.Count(got, "fn ") != 2 {
		b.Errorf("%q", got)
	}
	b.plant("dos.txt", "one\r\ntwo\r\nthree\r\n")
	b.do("files.edit", object{"path": "dos.txt", "edits": []object{{"old": "one\ntwo\n", "new": "1\n2\n"}}})
	if got := b.found("dos.txt"); got != "1\r\n2\r\nthree\r\n" {
		b.Errorf("%q", got)
	}
	editKeepsLineEnds(b)
	b.plant("latin1", "\xe4 old\n")
	b.do("files.edit", object{"path": "latin1", "edits": []object{{"old": "old", "new": "new"}}})
	if got := b.found("latin1"); got != "\xe4 new\n" {
		b.Errorf("%q", got)
	}
	b.do("files.write", object{"path": "a.go", "content": "x"}) // an edit counts as reading
}

// editKeepsLineEnds: new lines end as most lines of the file do, unless the old text has a \r of
// its own.
func editKeepsLineEnds(b *bench) {
	const crlf = "one\r\ntwo\r\nthree\r\n"
	for _, c := range []struct{ file, old, with, want string }{
		{crlf, "two", "two\nand a half", "one\r\ntwo\r\nand a half\r\nthree\r\n"},
		{crlf, "two", "two\r\nand a half", "one\r\ntwo\r\nand a half\r\nthree\r\n"},
		{crlf, "\ntwo", "\n\ntwo", "one\r\n\r\ntwo\r\nthree\r\n"},
		{crlf, "two\r\n", "two\n", "one\r\ntwo\nthree\r\n"},
		{"one\r\ntwo\r\nthree\n", "three", "three\nfour", "one\r\ntwo\r\nthree\r\nfour\n"},
		{"one\r\ntwo\nthree\n", "three", "three\nfour", "one\r\ntwo\nthree\nfour\n"},
		{"one\r\ntwo\nthree\n", "one\ntwo", "1\n2", "1\r\n2\nthree\n"},
		{"one\r\ntwo\r\nthree\nfour\n", "three\nfour", "3\n4", "one\r\ntwo\r\n3\n4\n"},
		{"one\ntwo\n", "two", "two\r\nthree", "one\ntwo\r\nthree\n"},
		{"\ufeffone\r\ntwo\r\n", "one", "zero\none", "\ufeffzero\r\none\r\ntwo\r\n"},
	} {
		b.plant("ends.txt", c.file)
		b.do("files.edit", object{"path": "ends.txt", "edits": []object{{"old": c.old, "new": c.with}}})
		if got := b.found("ends.txt"); got != c.want {
			b.Errorf("%q with %q for %q: %q, want %q", c.file, c.with, c.old, got, c.want)
		}
	}
	b.plant("ends.txt", crlf)
	b.do("files.edit", object{"path": "ends.txt", "edits": []object{{"old": "t", "new": "T\n", "all": true}}})
	if got := b.found("ends.txt"); got != "one\r\nT\r\nwo\r\nT\r\nhree\r\n" {
		b.Errorf("%q", got)
	}
}

func editAllOrNothing(b *bench) {
	b.plant("a.txt", "one two three\n")
	b.refuses("files.edit", object{"path": "a.txt", "edits": []object{{"old": "one", "new": "1"}, {"old": "four", "new": "4"}}}, fault.InvalidInputs,
		"edits[1].old", "nothing was changed")
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

// editCreates: with its directories (004 l228, l229).
func editCreates(b *bench) {
	b.do("files.edit", object{"path": "sub/new.txt", "create": "hello\n"})
	if got := b.found("sub/new.txt"); got != "hello\n" {
		b.Errorf("%q", got)
	}
	b.refuses("files.edit", object{"path": "sub/new.txt", "create": "other\n"}, fault.InputConflict, "exists")
	b.refuses("files.edit", object{"path": "x", "create": "", "edits": []object{{"old": "a", "new": "b"}}}, fault.InvalidInputs, "leave edits out")
}
