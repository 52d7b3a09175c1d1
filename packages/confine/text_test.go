package confine_test

import (
	"strings"
	"testing"

	"secbox/fault"
	"secbox/packages/confine"
)

// TestTextIsNoPath: text that looks like a path, and that the command does not open, is accepted.
func TestTextIsNoPath(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]cmd{
		"a closing tag":               {"echo", "</h1>"},
		"an element":                  {"echo", "<h1>Hi</h1><br />"},
		"a comment":                   {"echo", "// note"},
		"a request":                   {"echo", "GET /health"},
		"a first line":                {"echo", "#!/bin/sh"},
		"a program's tag":             {"python3", "main.py", "</h1>"},
		"a program's comment":         {"python3", "main.py", "// note"},
		"a program's request":         {"python3", "main.py", "GET /health", "--method=GET /health"},
		"a program's JSON":            {"python3", "main.py", `{"path": "/errors", "all": ["/a/b"]}`},
		"a program's JSON string":     {"python3", "main.py", `"/errors"`},
		"a program's script":          {"python3", "main.py", "#!/usr/bin/env python3\nprint(1)"},
		"a module's argument":         {"python3", "-m", "tool", `{"a": "/errors"}`},
		"an argument after -c":        {"python3", "-c", "print('</h1>', 1 / 2)", "GET /health"},
		"a script file's argument":    {"bash", "run.sh", "GET /health", `{"a": "/errors"}`},
		"an argument after sh -c":     {"sh", "-c", `echo "$1"`, "sh", "GET /health"},
		"grep's first line":           {"grep", "-n", "#!/bin/sh", "x"},
		"grep's tag":                  {"grep", "</h1>", "x"},
		"find's grep":                 {"find", ".", "-exec", "grep", "-n", "// note", "{}", "+", "-name", "*.js"},
		"curl's data":                 {"curl", "-s", "-H", "Referer: /x", "--json", `{"path": "/errors"}`, "http://127.0.0.1:8000/health"},
		"a shell's tag":               {"bash", "-c", `echo "<p>$f</p>" > index.html`},
		"a shell's comment":           {"bash", "-c", "# see /etc/passwd, it's no path\nls # / and /usr/bin"},
		"a shell's text":              {"bash", "-c", `echo '// note' >> a.js; printf 'GET /health\n' > req`},
		"a shell's first line":        {"sh", "-c", `echo '#!/bin/sh' > a; printf '#!/usr/bin/env python3\nprint(1 / 2)\n' > b`},
		"a shell's division":          {"bash", "-c", "echo $((6 / 2))"},
		"a shell's JSON":              {"bash", "-c", `echo '{"path": "/errors"}' > x; curl -d '{"path": "/errors"}' http://127.0.0.1:8000/x`},
		"a shell's patterns":          {"bash", "-c", `grep -rn "/api/v1" . | sed -n '/x/,/y/p' | awk '/re/ {print $1 / 2}'; xargs grep "GET /x"`},
		"a shell's separators":        {"bash", "-c", `cut -d/ -f2 x | sort -t/ -k2 | tr / _; IFS=/ read -r a b <<< "$x"`},
		"a shell's case":              {"bash", "-c", `case "$1" in /*) echo absolute;; *) echo relative;; esac`},
		"a shell's Python":            {"bash", "-c", `python3 -c 'print("/errors", 1 / 2)'`},
		"a shell with options":        {"bash", "-euo", "pipefail", "-c", "echo '</h1>'"},
		"a shell in a shell":          {"bash", "-c", `sh -c 'echo "GET /health"'`},
		"a here-document":             {"bash", "-c", "cat > a.html <<'END'\n<h1>x</h1>\n<br />\n/usr/share and ../x, it's text\nEND\nls"},
		"a script in a here-document": {"bash", "-c", "cat > run.sh <<'END'\n#!/bin/sh\n#! /bin/sh\ncat /etc/passwd\nEND\nsh run.sh"},
		"one with expansions":         {"sh", "-c", "tee run.sh > /dev/null <<END\n#!/bin/sh\n$HOME /usr/lib\nEND\n"},
		"one that another reads":      {"bash", "-c", "cat <<END | grep x\n#!/bin/sh\n// note\n</h1>\nEND\n"},
		"one that Python runs":        {"bash", "-c", "python3 - <<'END'\nprint('</h1>', 6 / 2, '/errors')\nEND\n"},
		"several":                     {"bash", "-c", "cat > a <<A; cat > b <<-'B'\n/etc/x\nA\n\t/etc/y\n\tB\nls"},
	} {
		if err := c.check(); err != nil {
			t.Errorf("%s: %q: %v", name, c, err)
		}
	}
}

