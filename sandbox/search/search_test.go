package search

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// put writes files, each a second newer than the one before it.
func put(t testing.TB, dir string, files ...string) {
	t.Helper()
	for i := 0; i+1 < len(files); i += 2 {
		name := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(files[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(1_700_000_000+int64(i), 0)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

func run(t testing.TB, dir string, r Request) ([]File, Summary) {
	t.Helper()
	if r.Path == "" {
		r.Path = "."
	}
	if r.Limit == 0 {
		r.Limit = 100
	}
	r.TimeoutMS = 600_000
	found, summary, err := Run(dir, r)
	if err != nil {
		t.Fatal(err)
	}
	return found, summary
}

func names(found []File) []string {
	list := make([]string, len(found))
	for i, f := range found {
		list[i] = string(f.Path)
	}
	return list
}

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern   string
		yes, noes []string
	}{
		{"*.go", []string{"a.go", "x/y/b.go", ".go"}, []string{"a.gox", "a.go/x"}},
		{"./a.go", []string{"a.go"}, []string{"b.go"}},
		{"/a.go", []string{"a.go"}, []string{"x/a.go"}},
		{"src/*.go", []string{"src/a.go"}, []string{"src/x/a.go", "a.go", "x/src/a.go"}},
		{"src/**/*.go", []string{"src/a.go", "src/x/y/a.go"}, []string{"a.go", "src2/a.go"}},
		{"**/test/*", []string{"test/a", "x/test/a"}, []string{"xtest/a", "test/a/b"}},
		{"src/**", []string{"src/a", "src/a/b"}, []string{"src2/a"}},
		{"?.txt", []string{"a.txt", "ä.txt"}, []string{"ab.txt", ".txt"}},
		{"[a-c]x", []string{"ax", "cx"}, []string{"dx", "-x"}},
		{"[!a-c]x", []string{"dx"}, []string{"ax", "/x"}},
		{"[]]x", []string{"]x"}, []string{"x"}},
		{"*.{ts,tsx}", []string{"a.ts", "d/a.tsx"}, []string{"a.tsxx", "a.js"}},
		{`a\*b`, []string{"a*b"}, []string{"axb"}},
		{"a(b)+.", []string{"a(b)+."}, []string{"abb"}},
		{"a\nb*", []string{"a\nb\nc"}, []string{"a"}},
		{"*", []string{"a", "x/\xff", "\n"}, nil},
	} {
		re, err := compileGlob(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		for _, name := range c.yes {
			if !re.MatchString(name) {
				t.Errorf("%q does not match %q", c.pattern, name)
			}
		}
		for _, name := range c.noes {
			if re.MatchString(name) {
				t.Errorf("%q matches %q", c.pattern, name)
			}
		}
	}
	for _, bad := range []string{"[a", "{a", "[", strings.Repeat("a", maxGlob+1), "[z-a]"} {
		if _, err := compileGlob(bad); err == nil {
			t.Errorf("%.20q is accepted", bad)
		}
	}
}

// TestMarks: a byte order mark is not part of the first line, and UTF-16 that begins with one is
// searched. Other files with a NUL are counted.
func TestMarks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	utf16Of := func(text string, order binary.AppendByteOrder) string {
		var b []byte
		for _, unit := range utf16.Encode([]rune(text)) {
			b = order.AppendUint16(b, unit)
		}
		return string(b)
	}
	text := "\ufeffimport os\r\nprint('天😀')\r\n"
	long := "\ufeff" + strings.Repeat("天天天天天天天天天天天天天天天天天天天天天天天天天天天天天天天\r\n", 100_000) + "import end"
	put(t, dir, "bom.py", "\ufeffimport os\nprint(1)\n", "le.py", utf16Of(text, binary.LittleEndian), "be.py", utf16Of(text, binary.BigEndian),
		"only", "\ufeff", "two", "\ufeff\ufeffimport", "unmarked", utf16Of(text[3:], binary.LittleEndian), "program", "\xff\xfe\x00\x00import",
		"long", utf16Of(long, binary.LittleEndian))
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"^import", []string{"long:100001:import end", "be.py:1:import os", "le.py:1:import os", "bom.py:1:import os"}},
		{"import", []string{"long:100001:import end", "two:1:\ufeffimport", "be.py:1:import os", "le.py:1:import os", "bom.py:1:import os"}},
		{`os$`, []string{"be.py:1:import os", "le.py:1:import os", "bom.py:1:import os"}},
		{"'天😀'", []string{"be.py:2:print('天😀')", "le.py:2:print('天😀')"}},
	} {
		found, summary := run(t, dir, Request{Pattern: c.pattern, Mode: Content})
		var got []string
		for _, f := range found {
			for _, l := range f.Lines {
				got = append(got, fmt.Sprintf("%s:%d:%s", f.Path, l.Number, l.Text))
			}
		}
		if !slices.Equal(got, c.want) || summary.Binary != 2 || summary.Unreadable != 0 {
			t.Errorf("%s: %q %+v", c.pattern, got, summary)
		}
	}
}

