package confine_test

import (
	"slices"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/packages/confine"
)

const root = "/workspace/work/skills/ab"

// cmd is a command line as a test writes it: the command, then its arguments.
type cmd []string

func (c cmd) check() error { return confine.Check(c[0], c[1:], root) }

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]cmd{
		"another user's file":            {"cat", "/workspace/work/skills/abc"},
		"a sibling whose name goes on":   {"cat", "/workspace/work/skills/abc/x"},
		"a sibling after a space":        {"cat", "/workspace/work/skills/ab c/x"},
		"a sibling after a bracket":      {"cat", "/workspace/work/skills/ab)/x"},
		"the folder above":               {"ls", "/workspace/work/skills"},
		"the root of all":                {"ls", "/"},
		"slashes only":                   {"ls", "///"},
		"a long option":                  {"cat", "--f=/etc/x"},
		"a long option, quoted":          {"cat", `--f="/etc/x"`},
		"a long option without =":        {"cat", "--f/etc/x"},
		"a short option":                 {"cat", "-f/etc/x"},
		"short options":                  {"cp", "-rt/etc/x"},
		"a dash":                         {"cat", "-/etc/x"},
		"a second word":                  {"cat", "x /etc/x"},
		"a second line":                  {"cat", "x\n/etc/x"},
		"after a colon":                  {"cat", "x:/etc/x"},
		"after a comma":                  {"cat", "x,/etc/x"},
		"in a list of paths":             {"python3", "x.py", "lib:" + root + ":/usr/lib"},
		"in braces":                      {"cat", "{/etc/x,y}"},
		"in JSON":                        {"python3", "main.py", `{"file": "/etc/x"}`},
		"in a list":                      {"python3", "main.py", "[/etc/x]"},
		"a value of several":             {"python3", "main.py", "-Wl,-f/etc/x"},
		"two slashes":                    {"cat", "//etc/x"},
		"a dot":                          {"cat", "/./etc/x"},
		"under the root and out":         {"cat", root + "/../abc/x"},
		"under the root and out of all":  {"cat", root + "/../../../../etc/x"},
		"up":                             {"cat", "../abc/x"},
		"only up":                        {"ls", ".."},
		"down and up":                    {"cat", "a/../../x"},
		"down and up again":              {"cat", "a/../x"},
		"at the end":                     {"ls", "a/.."},
		"in an option":                   {"cat", "--f=../x"},
		"in a short option":              {"cat", "-f../x"},
		"in a short option, only up":     {"ls", "-C.."},
		"with backslashes":               {"cat", `..\x`},
		"with backslashes, down and up":  {"cat", `a\..\x`},
		"with both":                      {"cat", `a\../x`},
		"up in quotes":                   {"python3", "-c", `open("../x")`},
		"curl's file":                    {"curl", "-d@/etc/x"},
		"curl's file, apart":             {"curl", "-d", "@/etc/x"},
		"curl's form":                    {"curl", "-F", "a=@/etc/x;type=text/plain"},
		"curl's form, another":           {"curl", "-F", "a=</etc/x"},
		"a file URL":                     {"curl", "file:///etc/x"},
		"a file URL of a host":           {"curl", "file://localhost/etc/x"},
		"a file URL with one slash":      {"curl", "file:/etc/x"},
		"a file URL in upper case":       {"curl", "FILE:///etc/x"},
		"a file URL, escaped":            {"curl", "file:///%65tc/x"},
		"a file URL, escaped dots":       {"curl", "file://" + root + "/%2e%2E/x"},
		"a file URL, escaped slash":      {"curl", "file://" + root + "/..%2fx"},
		"a web address's user":           {"curl", "http://x@/etc/x"},
		"what only looks like one":       {"cat", "xhttp://etc/x"},
		"a web address and a file":       {"curl", "-o/etc/x", "http://example.org/x"},
		"a web address, going up":        {"curl", "http://example.org/a/../b"},
		"another scheme":                 {"curl", "ftp:///etc/x"},
		"a drive":                        {"cat", "C:/x"},
		"a pattern":                      {"cat", "/e?c/x"},
		"a pattern in the root":          {"cat", "/workspace/work/skills/a?/x"},
		"another case":                   {"cat", "/Workspace/work/skills/ab/x"},
		"a full-width slash and a slash": {"cat", "／/etc=/etc/x"},
		"cp to it":                       {"cp", "x", "/tmp/x"},
		"find's":                         {"find", "/", "-name", "x"},
		"find's, later":                  {"find", ".", "-newer", "/etc/x"},
		"find's command":                 {"find", ".", "-exec", "cat", "/etc/x", ";"},
		"pip's":                          {"pip", "install", "--target=/usr/lib", "x"},
		"echo's":                         {"echo", "a", "/", "b"},

		"a shell's file":         {"bash", "-c", "cat /etc/x"},
		"a shell's redirection":  {"sh", "-c", "echo x >/tmp/x"},
		"a shell's device":       {"bash", "-c", "cat </dev/tcp/127.0.0.1/80"},
		"a shell's stream and":   {"bash", "-c", "cat /dev/null/../x"},
		"a shell's other stream": {"bash", "-c", "cat /dev/nullx /dev/null/x"},
		"a stream as a file":     {"cat", "/dev/null"},
		"a shell's root":         {"bash", "-c", "rm -rf /"},
		"a shell's all":          {"bash", "-c", "rm -rf /*"},
		"a shell's quotes":       {"bash", "-c", `cat "/etc/x"`},
		"empty quotes":           {"bash", "-c", `cat ""/etc/x`},
		"quotes between dots":    {"bash", "-c", `cat .''./x`},
		"a backslash and a dot":  {"bash", "-c", `cat .\./x`},
		"a backslash and slash":  {"bash", "-c", `cat \/etc/x`},
		"a shell's home":         {"bash", "-c", "cat ~/x"},
		"a shell's user's home":  {"bash", "-c", "cat ~root/x"},
		"a shell's hidden dots":  {"sh", "-c", "cat .?/x"},
		"a shell's hidden stars": {"sh", "-c", "cat .*/x"},
		"a shell's braces":       {"bash", "-c", "cat {..,x}/y"},
		"a shell's substitution": {"bash", "-c", "$(/bin/cat x)"},
		"a shell's back quotes":  {"bash", "-c", "`/bin/cat x`"},
		"a shell's option":       {"bash", "-c", "grep -f/etc/x y"},
		"a shell's second":       {"bash", "-c", "cat " + root + "/x; cat /workspace/work/skills/abc/x"},
		"a shell's variable":     {"bash", "-c", "X=/etc; cat $X/x"},
		"an inner language":      {"bash", "-c", `python3 -c 'open(r"/etc/x")'`},
		"a script elsewhere":     {"bash", "/tmp/x.sh"},

		"awk's string":                 {"awk", `BEGIN { while ((getline line < "/etc/x") > 0) print line }`},
		"awk's command":                {"awk", `BEGIN { system("cat /etc/x") }`},
		"awk's second argument":        {"awk", "/re/ {print}", "/data/x"},
		"awk's file of a program":      {"awk", "-f", "/data/x"},
		"awk's variable":               {"awk", "-v", "x=/data/x", "{print}"},
		"awk's unknown option":         {"awk", "--exec", "/data/x"},
		"sed's read":                   {"sed", "r /etc/x", "y"},
		"sed's write":                  {"sed", "s/a/b/w /tmp/x", "y"},
		"sed's file":                   {"sed", "s/a/b/", "/data/x"},
		"sed's file after -e":          {"sed", "-e", "s/a/b/", "/data/x"},
		"sed's file before -e":         {"sed", "/data/x", "-e", "s/a/b/"},
		"sed's file before -n -e":      {"sed", "/data/x", "-ne", "p"},
		"sed's file before --exp":      {"sed", "/data/x", "--expression=p"},
		"sed's read behind an address": {"sed", "/import/r/etc/passwd", "y"},
		"sed's read behind a number":   {"sed", "1r/etc/passwd", "y"},
		"sed's read of the last line":  {"sed", "$!R/proc/self/environ", "y"},
		"sed's read in a block":        {"sed", "/x/I{p;r/etc/x\n}", "y"},
		"sed's write behind flags":     {"sed", "s/a/b/gIw/tmp/x", "y"},
		"sed's write of a range":       {"sed", "1,5w/tmp/x", "y"},
		"sed's command":                {"sed", "1e/bin/cat x", "y"},
		"sed's read, attached":         {"sed", "-ne1r/etc/x", "y"},
		"sed's read, unknown options":  {"sed", "-l", "5", "1r/etc/x", "y"},
		"sed's read, up":               {"sed", "1r../abc/x", "y"},
		"sed's write, up":              {"sed", "s/a/b/w../x", "y"},
		"sed's read, another's":        {"sed", "1r/workspace/work/skills/abc/x", "y"},
		"sed in a shell":               {"bash", "-c", "sed -n '1r/etc/passwd' y"},
		"find's written file":          {"find", ".", "-fprintf", "/tmp/x", "%p"},
		"cp's target":                  {"cp", "-t/tmp", "x"},
		"grep's patterns, attached":    {"grep", "-f/etc/x", "y"},
		"sed's suffix":                 {"sed", "-i/data/x", "p", "y"},
		"sed's script file":            {"sed", "-f/data/x", "y"},
		"sed's script file, apart":     {"sed", "-f", "/data/x", "y"},
		"grep's file":                  {"grep", "re", "/data/x"},
		"grep's file after -e":         {"grep", "-e", "re", "/data/x"},
		"grep's file after -rne":       {"grep", "-rne", "re", "/data/x"},
		"grep's file after -ere":       {"grep", "-ere", "/data/x"},
		"grep's file after --reg":      {"grep", "--regexp=re", "/data/x"},
		"grep's file after --reg2":     {"grep", "--reg", "re", "/data/x"},
		"grep's file before -e":        {"grep", "/data/x", "-e", "re"},
		"grep's patterns":              {"grep", "-f", "/data/x", "y"},
		"grep's value":                 {"grep", "-A", "/data/x", "re", "y"},
		"grep's after --":              {"grep", "--", "re", "/data/x"},
		"grep's known folder":          {"grep", "/etc/passwd", "x"},
		"python's file":                {"python3", "/data/x.py"},
		"python's string":              {"python3", "-c", "open('/etc/x')"},
		"python's raw string":          {"python3", "-c", "open(r'/etc/x')"},
		"python's pattern":             {"python3", "-c", "glob('/e*c/x')"},
		"python's argument":            {"python3", "-c", "print(1)", "/data/x"},
		"python's unknown option":      {"python3", "-Z", "-c", "/data/x"},
	} {
		err := c.check()
		f := fault.From(err)
		if !fault.Is(err, fault.PathRefused) || len(f.Fields) != 1 || !strings.HasPrefix(f.Fields[0].Field, "args[") {
			t.Errorf("%s: %q: %v", name, c, err)
			continue
		}
		if !strings.Contains(f.Message, "working directory") && !strings.Contains(f.Message, root) {
			t.Errorf("%s: no remedy: %s", name, f.Message)
		}
	}
}

