package sandbox_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"secbox/sandbox"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, below string
		err         error
	}{
		{"/workspace", ".", nil},
		{"/workspace/", ".", nil},
		{"/workspace/.", ".", nil},
		{"//workspace//a///b/", "a/b", nil},
		{"/workspace/./a/./b", "a/b", nil},
		{"/workspace/a b/ü/-x", "a b/ü/-x", nil},
		{"/workspace/...", "...", nil},
		{"/workspace/a..b", "a..b", nil},
		{"/workspace/\xff", "\xff", nil}, // names are bytes
		{`/workspace/a\b`, `a\b`, nil},
		{"", "", fs.ErrInvalid},
		{"workspace/a", "", fs.ErrInvalid},
		{"./a", "", fs.ErrInvalid},
		{"~/a", "", fs.ErrInvalid},
		{`C:\workspace\a`, "", fs.ErrInvalid},
		{"/workspace/a\x00", "", fs.ErrInvalid},
		{"/workspace" + strings.Repeat("/abcd", 1000), "", fs.ErrInvalid},
		{"/workspace/" + strings.Repeat("n", 256), "", fs.ErrInvalid},
		{"/workspace/" + strings.Repeat("n", 255), strings.Repeat("n", 255), nil},
		{"/", "", fs.ErrPermission},
		{"/workspaces", "", fs.ErrPermission},
		{"/workspac", "", fs.ErrPermission},
		{"/Workspace/a", "", fs.ErrPermission},
		{"/etc/passwd", "", fs.ErrPermission},
		{"/workspace/..", "", fs.ErrPermission},
		{"/workspace/../workspace/a", "", fs.ErrPermission},
		{"/workspace/a/../b", "", fs.ErrPermission},
		{"/workspace/a/..", "", fs.ErrPermission},
		{"/../workspace/a", "", fs.ErrPermission},
	} {
		below, err := sandbox.Clean("open", c.name, sandbox.Root)
		if below != c.below || !errors.Is(err, c.err) {
			t.Errorf("%.60q: %q %v, want %q %v", c.name, below, err, c.below, c.err)
		}
		var at *fs.PathError
		if err != nil && (!errors.As(err, &at) || at.Path != c.name || at.Op != "open") {
			t.Errorf("%.60q: the error is %#v", c.name, err)
		}
	}
	if below, err := sandbox.Clean("open", "/opt/tools/a", "/opt/tools"); below != "a" || err != nil {
		t.Errorf("below another root: %q %v", below, err)
	}
}

func TestCleanWindows(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"CON", "con", "CON.txt", "nul", "COM1", "LPT9.log", "a:b", "c:", "trailing.", "trailing ", "a\\b", "a<b", "a|b", `a"b`, "a?b", "a*b", "tab\t", "dir./x",
		"AUX/x",
	} {
		path := sandbox.Root + "/" + name
		if below, err := sandbox.CleanWindows("open", path, sandbox.Root); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%q: %q %v", name, below, err)
		}
		if _, err := sandbox.Clean("open", path, sandbox.Root); err != nil {
			t.Errorf("%q is a name like any other on other systems: %v", name, err)
		}
	}
	for _, name := range []string{"console", "a.b", ".hidden", "COM", "COM10", "ü", "a b"} {
		if below, err := sandbox.CleanWindows("open", sandbox.Root+"/"+name, sandbox.Root); below != name || err != nil {
			t.Errorf("%q: %q %v", name, below, err)
		}
	}
	if below, err := sandbox.CleanWindows("open", sandbox.Root, sandbox.Root); below != "." || err != nil {
		t.Errorf("%q %v", below, err)
	}
	if _, err := sandbox.CleanWindows("open", "/etc/CON", sandbox.Root); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

// FuzzClean checks both functions against the properties that the rest of the program relies on.
func FuzzClean(f *testing.F) {
	for _, name := range []string{
		"/workspace", "/workspace/a/../b", "//workspace/./a//", "/workspace/CON", "/workspace/a:b", "/workspace/x.", "a", "", "/",
		"/workspace/\x00",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		below, err := sandbox.Clean("open", name, sandbox.Root)
		onWindows, windowsErr := sandbox.CleanWindows("open", name, sandbox.Root)
		if err != nil {
			if below != "" || !errors.Is(err, fs.ErrInvalid) && !errors.Is(err, fs.ErrPermission) {
				t.Fatalf("%q: %q %v", name, below, err)
			}
			if windowsErr == nil {
				t.Fatalf("%q is taken on Windows only", name)
			}
			return
		}
		switch {
		case below == "" || strings.HasPrefix(below, "/") || strings.Contains(below, "\x00") || len(below) > sandbox.MaxPathBytes:
			t.Fatalf("%q leads to %q", name, below)
		case below != "." && path.Clean(below) != below:
			t.Fatalf("%q leads to %q, which is not clean", name, below)
		}
		for part := range strings.SplitSeq(below, "/") {
			if part == ".." || part == "" || len(part) > sandbox.MaxNameBytes {
				t.Fatalf("%q leads to %q", name, below)
			}
		}
		if again, err := sandbox.Clean("open", sandbox.Root+"/"+below, sandbox.Root); len(below) < 4000 && (again != below || err != nil) {
			t.Fatalf("%q leads to %q, and that to %q, %v", name, below, again, err)
		}
		if windowsErr != nil {
			if !errors.Is(windowsErr, fs.ErrInvalid) {
				t.Fatalf("%q: %v", name, windowsErr)
			}
			return
		}
		if onWindows != below || strings.ContainsAny(below, `\:<>|"?*`) {
			t.Fatalf("%q leads to %q on Windows", name, onWindows)
		}
		for part := range strings.SplitSeq(below, "/") {
			if below != "." && (strings.HasSuffix(part, ".") || strings.HasSuffix(part, " ")) {
				t.Fatalf("%q leads to %q on Windows", name, onWindows)
			}
		}
	})
}

// TestCleanPathsStayInside opens the results of Clean: text and file system must agree.
func TestCleanPathsStayInside(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"/workspace/a", "/workspace/./a", "//workspace//a"} {
		below, err := sandbox.Clean("open", name, sandbox.Root)
		if err == nil {
			err = root.WriteFile(below, []byte("x"), 0o600)
		}
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(root.Name()); err != nil || len(entries) != 1 {
		t.Errorf("%v %v", entries, err)
	}
}