// naive matches a file line by line, with context, as Run must.
func naive(re *regexp.Regexp, content string, before, after int) (lines []string, count int) {
	all := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	shown := map[int]string{}
	for n, line := range all {
		if re.MatchString(strings.TrimSuffix(line, "\r")) {
			count++
			for k := max(0, n-before); k <= min(len(all)-1, n+after); k++ {
				if shown[k] != ":" {
					shown[k] = "-"
				}
			}
			shown[n] = ":"
		}
	}
	for n, line := range all {
		if shown[n] != "" {
			lines = append(lines, fmt.Sprintf("%d%s%s", n+1, shown[n], strings.TrimSuffix(line, "\r")))
		}
	}
	return lines, count
}

// TestMatchesAsLineByLine compares with a simple implementation, over buffers of few bytes too.
func TestMatchesAsLineByLine(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	patterns := []string{
		"needle", "needle|k", "^needle", "needle$", "^$", "a+b", `\bneedle\b`, `\Aa`, `b\z`, "[^x]b", `a\s+b`, "x*", "(?:needle){1,2}", "(needle)+k?",
		".", "b.*needle", "needle.*b", `\d`, "a\nb", "$", "K", "straße", "s", `needle\r`,
	}
	pieces := []string{"needle", "NEEDLE", "a", "b", " ", "\n", "\n", "\r\n", "k", "K", "s", "ſ", "x", "1", "straße", "STRASSE", "\xff", "\n\n"}
	for range 3000 {
		var content strings.Builder
		for range random.IntN(40) {
			content.WriteString(pieces[random.IntN(len(pieces))])
		}
		pattern, fold := patterns[random.IntN(len(patterns))], random.IntN(2) == 0
		before, after := random.IntN(3), random.IntN(3)
		flags := ""
		if fold {
			flags = "(?i)"
		}
		text := content.String()
		if text == "" {
			continue
		}
		want, count := naive(regexp.MustCompile(flags+pattern), text, before, after)
		m, err := newMatcher(pattern, fold)
		if err != nil {
			t.Fatal(err)
		}
		w := &walk{matcher: m, request: Request{Mode: Content, Before: before, After: after, Limit: 1000}, deadline: time.Now().Add(time.Hour)}
		s := newScanner(w)
		longest := 0
		for line := range strings.Lines(text) {
			longest = max(longest, len(line))
		}
		s.buf = make([]byte, longest+1+random.IntN(50))
		lines, got, err := s.scan(bytes.NewReader([]byte(text)), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		for _, l := range lines {
			mark := ":"
			if l.Context {
				mark = "-"
			}
			have = append(have, fmt.Sprintf("%d%s%s", l.Number, mark, l.Text))
		}
		if got != count || !slices.Equal(have, want) {
			t.Fatalf("%q (fold %v, before %d, after %d) in %q with a buffer of %d: %d %q, want %d %q", pattern, fold, before, after, text, len(s.buf), got,
				have, count, want)
		}
	}
}

func TestNewestFirstWithinLimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "old.go", "needle\nneedle\n", "d/mid.go", "needle\n", "new.go", "x\nneedle\n", "newest.txt", "needle\n", "other.go", "hay\n")
	found, summary := run(t, dir, Request{Pattern: "needle", Glob: "*.go", Mode: Files})
	if got := names(found); !slices.Equal(got, []string{"new.go", "d/mid.go", "old.go"}) || summary.Files != 3 {
		t.Errorf("%q %+v", got, summary)
	}
	found, summary = run(t, dir, Request{Pattern: "needle", Mode: Content, Limit: 3})
	if got := names(found); !slices.Equal(got, []string{"newest.txt", "new.go", "d/mid.go"}) || summary.Matches != 5 || summary.Files != 4 {
		t.Errorf("%q %+v", got, summary)
	}
	found, _ = run(t, dir, Request{Pattern: "needle", Mode: Count})
	if last := found[len(found)-1]; last.Count != 2 || last.Lines != nil || string(last.Path) != "old.go" || last.Size != 14 {
		t.Errorf("%+v", last)
	}
	found, _ = run(t, dir, Request{Path: "d", Glob: "*.go", Mode: Files})
	if got := names(found); !slices.Equal(got, []string{"d/mid.go"}) {
		t.Errorf("%q", got)
	}
	found, _ = run(t, dir, Request{Path: "d/mid.go", Pattern: "needle", Mode: Files})
	if got := names(found); !slices.Equal(got, []string{"d/mid.go"}) {
		t.Errorf("%q", got)
	}
}

