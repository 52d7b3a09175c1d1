package runner

import "testing"

// TestToolAsCwd: callers within this process may use it, requests may not, and no path below or
// beside it.
func TestToolAsCwd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, cwd string
		allowed   bool
	}{
		{KindArgv, "/opt/skill-creator", true},
		{KindArgv, "/workspace/work/skills/x", true},
		{KindArgv, "/opt/skill-creator/..", false},
		{KindArgv, "/opt/skill-creator/x", false},
		{KindArgv, "/opt/secbox", false},
		{KindShell, "/opt/skill-creator", false},
		{KindPython, "/opt/skill-creator", false},
	} {
		args := map[string][]string{KindShell: {"-lc", "true"}, KindPython: {"-c", ""}}[c.kind]
		name := map[string]string{KindArgv: "ls", KindShell: "bash", KindPython: "python"}[c.kind]
		req, err := normalise(Request{ProjectID: "ag~u", Command: Command{Kind: c.kind, Name: name, Args: args, Cwd: c.cwd}})
		if c.allowed != (err == nil) || c.allowed && req.Command.Cwd != c.cwd {
			t.Errorf("%s in %s: %q, %v", c.kind, c.cwd, req.Command.Cwd, err)
		}
	}
}