func TestAllowed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]cmd{
		"the contract's example":     {"python3", "main.py", "--city", "Beijing"},
		"the contract's ls":          {"ls", "-la"},
		"nothing":                    {"ls"},
		"an empty argument":          {"echo", ""},
		"a file":                     {"cat", "a/b.txt"},
		"here":                       {"ls", ".", "./a", "./a//b/."},
		"the root":                   {"ls", root},
		"the root and a slash":       {"ls", root + "/"},
		"below the root":             {"cat", root + "/a b/c"},
		"untidily below the root":    {"cat", "//workspace/./work/skills//ab/x"},
		"in an option":               {"cat", "--f=" + root + "/x", "-f" + root + "/x"},
		"in a list":                  {"python3", "x.py", root + "/a:" + root + "/b," + root + "/c"},
		"names with dots":            {"cat", "...", "a..", "..a", "a..b", ".hidden", "a/.../b", "1..10"},
		"names with signs":           {"cat", "a+b/c", "100%/x", "a(1)/x", "b*/c", "*/x", "[ab]/x", "x~/y", "~"},
		"Unicode":                    {"cat", "天气/数据.txt", "ＡＢ／ｃ"},
		"a web address":              {"curl", "-sS", "https://example.org/a/b?c=d", "HTTP://example.org/"},
		"a web address in an option": {"curl", "--url=https://example.org/etc"},
		"one's own file":             {"curl", "-d", "@data/x", "file://" + root + "/x"},
		"find":                       {"find", ".", "-name", "*.py", "-exec", "grep", "-n", "x", "{}", "+"},
		"find's path":                {"find", ".", "-path", "./a/*", "-prune", "-o", "-print"},
		"echo":                       {"echo", "it's a/b, (c/d)"},
		"a media type":               {"curl", "-H", "Content-Type: text/plain"},
		"a backslash":                {"grep", `\bfoo\b`, "x"},
		"rm":                         {"rm", "-rf", "build"},

		"a shell":                    {"bash", "-c", "cd a && ls -l b/c | grep x > out.txt"},
		"a shell's own":              {"bash", "-lc", "cat " + root + "/x && cd " + root + "; ls"},
		"a shell's variables":        {"bash", "-c", `for d in *; do cat "$d"/x ${d}/y $d/z "$(pwd)"/w '1 2'/a; done`},
		"a shell's sed":              {"bash", "-c", "sed 's/a/b/; s/.*/x/' f"},
		"a shell's hidden files":     {"bash", "-c", "ls .git* '.*' .h?dden"},
		"a shell's script":           {"sh", "run.sh", "a", "b"},
		"a shell's streams":          {"bash", "-c", "ls a 2>/dev/null; echo x >/dev/stderr"},
		"awk's streams":              {"awk", `{print > "/dev/stderr"}`, "x"},
		"a shell's lone tilde":       {"bash", "-c", `awk '$1 ~ "x"' f`},
		"awk's pattern":              {"awk", "/re/ {print}", "x"},
		"awk's patterns":             {"awk", "/^[a-z]+$/ && !/x|y/ {print $1/2, a / b}", "x"},
		"awk's separator":            {"awk", "-F/", "{print $2}", "x"},
		"awk's separator, apart":     {"awk", "-F", "/", "-v", "n=1", "{print $n}", "x"},
		"awk's string of a slash":    {"awk", `{split($0, a, "/"); print a[1]}`, "x"},
		"awk's after --":             {"awk", "--", "/re/", "x"},
		"sed's substitution":         {"sed", "s/a/b/", "x"},
		"sed's slashes":              {"sed", `s/\/api\/v1/x/g`, "x"},
		"sed's address":              {"sed", "-n", "/re/,/end/p", "x"},
		"sed's deletion":             {"sed", "-i.bak", "/re/d", "x"},
		"sed's several":              {"sed", "-E", "-e", "/a/d", "-e", "s/b/c/", "-es/d/e/", "x"},
		"sed's option at the end":    {"sed", "/re/d", "x", "-i"},
		"sed's folder names":         {"sed", "-e", "s/src/lib/", "-e", "s/dev/prod/;s/home/x/g", "x"},
		"sed's own file":             {"sed", "1r" + root + "/x", "y"},
		"sed's own relative file":    {"sed", "/import/r header.txt", "y"},
		"sed's stream":               {"sed", "s/a/b/w/dev/stdout", "y"},
		"sed's words":                {"sed", "s/owner/etc/; s/her/var/", "x"},
		"sed's dots":                 {"sed", "s/fo../bar/; s/a.*/x/", "x"},
		"a date's format":            {"bash", "-c", "date +%Y/%m/%d"},
		"sed's other edge":           {"sed", "s|a|/b|", "x"},
		"grep's pattern":             {"grep", "-rn", "/api/v1", "."},
		"grep's pattern after -e":    {"grep", "-e", "/api", "-e", "/v1", "x"},
		"grep's pattern, long":       {"grep", "--recursive", "--include=*.py", "^/api", "."},
		"grep's pattern and context": {"grep", "-A", "3", "-B2", "/api", "x"},
		"grep's lone slash":          {"grep", "-c", "/", "x"},
		"python's division":          {"python3", "-c", "print(6 / 2, 7//2, '/api/v1')"},
		"python's, isolated":         {"python3", "-Ic", "print(1 / 2)", "a"},
	} {
		if err := c.check(); err != nil {
			t.Errorf("%s: %q: %v", name, c, err)
		}
	}
}