// TestManyMatches: more than is kept at once, and still the newest.
func TestManyMatches(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := range 20 {
		put(t, dir, fmt.Sprintf("f%02d", n), strings.Repeat("needle\n", 1500))
		at := time.Unix(1_700_000_000+int64(n), 0)
		if err := os.Chtimes(filepath.Join(dir, fmt.Sprintf("f%02d", n)), at, at); err != nil {
			t.Fatal(err)
		}
	}
	found, summary := run(t, dir, Request{Pattern: "needle", Mode: Content, Limit: MaxLimit, Before: 2, After: 2})
	if got := names(found); !slices.Equal(got, []string{"f19", "f18"}) || len(found[1].Lines) != 500 || summary.Matches != 30_000 {
		t.Errorf("%q %+v", got, summary)
	}
}

func TestBinaryAndGitAreLeftOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a.bin", "needle\x00", ".git/config", "needle", "sub/.git/x", "needle", ".hidden", "needle", "latin1", "needle \xe4\n")
	found, summary := run(t, dir, Request{Pattern: "needle", Mode: Content})
	if got := names(found); !slices.Equal(got, []string{"latin1", ".hidden"}) {
		t.Errorf("%q %+v", got, summary)
	}
	if found, _ := run(t, dir, Request{Path: ".git", Pattern: "needle", Mode: Files}); len(found) != 1 {
		t.Errorf("a .git that was asked for: %q", names(found))
	}
}

func TestLongLinesAreCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "min.js", strings.Repeat("a", 5000)+"needle"+strings.Repeat("b", 5000)+"\n", "huge", strings.Repeat("c", 3*bufferBytes)+"needle")
	found, _ := run(t, dir, Request{Pattern: "needle", Mode: Content})
	if len(found) != 2 {
		t.Fatalf("%q", names(found))
	}
	l := found[1].Lines[0]
	if len(l.Text) != maxLineBytes || !bytes.Contains(l.Text, []byte("needle")) || l.Cut+len(l.Text)+l.More != 10_006 || l.Number != 1 {
		t.Errorf("%+v", l)
	}
}

