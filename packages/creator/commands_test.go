//go:build unix

package creator_test

// commands run one after the other, in one folder.
var commands = []struct {
	argv []string
	code int
	says string
}{
	{[]string{}, 2, "required: COMMAND"},
	{[]string{"--help"}, 0, "Exit codes: 0 all is well"},
	{[]string{"scaffold", "--help"}, 0, "--tool ID"},
	{[]string{"explode"}, 2, "invalid choice"},
	{[]string{"scaffold", "a", "--dir", "s"}, 0, "made s/a\n  SKILL.md\n"},
	{[]string{"scaffold", "a", "--dir", "s"}, 2, "s/a is there already; choose another name"},
	{[]string{"scaffold", "a:b"}, 2, "cannot be called a:b: the name holds one of"},
	{[]string{"scaffold", "../x"}, 2, "holds a path separator"},
	{[]string{"scaffold", ""}, 2, "the name is empty"},
	{[]string{"scaffold", "skill-creator"}, 2, "use another name"},
	{[]string{"scaffold", "x", "--tool", "Foo"}, 2, "joined by dots, such as text.count"},
	{[]string{"scaffold", "x", "--tool", "con.x"}, 2, "device name"},
	{[]string{"scaffold", "x", "--too", "a.b"}, 2, "unrecognized arguments"},
	{[]string{"scaffold", "x\ny", "--tool", "a.b"}, 2, "NAME must be"},
	{[]string{"scaffold", "x", "--description", "  "}, 2, "--description must be"},
	{[]string{"scaffold", "x", "--dir", "/opt/skill-creator"}, 2, "Read-only file system"},
	{[]string{"scaffold", `it's "a": \ #b`, "--tool", "a.b", "--dir", "s", "--description", "- x: #y"}, 0, "run.py"},
	{[]string{"validate", "s/a.b/"}, 0, "a.b is a skill: 3 files"},
	{[]string{"validate", ""}, 2, "DIR is empty"},
	{[]string{"validate", "none"}, 2, "there is no /tmp/none"},
	{[]string{"validate", "s/a/SKILL.md"}, 1, ".: is no folder"},
	{[]string{"validate", "s"}, 1, "SKILL.md: does not exist"},
	{[]string{"package", "s"}, 1, "nothing was packed"},
	{[]string{"package", "s/a", "-o", "s/a/x.zip"}, 2, "is in the skill itself"},
	{[]string{"package", "s/a", "-o", "s/a"}, 2, "is in the skill itself"},
	{[]string{"package", "s/a", "-o", "none/x.zip"}, 2, "there is no such folder"},
	{[]string{"package", "s/a", "-o", "/opt/skill-creator/x.zip"}, 2, "Read-only file system"},
	{[]string{"package", "s/a"}, 2, "/workspace/artifacts/a.zip: Read-only file system"}, // it is in this container
	{[]string{"package", "s/a", "-o", "."}, 0, "packed a into ./a.zip: 1 file,"},
	{[]string{"package", "s/a.b", "-o", "s"}, 0, "packed a.b into s/a.b.zip: 3 files,"},
}
