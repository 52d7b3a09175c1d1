package confine_test

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"secbox/fault"
	"secbox/packages/confine"
)

// ends are the characters behind which some command or other begins to read a path, and at which it
// may stop.
const ends = "=:,;|&<>([{!'\"`@#^$ \t\r\n"

// readings are the paths that a command which is not an interpreter may take an argument for: all
// of it; what follows one of the ends, up to the next one or up to the argument's end; and of each
// of these, what follows the letters of an option.
func readings(arg string) []string {
	all := []string{arg}
	for i := range len(arg) {
		if strings.IndexByte(ends, arg[i]) < 0 {
			continue
		}
		rest := arg[i+1:]
		if arg[i] == ':' && strings.HasPrefix(rest, "//") && web.MatchString(arg[:i+1]) {
			continue // a web server's path
		}
		all = append(all, rest)
		if next := strings.IndexAny(rest, ends); next >= 0 {
			all = append(all, rest[:next])
		}
	}
	for _, r := range all {
		if !strings.HasPrefix(r, "-") {
			continue
		}
		letters := strings.TrimLeft(r, "-")
		all = append(all, letters)
		for letters != "" && letter.MatchString(letters) {
			letters = letters[1:]
			all = append(all, letters)
		}
	}
	return all
}

var letter = regexp.MustCompile(`^[A-Za-z0-9]`)

var web = regexp.MustCompile("(?i)(^|[=:,;|&<>([{!'\"`@#^$\x00-\x20\x7f])https?:$")

// escapes resolves a reading against the root and reports whether the result is outside, with
// slashes or backslashes.
func escapes(reading string) bool {
	inside := func(p string) bool { return p == root || strings.HasPrefix(p, root+"/") }
	resolve := func(p string) string {
		if path.IsAbs(p) {
			return path.Clean(p)
		}
		return path.Join(root, p)
	}
	relative := strings.TrimLeft(strings.ReplaceAll(reading, `\`, "/"), "/") // a backslash at the beginning is not a root in the container
	return !inside(resolve(reading)) || !inside(path.Join(root, relative)) && !path.IsAbs(reading)
}

// mentions finds the plainest ways in which a program names a path elsewhere.
var mentions = regexp.MustCompile(`(^|[\s=:,;(<>@|&])/(etc|proc|tmp|usr/lib|workspace/work/skills/abc)(/|$|[\s;)|&<>])`)

// checkMessage checks that an accepted argument stays inside, and that a refused one has a proper
// message.
func checkMessage(command string, args []string) error {
	err := confine.Check(command, args, root)
	if err != nil {
		f := fault.From(err)
		if f.Code != fault.PathRefused && f.Code != fault.InvalidRequest || len(f.Fields) != 1 || f.Fields[0].Reason == "" {
			return fmt.Errorf("not a refusal that names its field: %w", err)
		}
		return nil
	}
	for i, arg := range args {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("NUL in %q was taken", arg)
		}
		if command == "bash" || command == "sh" {
			arg = beforeText(arg)
		}
		for name := range strings.FieldsFuncSeq(arg, func(r rune) bool { return strings.ContainsRune(ends+`/\`, r) }) {
			if name == ".." {
				return fmt.Errorf("%q goes up", arg)
			}
		}
		switch command {
		case "bash", "sh", "awk", "sed", "grep", "python3", "echo":
			if found := mentions.FindString(arg); found != "" {
				return fmt.Errorf("%s: %q mentions %q", command, arg, found)
			}
			continue
		case "curl", "find": // whose later arguments are also texts and commands
			if i > 0 {
				continue
			}
		}
		for _, r := range readings(arg) {
			if escapes(r) {
				return fmt.Errorf("%s: %q, read as %q, leads out", command, arg, r)
			}
		}
	}
	return nil
}

// beforeText returns a script up to the first thing that may be a comment or a here-document, which
// are texts.
func beforeText(script string) string {
	for _, begin := range []string{"#", "<<"} {
		if before, _, found := strings.Cut(script, begin); found {
			script = before + begin
		}
	}
	return script
}

// checkArguments checks arguments, also as the script of a shell.
func checkArguments(command string, args []string) error {
	if command == "bash" || command == "sh" {
		return errors.Join(checkMessage(command, args), checkMessage(command, append([]string{"-c"}, args...)))
	}
	return checkMessage(command, args)
}

func TestAcceptedArgumentsStayInside(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"/", "//", "..", ".", "\\", "-", "--", "=", ":", ",", "@", "file:", "file://", "http:", "https://", "~", "'", "\"",
		" ", "\n", "{", "}", "(", ")", "[", "]", "*", "?", "%2e", "%2f", "e", "-f", "etc", "x", "天", "/etc/x", "/tmp", root,
		root + "c", "/workspace/work/skills", "/workspace/work/skills/ab/", "s/a/b/", "$", "$(", "`", ";", "&&", "|", "<", ">",
		"#", "^", "!", "+", "_", "\x00", "\xff",
	})
	arg := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 7).Draw(t, "pieces"), "") })
	rapid.Check(t, func(t *rapid.T) {
		command := rapid.SampledFrom(confine.Commands()).Draw(t, "command")
		if err := checkArguments(command, rapid.SliceOfN(arg, 0, 4).Draw(t, "args")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPathsBelowTheRootAreAccepted checks that the scan does not refuse clearly valid paths.
func TestPathsBelowTheRootAreAccepted(t *testing.T) {
	t.Parallel()
	name := rapid.StringMatching(`[A-Za-z0-9_天气.][A-Za-z0-9_天气.+%-]{0,8}`).Filter(func(s string) bool { return strings.Trim(s, ".%") != "" })
	rapid.Check(t, func(t *rapid.T) {
		command := rapid.SampledFrom(confine.Commands()).Draw(t, "command")
		p := strings.Join(rapid.SliceOfN(name, 1, 4).Draw(t, "names"), "/")
		p = rapid.SampledFrom([]string{"", "./", root + "/"}).Draw(t, "front") + p + rapid.SampledFrom([]string{"", "/", "/."}).Draw(t, "end")
		p = rapid.SampledFrom([]string{"", "--f=", "@", "a=@", "x:"}).Draw(t, "option") + p
		if command == "curl" && strings.Contains(p, "%") {
			p = strings.ReplaceAll(p, "%", "") // may be an escape
		}
		if err := confine.Check(command, []string{"a", p}, root); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzCheck(f *testing.F) {
	f.Add("cat", "--f=/etc/x", "-f/etc/x")
	f.Add("curl", "-d@"+root+"/x", "https://example.org/a")
	f.Add("bash", "-c", `cat "$d"/x && grep -f./y z`)
	f.Add("sed", "-e", "/re/d")
	f.Add("awk", "-F/", "/re/ {print $1 / 2}")
	f.Add("grep", "-rne", "/api")
	f.Fuzz(func(t *testing.T, command, first, second string) {
		if !slices.Contains(confine.Commands(), command) {
			command = confine.Commands()[len(command)%len(confine.Commands())]
		}
		if err := checkArguments(command, []string{first, second}); err != nil {
			t.Fatal(err)
		}
	})
}
