// Package confine checks the commands of restricted execute: the command must be on the list of allowed ones, and its arguments must stay in
// its working directory. The package must not know skills or containers.
//
// The scan is not the security boundary. That is the container, which has one project, no network, no privileges and no other user's files.
// The scan refuses mistakes (a path of another skill, of the host, of the system) before the command runs, with a message that says what to
// write instead, and makes sure that no argument alone leads out of a skill's folder.
//
// It guarantees, for every command that is not an interpreter: an accepted argument names no path outside of the root, whether the command takes
// it as it is, or after a = : , @ quote or space, or after the letters of a short option, as a file: URL, or with backslashes for slashes.
// Links are left to the container.
//
// It is heuristic for programs. bash, sh, awk, sed, grep and python3 take texts in which a slash may be a division or the delimiter of a
// regular expression, and which can build any path at run time. In a shell's text every word is checked like an argument, also with quotes
// removed; variables are not expanded. In the programs of awk, sed, grep and python3 -c a path counts only if its first component is one of
// the top-level folders of Linux systems; in sed's, also after the letter of a command or flag that takes a file, as in r/etc/passwd and
// s/a/b/w../x. In all of them, /dev/null and the standard streams are allowed. Program files are not read.
package confine

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"secbox/fault"
)

// Bounds of one command. Linux accepts no argument longer than MaxArgBytes.
const (
	MaxArgs     = 1024
	MaxArgBytes = 128<<10 - 1
	MaxAllBytes = 1 << 20 // of all arguments
)

// Commands returns the allowed commands, in the order of the documentation.
func Commands() []string {
	return []string{
		"python3", "pip", "pip3", "bash", "sh", "ls", "cat", "grep", "sed", "awk", "echo", "cp", "mv", "rm", "mkdir", "find", "curl",
	}
}

// Check checks a command that will run with root, an absolute and clean path in the container, as its working directory. Absolute paths may
// also lead into the directories also. It returns fault.InvalidRequest for an impossible command, and fault.PathRefused for an argument that
// leads elsewhere. Both name the field, command or args[i], and the remedy.
func Check(command string, args []string, root string, also ...string) error {
	for _, dir := range append([]string{root}, also...) {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || strings.ContainsRune(dir, 0) {
			return fault.New(fault.Internal, "%q is no directory to confine a command to", dir)
		}
	}
	if !slices.Contains(Commands(), command) {
		return fault.BadField("command", "%s is not allowed; use one of %s", shown(command), strings.Join(Commands(), ", "))
	}
	if len(args) > MaxArgs {
		return fault.BadField("args", "are %d, more than %d; put them into a file", len(args), MaxArgs)
	}
	all := 0
	for i, arg := range args {
		all += len(arg)
		switch {
		case strings.ContainsRune(arg, 0):
			return fault.BadField(field(i), "contains NUL, which no command can be given")
		case len(arg) > MaxArgBytes:
			return fault.BadField(field(i), "has %d bytes, more than %d; put it into a file", len(arg), MaxArgBytes)
		case all > MaxAllBytes:
			return fault.BadField("args", "have more than %d bytes; put them into files", MaxAllBytes)
		}
	}
	kinds := kindsOf(command, args)
	for i, arg := range args {
		if why := check(arg, kinds[i], command, root, also); why != "" {
			e := fault.BadField(field(i), "%s", why)
			e.Code = fault.PathRefused
			return e
		}
	}
	return nil
}

// check reads an argument in every way that the command may; it returns the reason to refuse it, or empty.
func check(arg string, k kind, command, root string, also []string) string {
	s := scan{root: root, also: also, kind: k}
	why := s.read(arg)
	if why == "" && k == script {
		s.unquoted = true
		why = s.read(strings.NewReplacer(`'`, "", `"`, "", `\`, "").Replace(arg))
	}
	if why == "" && (command == "sed" || k == script && strings.Contains(arg, "sed")) {
		why = s.sedFiles(arg)
	}
	if why == "" && command == "curl" && strings.ContainsRune(arg, '%') {
		why = s.read(percentDecoded(arg))
	}
	return why
}

// percentDecoded decodes an argument as curl does with the path of a URL. Invalid escapes stay.
func percentDecoded(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
