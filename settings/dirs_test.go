package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/fault"
)

func TestDefaultDirectories(t *testing.T) {
	t.Parallel()
	unix := map[string]string{"HOME": "/home/ann"}
	xdg := map[string]string{"HOME": "/home/ann", "XDG_STATE_HOME": "/x/state/"}
	windows := map[string]string{"USERPROFILE": `C:\Users\ann`, "LOCALAPPDATA": `C:\Users\ann\AppData\Local`, "HOME": "/ignored"}
	for _, c := range []struct {
		name             string
		home             home
		state, workspace string
	}{
		{"root on Linux", home{"linux", true, xdg}, "/var/lib/secbox", "/var/lib/secbox-workspace"},
		{"a user on Linux", home{"linux", false, unix}, "/home/ann/.local/state/secbox", "/home/ann/secbox-workspace"},
		{"a user with a state folder", home{"linux", false, xdg}, "/x/state/secbox", "/home/ann/secbox-workspace"},
		{
			"a relative state folder",
			home{"linux", false, map[string]string{"HOME": "/home/ann", "XDG_STATE_HOME": "rel"}},
			"/home/ann/.local/state/secbox",
			"/home/ann/secbox-workspace",
		},
		{"a user on macOS", home{"darwin", false, xdg}, "/home/ann/Library/Application Support/secbox", "/home/ann/secbox-workspace"},
		{"a user on Windows", home{"windows", false, windows}, `C:\Users\ann\AppData\Local\secbox`, `C:\Users\ann\secbox-workspace`},
		{"no environment", home{"linux", false, nil}, "", ""},
		{"no environment on Windows", home{"windows", false, unix}, "", ""},
	} {
		if got := c.home.stateDir(); got != c.state {
			t.Errorf("%s: state dir %q, want %q", c.name, got, c.state)
		}
		if got := c.home.workspaceRoot(); got != c.workspace {
			t.Errorf("%s: workspace root %q, want %q", c.name, got, c.workspace)
		}
	}
}

func TestDirectoriesWithoutEnvironment(t *testing.T) {
	t.Parallel()
	var p problems
	s := Default()
	s.checkDirs(&p)
	if len(p.fields) != 1 || !strings.Contains(p.fields[0].Reason, "CORE_API_STATE_DIR") {
		t.Fatalf("%+v", p.fields)
	}
	p = problems{}
	s.StateDir = t.TempDir()
	s.checkDirs(&p)
	if len(p.fields) != 1 || !strings.Contains(p.fields[0].Reason, "CORE_API_SANDBOX_WORKSPACE_ROOT") {
		t.Fatalf("%+v", p.fields)
	}
}

// Escapes: no spelling and no link puts the state dir into a directory that a container sees.
func TestEscapeStateDirAndWorkspaceAreSeparate(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(rel string) string { return base + string(filepath.Separator) + filepath.FromSlash(rel) } // not Join: it would clean
	for _, dir := range []string{"ws/projects", "state", "other"} {
		if err := os.MkdirAll(in(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"to-ws": in("ws"), "to-state": in("state"), "ws/out": in("other"), "other/back": in("ws"),
		"chain": "to-ws", "nowhere": in("missing"), "loop": "loop", "up": ".",
	} {
		if err := os.Symlink(target, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, state, workspace string
		want                   string // in the message; empty: they are separate
	}{
		{"beside each other", "state", "ws", ""},
		{"a common beginning of the name", "ws-state", "ws", ""},
		{"neither exists", "new/state", "new/ws", ""},
		{"one name", "ws", "ws", "are one directory"},
		{"below", "ws/state", "ws", "is under the workspace root"},
		{"far below, not existing", "ws/a/b/c", "ws", "is under the workspace root"},
		{"above", "state", "state/ws", "is under state_dir"},
		{"by dots", "state/../ws/x", "ws", "is under the workspace root"},
		{"by a link to it", "to-ws", "ws", "are one directory"},
		{"below by a link", "to-ws/state", "ws", "is under the workspace root"},
		{"below by a chain of links", "chain/state", "ws", "is under the workspace root"},
		{"a workspace that is a link into the state dir", "state", "to-state/ws", "is under state_dir"},
		{"both by links", "to-ws/x", "chain", "is under the workspace root"},
		{"a link that comes back", "other/back/x", "ws", "is under the workspace root"},
		{"a link out of the workspace", "ws/out", "ws", ""},
		{"a link to its own parent", "up/ws/state", "ws", "is under the workspace root"},
		{"a link that leads nowhere", "nowhere/state", "ws", "cannot be reached"},
		{"a link to itself", "loop", "ws", "cannot be reached"},
		{"a workspace link that leads nowhere", "state", "nowhere", "cannot be reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckApart(in(c.state), in(c.workspace))
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if err := CheckApart(in("state"), string(filepath.Separator)); err == nil {
		t.Error("the whole system as a workspace was accepted")
	}
}

// Escapes: no spelling and no link puts the skills into a directory that a container writes, or
// into the state dir.
func TestEscapeSkillsDirIsSeparate(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(rel string) string { return base + string(filepath.Separator) + filepath.FromSlash(rel) } // not Join: it would clean
	for _, dir := range []string{"ws/projects", "state", "skills"} {
		if err := os.MkdirAll(in(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"to-ws": in("ws"), "to-state": in("state"), "nowhere": in("missing")} {
		if err := os.Symlink(target, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, skills, want string }{
		{"beside both", "skills", ""},
		{"not there yet", "new/skills", ""},
		{"the workspace root", "ws", "the workspace root"},
		{"a project's work", "ws/projects/demo/work", "a container could write itself a skill"},
		{"in the workspace by a link", "to-ws/projects", "the workspace root"},
		{"in the workspace by dots", "skills/../ws/projects", "the workspace root"},
		{"around the workspace", ".", "the workspace root"},
		{"in the state dir", "state/skills", "state_dir"},
		{"in the state dir by a link", "to-state", "state_dir"},
		{"a link that leads nowhere", "nowhere/skills", "cannot be reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := CheckSkillsDir(in(c.skills), in("state"), in("ws"))
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!fault.Is(err, fault.InvalidSettings) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	var p problems
	s := Default()
	s.StateDir, s.Sandbox.WorkspaceRoot, s.Sandbox.SkillsDir = in("state"), in("ws"), in("ws/skills")
	s.checkDirs(&p)
	if len(p.fields) != 1 || p.fields[0].Field != "sandbox.skills_dir" {
		t.Errorf("%+v", p.fields)
	}
	p, s.Sandbox.SkillsDir = problems{}, "skills"
	s.checkDirs(&p)
	if len(p.fields) != 1 || p.fields[0].Field != "sandbox.skills_dir" || !strings.Contains(p.fields[0].Reason, "relative") {
		t.Errorf("%+v", p.fields)
	}
}

func TestCheckStateDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "not", "yet")} {
		if err := CheckStateDir(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckStateDir(filepath.Join(file, "below")); !fault.Is(err, fault.InvalidSettings) {
		t.Errorf("below a file: %v", err)
	}
}