// TestTimeWithinAFile: a pattern over many lines that matches nowhere does not search past the
// deadline.
func TestTimeWithinAFile(t *testing.T) {
	t.Parallel()
	m, err := newMatcher(`(a|\n)*[bc]`, false)
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{matcher: m, deadline: time.Now().Add(-time.Second)}
	content := strings.Repeat("a\n", 1000) + "b"
	if _, count, err := newScanner(w).scan(strings.NewReader(content), int64(len(content))); count != 0 || err != nil || w.summary.Stopped == "" {
		t.Errorf("%d lines match, %v, stopped: %q", count, err, w.summary.Stopped)
	}
}

func TestAnswer(t *testing.T) {
	dir := t.TempDir()
	name := "a\nb\x1b[2J\xff"
	if runtime.GOOS == "windows" {
		name = "a b"
	}
	put(t, dir, name, "x \x1b[31m\xff\n")
	t.Chdir(dir)
	var out bytes.Buffer
	if code := serve(`{"path":".","pattern":"x","mode":"content","limit":10,"timeout_ms":600000}`, &out); code != 0 {
		t.Fatal(code, out.String())
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	var file, summary Message
	if len(lines) != 2 || json.Unmarshal([]byte(lines[0]), &file) != nil || json.Unmarshal([]byte(lines[1]), &summary) != nil {
		t.Fatalf("%q", lines)
	}
	if string(file.File.Path) != name || string(file.File.Lines[0].Text) != "x \x1b[31m\xff" || summary.Summary.Files != 1 {
		t.Errorf("%q", lines)
	}
	for _, bad := range []string{`{`, `{"path":"no"}`, `{"path":".","pattern":"("}`, `{"path":".","glob":"["}`, `{"path":"../x"}`, `{"path":"/etc"}`} {
		out.Reset()
		if code := serve(bad, &out); code != 2 || json.Unmarshal(out.Bytes(), &summary) != nil || summary.Summary.Error == "" {
			t.Errorf("%s: %d %s", bad, code, out.String())
		}
	}
}

func TestAnswerIsBounded(t *testing.T) {
	dir := t.TempDir()
	line := strings.Repeat("needle ", 100) + "\n"
	put(t, dir, "a", strings.Repeat(line, 3000))
	t.Chdir(dir)
	for n := range 5 {
		put(t, dir, fmt.Sprint(n), strings.Repeat(line, 400))
	}
	var out bytes.Buffer
	if code := serve(`{"path":".","pattern":"needle","mode":"content","limit":2000,"timeout_ms":600000}`, &out); code != 0 {
		t.Fatal(code)
	}
	if out.Len() > 2*MaxOutput || !strings.Contains(out.String(), `"stopped":"the answer has 256 KiB"`) {
		t.Errorf("%d bytes: …%s", out.Len(), out.String()[max(0, out.Len()-200):])
	}
}

func FuzzMatch(f *testing.F) {
	for _, s := range []string{"needle", "a|b", "^$", "(?i)K", `\bx\b`, "[^\n]b", "a{2,}"} {
		f.Add(s, "a needle\nKk\r\n\nx", true)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, fold bool) {
		if len(text) > 10_000 || len(pattern) > 100 || strings.ContainsRune(text, 0) || text == "" {
			return
		}
		m, err := newMatcher(pattern, fold)
		if err != nil {
			return
		}
		flags := "(?m)"
		if fold {
			flags = "(?mi)"
		}
		want, count := naive(regexp.MustCompile(flags+pattern), text, 1, 1)
		w := &walk{matcher: m, request: Request{Mode: Content, Before: 1, After: 1, Limit: 100_000}, deadline: time.Now().Add(time.Hour)}
		lines, got, err := newScanner(w).scan(strings.NewReader(text), int64(len(text)))
		if err != nil || got != count || len(lines) != len(want) {
			t.Fatalf("%q in %q: %d in %d lines, want %d in %d (%v)", pattern, text, got, len(lines), count, len(want), err)
		}
	})
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"*.go", "[!a]", "{a,b}", "**/x", `\`, "[]"} {
		f.Add(s, "a/b.go")
	}
	f.Fuzz(func(_ *testing.T, pattern, name string) {
		if re, err := compileGlob(pattern); err == nil {
			re.MatchString(name)
		}
	})
}
