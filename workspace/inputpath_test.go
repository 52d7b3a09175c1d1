package workspace_test

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"secbox/workspace"
)

var goodInputPaths = map[string]string{
	"main.py":                      "main.py",
	"a/b/c.txt":                    "a/b/c.txt",
	"./a//b/./c":                   "a/b/c",
	"a/":                           "a",
	".hidden":                      ".hidden",
	"a/.skill/x":                   "a/.skill/x",
	"..a":                          "..a",
	"a..b":                         "a..b",
	"a b.txt":                      "a b.txt",
	"~":                            "~",
	"-rf":                          "-rf",
	"x,y":                          "x,y",
	"日本語/é.txt":                    "日本語/é.txt",
	"console.log":                  "console.log",
	strings.Repeat("x", 255):       strings.Repeat("x", 255),
	strings.Repeat("d/", 63) + "f": strings.Repeat("d/", 63) + "f",
}

var badInputPaths = []string{
	"", ".", "./", "./.", "/", "/abs", "//abs", "..", "../x", "a/..", "a/../b", "a/../../x", "./../x", `C:\x`, "C:/x", "C:x", `..\x`, `a\b`, `\\host\x`,
	"a:b", "file:stream", "CON", "con", "a/NUL", "nul.txt", "COM1.log/x", "aux /x", "lpt¹", "a\x00b", "\x00", "a\nb", "a\rb", "a\tb", "a\x7f", "a\x1bb",
	"a.", "a ", "a./b", "a /b", "...", "a/ /b", "x?", "x*", "<x>", `"x"`, "a|b", "a\xff", "\xc0\xae\xc0\xae/x",
	".skill", ".skill/x", "./.SKILL/x", ".Skill", strings.Repeat("x", 256), strings.Repeat("x/", 2500), strings.Repeat("a", 5000),
	strings.Repeat("d/", 64) + "f",
}

func TestInputPaths(t *testing.T) {
	t.Parallel()
	for path, want := range goodInputPaths {
		if got, err := workspace.CleanInputPath(path); err != nil || got != want {
			t.Errorf("%q: got %q, %v", path, got, err)
		}
	}
	for _, path := range badInputPaths {
		if got, err := workspace.CleanInputPath(path); err == nil {
			t.Errorf("%q is accepted as %q", path, got)
		} else if err.Error() == "" || !utf8.ValidString(err.Error()) {
			t.Errorf("%q: the reason is %q", path, err)
		}
	}
}

// FuzzInputPath: a path that is accepted stays below inputs/, is clean already, and means the same
// on Windows.
func FuzzInputPath(f *testing.F) {
	for path := range goodInputPaths {
		f.Add(path)
	}
	for _, path := range badInputPaths {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		clean, err := workspace.CleanInputPath(path)
		if err != nil {
			return
		}
		again, err := workspace.CleanInputPath(clean)
		if err != nil || again != clean {
			t.Fatalf("%q is clean as %q and then as %q, %v", path, clean, again, err)
		}
		if !filepath.IsLocal(clean) || filepath.ToSlash(filepath.Join("in", clean)) != "in/"+clean || filepath.ToSlash(filepath.Clean(path)) != clean {
			t.Fatalf("%q leaves inputs/ as %q", path, clean)
		}
		if !utf8.ValidString(clean) || len(clean) > 4096 {
			t.Fatalf("%q is accepted", path)
		}
		for i, name := range strings.Split(clean, "/") {
			if windowsFault(name) || len(name) > 255 || i == 0 && strings.EqualFold(name, ".skill") {
				t.Fatalf("%q is accepted with the component %q", path, name)
			}
		}
	})
}