// TestTextThatIsOpened: text that a command opens, or runs, is a path all the same.
func TestTextThatIsOpened(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]cmd{
		"a program's path":            {"python3", "main.py", "/data/my file"},
		"a program's root":            {"python3", "main.py", "//"},
		"a program's option":          {"python3", "main.py", "--x=/data"},
		"a program's letters":         {"python3", "main.py", "-x/data"},
		"a program's file":            {"python3", "main.py", "@/data"},
		"a program's variable":        {"python3", "main.py", "X=/data"},
		"a program's sibling":         {"python3", "main.py", root + "c d"},
		"a sibling with a space":      {"python3", "main.py", root + " c/x"},
		"a program's known folder":    {"python3", "main.py", "GET /etc/passwd"},
		"a program's first line":      {"python3", "main.py", "#!/etc/passwd"},
		"what is not a first line":    {"python3", "main.py", "x #! /bin/sh"},
		"a module's path":             {"python3", "-m", "http.server", "-d", "/data"},
		"a script file's path":        {"bash", "run.sh", "/data"},
		"an argument after sh -c":     {"bash", "-c", `cat "$0"`, "/data"},
		"a shell's file of commands":  {"bash", "--rcfile", "/data", "-i"},
		"curl's data from a file":     {"curl", "-d", "@/data/x", "http://127.0.0.1/"},
		"curl's headers from a file":  {"curl", "-H", "@/data/x", "http://127.0.0.1/"},
		"find's file":                 {"find", ".", "-exec", "grep", "x", "{}", ";", "-newer", "/data"},
		"find's command's file":       {"find", ".", "-exec", "cat", "/data/x", ";"},
		"find's shell":                {"find", ".", "-exec", "sh", "-c", "cat /data/x", ";"},
		"find's sed":                  {"find", ".", "-exec", "sed", "1r/etc/passwd", "{}", ";"},
		"find's other command":        {"find", ".", "-exec", "tail", "x:/data", ";"},
		"a shell's quoted file":       {"bash", "-c", `cat "/data/my x"`},
		"a shell's quoted root":       {"bash", "-c", `find '/' -name x`},
		"a shell's folder":            {"bash", "-c", "cd / && ls"},
		"a shell's other command":     {"bash", "-c", "tail -n5 /data/x"},
		"a shell's option":            {"bash", "-c", "tail --file=/data/x"},
		"a shell's wrapper":           {"bash", "-c", "env -i cat /data/x"},
		"a shell's program":           {"bash", "-c", "/data/x"},
		"a shell's redirection":       {"bash", "-c", `cat < "/data"`},
		"a shell's variable":          {"bash", "-c", "export X=/data; cat $X"},
		"a shell's list":              {"bash", "-c", "a=(/data/x); cat ${a[0]}"},
		"a shell's loop":              {"bash", "-c", "for f in /data/*; do cat $f; done"},
		"a shell's source":            {"bash", "-c", ". /data/x"},
		"a shell in a shell":          {"bash", "-c", `bash -c "bash -c 'cat /data/x'"`},
		"a shell's evaluation":        {"bash", "-c", "eval 'cat /data/x'; ls"},
		"a shell's trap":              {"bash", "-c", "trap 'cat /data/x' EXIT"},
		"a shell by another command":  {"bash", "-c", "ls | xargs -I{} timeout 5 sh -c 'cat /data/x'"},
		"a shell's separator":         {"bash", "-c", "cut -d/ -f1 /data/x"},
		"no comment":                  {"bash", "-c", `cat x#! /bin/sh`},
		"no comment after quotes":     {"bash", "-c", `cat ''#! /bin/sh`},
		"a quoted number sign":        {"bash", "-c", `echo "a #"; cat /etc/x`},
		"an expansion's number sign":  {"bash", "-c", `: ${x#y} /etc/x`},
		"a comment of bash only":      {"sh", "-c", `echo $'\'' #' ; cat /etc/x`},
		"a here-document of sh":       {"bash", "-c", "sh <<'END'\nrm -rf /\nEND"},
		"one that sh reads":           {"bash", "-c", "cat <<'END' | sh\nls /\nEND"},
		"one that sh reads, known":    {"bash", "-c", "cat <<'END' | sh\ncat /etc/passwd\nEND"},
		"one in a group":              {"bash", "-c", "{ cat <<'END'\nls /\nEND\n} | sh"},
		"one in a function":           {"bash", "-c", "f() { cat <<'END'\ncat /etc/passwd\nEND\n}; f | sh"},
		"one that is evaluated":       {"bash", "-c", "eval \"$(cat <<'END'\ncat /etc/passwd\nEND\n)\""},
		"one of another cat":          {"bash", "-c", "cat() { sh; }\ncat <<'END'\ncat /etc/passwd\nEND"},
		"one for a process":           {"bash", "-c", "cat <<'END' > >(sh)\nls /\nEND"},
		"one for a process, tee":      {"bash", "-c", "tee >(sh) <<'END'\ncat /etc/passwd\nEND"},
		"one that expands":            {"bash", "-c", "cat <<END\n$(cat /etc/passwd)\nEND"},
		"one that expands, quotes":    {"bash", "-c", "cat <<END\n`cat /data/x`\nEND"},
		"one that Python runs":        {"bash", "-c", "python3 - <<'END'\nopen('/etc/passwd')\nEND"},
		"after one":                   {"bash", "-c", "cat <<E\nE\ncat /etc/x"},
		"after one with tabs":         {"bash", "-c", "cat <<-'E'\n\tE\ncat /etc/x"},
		"after one in one of bash":    {"bash", "-c", "bash <<'X'\ncat <<'E'\nX\ncat /etc/passwd\nE\n"},
		"a script that has no end":    {"bash", "-c", "cat <<'E'\n// note\n"},
		"a script that is too long":   {"bash", "-c", "echo '// note'" + strings.Repeat(";ls", 20_000)},
		"one with too many brackets":  {"bash", "-c", "echo '// note' " + strings.Repeat("(", 100_000)},
		"the root after the division": {"bash", "-c", "ls $((1)) /"},
	} {
		if err := c.check(); !fault.Is(err, fault.PathRefused) {
			t.Errorf("%s: %q: %v", name, c, err)
		}
	}
}

