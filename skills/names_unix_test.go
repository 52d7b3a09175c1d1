//go:build unix

package skills

import (
	"fmt"
	"strings"
	"testing"
)

// TestNamesThatOtherSystemsRefuse has names that cannot be made on Windows.
func TestNamesThatOtherSystemsRefuse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]brokenFolder{
		"a name that Windows takes": {demo().with("lib/aux.py", ""), "lib/aux.py", "is a device name that Windows reserves"},
		"a name with a backslash":   {demo().with(`a\b`, ""), `a\b`, "holds a path separator"},
		"a name with a new line":    {demo().with("a\nb", ""), "a\nb", "holds a control character"},
		"a name not in UTF-8":       {demo().with("a\xff", ""), "a\uFFFD", "is not valid UTF-8"},
		"a name that ends in a dot": {demo().with("a.", ""), "a.", "ends in a dot"},
		"a colliding name":          {demo().with("Lib.py", "").with("lib.py", ""), "lib.py", "differs from Lib.py only by case"},
		"a colliding directory":     {demo().with("d/Lib/x", "").with("d/lib/y", ""), "d/lib", "differs from Lib only by case"},
	} {
		t.Run(name, c.isFound)
	}
}

func TestProblemsAreSortedAndCut(t *testing.T) {
	t.Parallel()
	f := demo()
	for n := range 200 {
		f[fmt.Sprintf("bad%03d.", n)] = ""
	}
	problems := brokenOf(t, one(t, f.with(ManifestFile, "{}")), "text.demo")
	if len(problems) != maxProblems || problems[0].File != "bad000." || !strings.Contains(problems[maxProblems-1].Reason, "more problems") {
		t.Errorf("%d problems, from %+v to %+v", len(problems), problems[0], problems[len(problems)-1])
	}
}
