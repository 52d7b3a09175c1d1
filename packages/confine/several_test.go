package confine_test

import (
	"strings"
	"testing"

	"secbox/fault"
	"secbox/packages/confine"
)

// TestSeveralRoots: a command whose working directory is one directory may name another, by
// absolute paths and whole components, and nothing else.
func TestSeveralRoots(t *testing.T) {
	t.Parallel()
	const tool, work = "/opt/skill-creator", "/workspace/work"
	for name, c := range map[string]struct {
		root, also string
		cmd        cmd
		allowed    bool
	}{
		"the tool from the workspace":   {work, tool, cmd{"python3", tool + "/skill.py", "scaffold", "x", "--dir", work + "/skills"}, true},
		"the workspace from the tool":   {tool, work, cmd{"python3", "skill.py", "validate", work + "/skills/x"}, true},
		"in an option":                  {tool, work, cmd{"python3", "skill.py", "package", "x", "-o" + work + "/x.zip", "--dir=" + work}, true},
		"a list of both":                {work, tool, cmd{"python3", "x.py", tool + "/x:" + work + "/a"}, true},
		"a script with both":            {work, tool, cmd{"bash", "-c", "cat " + tool + "/SKILL.md > " + work + "/x; ls " + tool}, true},
		"a program with the other":      {work, tool, cmd{"python3", "-c", "open('" + tool + "/skill.py')"}, true},
		"the other itself":              {work, tool, cmd{"ls", tool, tool + "/"}, true},
		"a sibling of the other":        {work, tool, cmd{"ls", tool + "2"}, false},
		"a sibling of the other, below": {work, tool, cmd{"cat", "/opt/skill-creators/x"}, false},
		"the folder above the other":    {work, tool, cmd{"ls", "/opt"}, false},
		"the other's neighbour":         {work, tool, cmd{"ls", "/opt/secbox"}, false},
		"up from the other":             {work, tool, cmd{"cat", tool + "/../secbox/x"}, false},
		"up from the other in a script": {work, tool, cmd{"bash", "-c", "cat " + tool + "/../../etc/passwd"}, false},
		"from one into the other":       {tool, work, cmd{"cat", work + "/../inputs/x"}, false},
		"the rest of the system":        {tool, work, cmd{"cat", "/etc/passwd"}, false},
		"the artifacts":                 {tool, work, cmd{"cat", "/workspace/artifacts/x"}, false},
		"in a script":                   {tool, work, cmd{"bash", "-c", "cat " + work + "/x /etc/passwd"}, false},
		"the other in a relative path":  {work, tool, cmd{"cat", "../../opt/skill-creator/x"}, false},
	} {
		err := confine.Check(c.cmd[0], c.cmd[1:], c.root, c.also)
		if c.allowed && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !c.allowed && !fault.Is(err, fault.PathRefused) {
			t.Errorf("%s: got %v", name, err)
		}
		if !c.allowed && err != nil && !strings.Contains(err.Error(), c.root) {
			t.Errorf("%s: no remedy in %v", name, err)
		}
	}
	for _, bad := range []string{"", "/", "opt", "/opt/", "/opt/../x", "/a\x00"} {
		if err := confine.Check("ls", nil, work, bad); !fault.Is(err, fault.Internal) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}
