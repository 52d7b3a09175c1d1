package workspace_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace"
)

var goodProjectIDs = []string{
	"demo", "a", "0", "A.b_c-D", "a..b", "v1.2.3", strings.Repeat("x", 128), "agent~user", "A.1~u_2-x",
	strings.Repeat("a", 63) + "~" + strings.Repeat("u", 63), "console", "com10", "x.con", "nul_", "a.nul~b",
}

var badProjectIDs = []string{
	"", ".", "..", ".a", "a.", "a/b", "/a", "a/", "../a", "a/../b", `a\b`, `..\x`, `C:\x`, "a:b", "C:", "-a", "_a", "~", "~a", "a~", "a~b~c",
	"a b", "a\x00", "a\n", "\na", "é", "a\xff", "a,b", "a%2fb", "a*", strings.Repeat("x", 129),
	"CON", "con", "Nul", "aux", "PRN", "COM1", "lpt9", "con.txt", "NUL.tar.gz", "com0", "clock$",
	"con~user", "agent~nul", "agent~con.txt", "CON.x~u", "agent.~user", "agent~user.", ".a~b", "a~.b", "a~-b",
	strings.Repeat("a", 64) + "~u", "a~" + strings.Repeat("u", 64), "a~b/c", "a~..",
}

func TestProjectIDs(t *testing.T) {
	t.Parallel()
	for _, id := range goodProjectIDs {
		if err := workspace.CheckProjectID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range badProjectIDs {
		err := workspace.CheckProjectID(id)
		if !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%q: got %v", id, err)
			continue
		}
		if fields := fault.From(err).Fields; len(fields) != 1 || fields[0].Field != "project_id" || fields[0].Reason == "" {
			t.Errorf("%q: fields %+v", id, fields)
		}
	}
}

func TestSplitWorkspaceID(t *testing.T) {
	t.Parallel()
	if agent, user, ok := workspace.SplitWorkspaceID("agent001~1001"); !ok || agent != "agent001" || user != "1001" {
		t.Errorf("got %q %q %v", agent, user, ok)
	}
	for _, id := range []string{"demo", "~", "a~", "~b", "a~b~c", "a~b/c", ""} {
		if agent, user, ok := workspace.SplitWorkspaceID(id); ok {
			t.Errorf("%q: got %q %q", id, agent, user)
		}
	}
}

// FuzzProjectID: an id that is accepted is one plain name on every system, and has one of the two
// documented forms.
func FuzzProjectID(f *testing.F) {
	for _, id := range goodProjectIDs {
		f.Add(id)
	}
	for _, id := range badProjectIDs {
		f.Add(id)
	}
	plain := regexp.MustCompile(`\A[A-Za-z0-9][A-Za-z0-9._~-]*\z`)
	f.Fuzz(func(t *testing.T, id string) {
		err := workspace.CheckProjectID(id)
		if err != nil {
			if !fault.Is(err, fault.InvalidRequest) {
				t.Fatalf("%q: %v", id, err)
			}
			return
		}
		if filepath.Join("ws", id) != "ws"+string(filepath.Separator)+id || !filepath.IsLocal(id) {
			t.Fatalf("%q leaves its place", id)
		}
		if !plain.MatchString(id) || len(id) > 128 || strings.HasSuffix(id, ".") {
			t.Fatalf("%q has the wrong form", id)
		}
		agent, user, split := workspace.SplitWorkspaceID(id)
		if split != strings.Contains(id, "~") || split && agent+"~"+user != id {
			t.Fatalf("%q splits into %q and %q", id, agent, user)
		}
		for _, name := range []string{id, agent, user} {
			if name != "" && windowsFault(name) {
				t.Fatalf("%q: Windows does not take %q for a plain name", id, name)
			}
		}
		adapter, err := pathadapter.New(pathadapter.Config{Mode: pathadapter.Windows, GOOS: "windows", RootWin: `D:\ws`})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := adapter.DockerMount("projects", id, "inputs"); err != nil || p != `D:\ws\projects\`+id+`\inputs` {
			t.Fatalf("%q: %q %v", id, p, err)
		}
	})
}

var windowsDevice = regexp.MustCompile(`(?i)\A(con|prn|aux|nul|clock\$|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?\z`)

// windowsFault is a second opinion on one name, written from Microsoft's "Naming Files, Paths, and
// Namespaces".
func windowsFault(name string) bool {
	if name == "" || strings.ContainsAny(name, `<>:"/\|?*`) || strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ") {
		return true
	}
	for i := range len(name) {
		if name[i] < 0x20 {
			return true
		}
	}
	return windowsDevice.MatchString(name)
}