func TestImageAllowlist(t *testing.T) {
	t.Parallel()
	want := strings.Fields("python3 pip pip3 bash sh ls cat grep sed awk echo cp mv rm mkdir find curl")
	if !slices.Equal(confine.Commands(), want) {
		t.Errorf("the white-list is %v", confine.Commands())
	}
	for _, c := range want {
		if err := confine.Check(c, nil, root); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	for _, c := range []string{
		"", "tail", "python", "perl", "docker", "Bash", "LS", "ls ", " ls", "ls\n", "ls\x00", "/bin/ls", "./ls", "../ls", "bash -c", "l\u200bs", "ѕh", "sh;id",
		"env", "sudo",
		strings.Repeat("x", 1<<20),
	} {
		err := confine.Check(c, nil, root)
		f := fault.From(err)
		if !fault.Is(err, fault.InvalidRequest) || len(f.Fields) != 1 || f.Fields[0].Field != "command" || !strings.Contains(f.Message, "python3") ||
			len(f.Message) > 500 {
			t.Errorf("%.20q: %v", c, err)
		}
	}
}

func TestRefusedArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		field string
	}{
		"NUL":              {[]string{"a", "b\x00c"}, "args[1]"},
		"NUL before a way": {[]string{"\x00/etc/x"}, "args[0]"},
		"too long":         {[]string{strings.Repeat("a", confine.MaxArgBytes+1)}, "args[0]"},
		"too many":         {make([]string, confine.MaxArgs+1), "args"},
		"too much":         {slices.Repeat([]string{strings.Repeat("a", confine.MaxArgBytes)}, 9), "args"},
	} {
		err := confine.Check("cat", c.args, root)
		if f := fault.From(err); !fault.Is(err, fault.InvalidRequest) || len(f.Fields) != 1 || f.Fields[0].Field != c.field {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	if err := confine.Check("cat", []string{strings.Repeat("a", confine.MaxArgBytes)}, root); err != nil {
		t.Errorf("just as long as it may be: %v", err)
	}
	if err := confine.Check("cat", make([]string, confine.MaxArgs), root); err != nil {
		t.Errorf("just as many as there may be: %v", err)
	}
	err := confine.Check("cat", []string{"a", "b", "/" + strings.Repeat("x", 100_000)}, root)
	if f := fault.From(err); !fault.Is(err, fault.PathRefused) || f.Fields[0].Field != "args[2]" || len(f.Message) > 500 {
		t.Errorf("a long path: %.600v", err)
	}
}

func TestRoots(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "/", ".", "work", "/a/", "/a/../b", "//a", "/a\x00"} {
		if err := confine.Check("ls", nil, bad); !fault.Is(err, fault.Internal) {
			t.Errorf("root %q: %v", bad, err)
		}
	}
	// A skill's name may be of the characters that end words.
	for _, name := range []string{"天气 查询", "a=", "a:b", "it's", "a,b", "x(1)", "a=b c", "-f", "..."} {
		own := "/workspace/work/skills/" + name
		for _, args := range [][]string{{own}, {own + "/x"}, {"--f=" + own + "/x"}, {"-f" + own + "/x"}, {"x:" + own + "/y z"}} {
			if err := confine.Check("cat", args, own); err != nil {
				t.Errorf("root %q, %q: %v", own, args, err)
			}
		}
		for _, args := range [][]string{{own + "x"}, {own + " /x"}, {own + "x/y"}, {own + "/x:/etc/x"}, {own + "/../x"}, {own[:len(own)-1]}} {
			if err := confine.Check("cat", args, own); !fault.Is(err, fault.PathRefused) {
				t.Errorf("root %q, %q: %v", own, args, err)
			}
		}
	}
}
