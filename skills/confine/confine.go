// Package confine judges the commands of restricted execute: whether a command is on the white-list and whether its arguments stay in
// the directory that the command is run in.
//
// The scan is a courtesy with teeth, not the wall. The wall is the container: it sees one project, has no network, no privileges and
// nobody else's files. What the scan adds is that a mistake (a path of another skill, of the host, of the system) is refused before it
// runs, with a sentence that says what to write instead, and that nobody gets out of a skill's folder by an argument alone.
//
// What it promises, for every command that is no interpreter: an argument that is accepted names no path outside of the root, whether the
// command takes it as it stands, behind a = or : or , or @ or a quote or a space, behind the letters of a short option, as a file: URL,
// or with backslashes for slashes. Links are the container's affair.
//
// What is heuristic: programs. bash, sh, awk, sed, grep and python3 take texts in which a slash may be a division or the edge of a
// regular expression, and which can build any path at run time. In a shell's text every word is judged like an argument, after quotes are
// taken away too; variables are not followed. In the programs of awk, sed, grep and of python3 -c a path counts only when its first
// component is one of the top-level folders that a Linux system has; in sed's, also behind the letter of a command or flag that takes a
// file, as in r/etc/passwd and s/a/b/w../x. In all of them, /dev/null and the standard streams are allowed. Files of programs are not read.
package confine

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"secbox/fault"
)

// Bounds of one command. Linux takes no argument longer than MaxArgBytes.
const (
	MaxArgs     = 1024
	MaxArgBytes = 128<<10 - 1
	MaxAllBytes = 1 << 20 // of all arguments
)

// Commands are the commands that may be run, in the order of the contract.
func Commands() []string {
	return []string{
		"python3", "pip", "pip3", "bash", "sh", "ls", "cat", "grep", "sed", "awk", "echo", "cp", "mv", "rm", "mkdir", "find", "curl",
	}
}

// Check judges a command that is to be run with root as its working directory, an absolute, clean path as the container sees it; also are
// further directories that absolute paths may lead into. It returns nil, or fault.InvalidRequest for what can be no command, or
// fault.PathRefused for an argument that leads out of all of them. Both name the field, command or args[i], and say what to write instead.
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
		if why := judge(arg, kinds[i], command, root, also); why != "" {
			e := fault.BadField(field(i), "%s", why)
			e.Code = fault.PathRefused
			return e
		}
	}
	return nil
}

// judge reads an argument in every way that the command may; a sentence when one of them leads out.
func judge(arg string, k kind, command, root string, also []string) string {
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

// percentDecoded is the argument as curl reads the path of a URL; what is no escape stays.
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