// TestRefusalNamesTheWayOut: what to do with text that is no path depends on the command.
func TestRefusalNamesTheWayOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cmd  cmd
		says string
	}{
		{cmd{"bash", "-c", "echo '/usr/lib is full'"}, "here-document (cat > FILE <<'END')"},
		{cmd{"python3", "-c", "print('/etc/x')"}, "put the program into a file"},
		{cmd{"python3", "main.py", "see /etc/x"}, "put the text into a file"},
		{cmd{"echo", "see .. below"}, "put the text into a file"},
		{cmd{"cat", "/etc/x"}, "write paths relative to it, or below " + root},
	} {
		if err := c.cmd.check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: no %q in %v", c.cmd, c.says, err)
		}
	}
}

// TestWaysOutWork: the remedies that refusals name are accepted.
func TestWaysOutWork(t *testing.T) {
	t.Parallel()
	for _, c := range []cmd{
		{"bash", "-c", "cat > FILE <<'END'\n/usr/lib is full; see ../x\nEND"},
		{"python3", "FILE"},
		{"sed", "-f", "FILE", "x"},
		{"awk", "-f", "FILE", "x"},
		{"grep", "-f", "FILE", "x"},
		{"bash", "FILE"},
		{"python3", "main.py", "@FILE"},
		{"curl", "-d", "@FILE", "http://127.0.0.1/"},
	} {
		if err := confine.Check(c[0], c[1:], root); err != nil {
			t.Errorf("%q: %v", c, err)
		}
	}
}
