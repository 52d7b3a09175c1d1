//go:build unix

package scripts

import (
	"fmt"
	"strings"
	"testing"
)

const haystack = `
mkdir -p src/deep 'ünï code' empty .git
printf 'Foo one\nbar\nfoo two\r\nbaz foo\nlast' > src/a.py
printf 'FOO\n\\d+ 12 (x)\n' > src/deep/b.go
printf 'foo\n' > .git/config
printf 'gr\xc3\xbc\xc3\x9fe\nGR\xc3\x9cSSE\n' > 'ünï code/ÿ.txt'
`

// TestGrep looks for things in ordinary files with every option.
func TestGrep(t *testing.T) {
	t.Parallel()
	r := inRow(t, haystack)
	for name, c := range map[string]struct {
		inputs object
		found  []string // path:line:text
	}{
		"regexp":           {object{"pattern": `^[Ff]oo\b`}, []string{"src/a.py:1:Foo one", "src/a.py:3:foo two"}},
		"end of a line":    {object{"pattern": `two$`}, []string{"src/a.py:3:foo two"}},
		"within one line":  {object{"pattern": `bar\s+foo`}, nil},
		"look-around":      {object{"pattern": `(?<=baz )foo(?! x)`}, []string{"src/a.py:4:baz foo"}},
		"fixed":            {object{"pattern": `\d+`, "fixed": true}, []string{`src/deep/b.go:2:\d+ 12 (x)`}},
		"fixed, any case":  {object{"pattern": `(X)`, "fixed": true, "ignore_case": true}, []string{`src/deep/b.go:2:\d+ 12 (x)`}},
		"any case":         {object{"pattern": "^foo$", "ignore_case": true}, []string{"src/deep/b.go:1:FOO"}},
		"any case, letter": {object{"pattern": "grü", "ignore_case": true}, []string{"ünï code/ÿ.txt:1:grüße", "ünï code/ÿ.txt:2:GRÜSSE"}},
		"folder":           {object{"pattern": "(?i)foo", "path": "src/deep/"}, []string{"src/deep/b.go:1:FOO"}},
		"file":             {object{"pattern": "last", "path": "./src/a.py"}, []string{"src/a.py:5:last"}},
		"unicode path":     {object{"pattern": "SS", "path": "ünï code"}, []string{"ünï code/ÿ.txt:2:GRÜSSE"}},
		"glob":             {object{"pattern": "(?i)foo", "glob": "*.go"}, []string{"src/deep/b.go:1:FOO"}},
		"glob of a path":   {object{"pattern": "(?i)foo", "glob": "src/*/b.*"}, []string{"src/deep/b.go:1:FOO"}},
		"glob from above":  {object{"pattern": "(?i)foo", "glob": "src/*/b.*", "path": "src"}, []string{"src/deep/b.go:1:FOO"}},
		"glob of nothing":  {object{"pattern": "foo", "glob": "[!a-z"}, nil},
		".git if asked":    {object{"pattern": "foo", "path": ".git"}, []string{".git/config:1:foo"}},
		"no match":         {object{"pattern": "nowhere"}, nil},
		"empty folder":     {object{"pattern": "x", "path": "empty"}, nil},
		"like an option":   {object{"pattern": "-e"}, nil},
		"like two":         {object{"pattern": "--help", "glob": "-x"}, nil},
		"flags and groups": {object{"pattern": `(?P<a>(x))|((((12))))`}, []string{`src/deep/b.go:2:\d+ 12 (x)`}},
	} {
		t.Run(name, func(t *testing.T) {
			out := r.with(t).uses("text.grep", c.inputs)
			var found []string
			for _, m := range out.list("matches") {
				found = append(found, fmt.Sprintf("%s:%v:%s", m.str("path"), m["line"], m.str("text")))
			}
			same(t, "found", found, c.found)
			if out.at("truncated") != false {
				t.Errorf("truncated: %v", out)
			}
		})
	}
}

// TestGrepMarks: a byte order mark is not part of the first line, and UTF-16 that begins with one
// is searched.
func TestGrepMarks(t *testing.T) {
	t.Parallel()
	r := inRow(t, `
printf '\xef\xbb\xbfimport os\nprint(1)\n' > bom.py
printf 'import os\r\nprint("天😀")\r\n' | iconv -t UTF-16LE | (printf '\xff\xfe'; cat) > le.py
printf 'import os\nprint("天😀")' | iconv -t UTF-16BE | (printf '\xfe\xff'; cat) > be.py
printf 'import os\n' | iconv -t UTF-16LE > unmarked.py
printf '\xff\xfe\0\0import os\n' > utf32.py
`)
	for pattern, want := range map[string][]string{
		"^import os$": {"be.py:1:import os", "bom.py:1:import os", "le.py:1:import os"}, "天😀": {`be.py:2:print("天😀")`, `le.py:2:print("天😀")`},
	} {
		out := r.uses("text.grep", object{"pattern": pattern})
		var found []string
		for _, m := range out.list("matches") {
			found = append(found, fmt.Sprintf("%s:%v:%s", m.str("path"), m["line"], m.str("text")))
		}
		same(t, pattern, found, want)
		same(t, "counts", []any{out["files_searched"], out["files_skipped"]}, []any{3, 2})
	}
}

// TestGrepContext gives the lines around a match, also where matches lie close to each other and to
// the ends of a file.
func TestGrepContext(t *testing.T) {
	t.Parallel()
	r := inRow(t, `seq 1 9 | sed 's/^[456]$/x&/' > n.txt`)
	out := r.uses("text.grep", object{"pattern": "^(x[45]|9)", "context": 2})
	same(t, "matches", out["matches"], []object{
		{"path": "n.txt", "line": 4, "text": "x4", "before": []string{"2", "3"}, "after": []string{"x5", "x6"}},
		{"path": "n.txt", "line": 5, "text": "x5", "before": []string{"3", "x4"}, "after": []string{"x6", "7"}},
		{"path": "n.txt", "line": 9, "text": "9", "before": []string{"7", "8"}, "after": []string{}},
	})
	same(t, "counts", []any{out["files_searched"], out["files_skipped"], out["truncated"]}, []any{1, 0, false})

	out = r.uses("text.grep", object{"pattern": "x", "max_matches": 2, "context": 1})
	if found := out.list("matches"); len(found) != 2 || out.at("truncated") != true || fmt.Sprint(found[1]["after"]) != "[x6]" {
		t.Errorf("two of three: %v", out)
	}
	if out = r.uses("text.grep", object{"pattern": "x", "max_matches": 3}); len(out.list("matches")) != 3 || out.at("truncated") != false {
		t.Errorf("three of three: %v", out)
	}
}

// TestGrepHostileTree searches where there is everything that is no text.
func TestGrepHostileTree(t *testing.T) {
	t.Parallel()
	r := inRow(t, `
printf 'needle\n' > ok; printf 'needle\0' > binary; mkfifo fifo; ln -s /etc/passwd link; ln -s . loop; ln -s ok same
printf 'a \xff needle \xc3\n' > latin; printf 'needle\n' > $'name\xff'; printf 'needle\n' > $'new\nline'; printf 'needle\n' > -e; printf 'needle\n' > --help
: > empty
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
{ head -c 5000 /dev/zero | tr '\0' x; printf needle; head -c 5000 /dev/zero | tr '\0' y; echo; echo needle; } > long
{ head -c 3000000 /dev/zero | tr '\0' x; echo needle; echo needle; } > longer
python3 - <<'END'
import os
for _ in range(100): # a path that is longer than any call takes
    os.mkdir("d" * 60); os.chdir("d" * 60)
END
mkdir -p wide; seq 1 3000 | sed 's,^,wide/,' | xargs touch
`)
	out := r.uses("text.grep", object{"pattern": "needle", "fixed": true})
	var paths []string
	for _, m := range out.list("matches") {
		paths = append(paths, fmt.Sprintf("%s:%v", m.str("path"), m["line"]))
		text := m.str("text")
		switch m.str("path") {
		case "latin":
			same(t, "latin", text, "a \ufffd needle \ufffd")
		case "long":
			if m.num("line") == 1 && (len([]rune(text)) != 1002 || !strings.HasPrefix(text, "…xxx") || !strings.Contains(text, "xneedley") ||
				!strings.HasSuffix(text, "yyy…")) {
				t.Errorf("a long line: %d %.40s", len(text), text)
			}
		}
	}
	same(t, "paths", paths, []string{"--help:1", "-e:1", "latin:1", "long:1", "long:2", "longer:2", "name\ufffd:1", "new\nline:1", "ok:1"})
	if out.num("files_searched") < 3000 || out.num("files_skipped") < 6 {
		t.Errorf("searched %v, skipped %v", out["files_searched"], out["files_skipped"])
	}
}

// TestGrepALot checks that many and long matches are cut to the size of an output.
func TestGrepALot(t *testing.T) {
	t.Parallel()
	r := inRow(t, `python3 -c 'print(("\1" * 2000 + "\n") * 20000)' > control.txt; yes needle | head -20000 > many.txt`)
	out := r.uses("text.grep", object{"pattern": "needle", "max_matches": 10000})
	if n := len(out.list("matches")); n != 10000 || out.at("truncated") != true {
		t.Errorf("%d matches, truncated %v", n, out["truncated"])
	}
	out = r.uses("text.grep", object{"pattern": "\x01", "max_matches": 10000, "context": 10})
	if n := len(out.list("matches")); n < 10 || n > 1000 || out.at("truncated") != true {
		t.Errorf("%d matches, truncated %v", n, out["truncated"])
	}
}

// TestGrepRefuses checks invalid inputs and patterns.
func TestGrepRefuses(t *testing.T) {
	t.Parallel()
	r := inRow(t, "")
	for field, inputs := range map[string]object{
		"inputs.pattern":     {},
		"inputs.fixed":       {"pattern": "x", "fixed": "yes"},
		"inputs.ignore_case": {"pattern": "x", "ignore_case": 1},
		"inputs.glob":        {"pattern": "x", "glob": ""},
		"inputs.context":     {"pattern": "x", "context": 11},
		"inputs.max_matches": {"pattern": "x", "max_matches": 0},
		"inputs.path":        {"pattern": "x", "path": 3},
	} {
		refusesInputs(t, "text.grep", inputs, field)
	}
	refusesInputs(t, "text.grep", object{"pattern": ""}, "inputs.pattern")
	refusesInputs(t, "text.grep", object{"pattern": "x", "max_matches": 10001}, "inputs.max_matches")
	refusesInputs(t, "text.grep", object{"pattern": "x", "context": 1.5}, "inputs.context")
	for _, pattern := range []string{"(", "[z-a]", "a{99999999999}", "(?P<x>a)(?P<x>b)", "*", `\`, strings.Repeat("(", 3000)} {
		a := r.useFails("text.grep", object{"pattern": pattern}, 2, "is no regular expression")
		if a["outputs"] != nil {
			t.Errorf("%.20q: outputs %v", pattern, a["outputs"])
		}
	}
	same(t, "an empty work/", inRow(t, "").uses("text.grep", object{"pattern": "x"}),
		object{"matches": []object{}, "files_searched": 0, "files_skipped": 0, "truncated": false})
}
