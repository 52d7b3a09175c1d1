// Package confine checks the commands of restricted execute: the command must be on the list of
// allowed ones, and its arguments must stay in its working directory. The package must not know
// skills or containers.
//
// The scan is not the security boundary. That is the container, which has one project, no network,
// no privileges and no other user's files. The scan refuses mistakes (a path of another skill, of
// the host, of the system) before the command runs, with a message that says what to write instead,
// and makes sure that no argument alone leads out of a skill's folder.
//
// It guarantees, for the commands that open files and run nothing (ls, cat, cp, mv, rm, mkdir, pip,
// and curl and find but for what is named below): an accepted argument names no path outside of the
// root, whether the command takes it as it is, or after a = : , @ quote or space, or after the
// letters of a short option, as a file: URL, or with backslashes for slashes. Links are left to the
// container.
//
// For all commands: no argument has a component "..", but for what a shell only writes, and none
// names a path outside of the root whose first component is one of the top-level folders of Linux
// systems. /dev/null and the standard streams, and the interpreter in the first line of a script
// (#!/bin/sh), are allowed to those that take texts:
//
//   - Arguments of echo, of python3 FILE, python3 -m and python3 -c, of a shell's script, and
//     curl's data and headers are texts or paths, as the program likes. They must not be a path
//     elsewhere as a whole or as the value of an option: /x, --f=/x, -f/x, @/x. "</h1>", "GET
//     /health", "// note" and {"a": "/x"} are texts.
//   - The programs of awk, sed and python3 -c and the patterns of grep may have any other slashes.
//     In sed's, a path also follows the letter of a command or flag that takes a file, as in
//     r/etc/passwd and s/a/b/w../x.
//   - The script of a shell is parsed. Each command in it, also in find's -exec, is checked as if
//     it were the restricted one, and commands that are not on the list as python3 FILE is; so are
//     values of variables and targets of redirections. Expansions are not expanded. Comments,
//     patterns of case, and here-documents that cat or tee only write are texts that no command
//     opens; not those that a pipe, a substitution or a function may hand to a shell. In a script
//     that cannot be parsed, or is longer than 32 KiB, every word that begins with a slash is a
//     path.
//
// Texts can build any path at run time, and program files are not read.
package confine

import (
	"iter"
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

// Check checks a command that will run with root, an absolute and clean path in the container, as
// its working directory. Absolute paths may also lead into the directories also. It returns
// fault.InvalidRequest for an impossible command, and fault.PathRefused for an argument that leads
// elsewhere. Both name the field, command or args[i], and the remedy.
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
	s := scan{root: root, also: also}
	for i, why := range s.command(command, args) {
		e := fault.BadField(field(i), "%s", why)
		e.Code = fault.PathRefused
		return e
	}
	return nil
}

// command yields the reason to refuse each of the arguments that is refused.
func (s scan) command(command string, args []string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		kinds := kindsOf(command, args)
		for i, arg := range args {
			if why := s.as(kinds[i]).argument(command, arg); why != "" && !yield(i, why) {
				return
			}
		}
	}
}

// argument reads an argument in every way that the command may; it returns the reason to refuse it,
// or empty.
func (s scan) argument(command, arg string) string {
	if s.kind == script {
		return s.script(arg)
	}
	why := s.read(arg)
	if why == "" && (command == "sed" || command == "find" && s.kind == program) {
		why = s.sedFiles(arg)
	}
	if why == "" && command == "curl" && strings.ContainsRune(arg, '%') {
		why = s.read(percentDecoded(arg))
	}
	return why
}

// script reads a shell's script: all of its text, and each command as if it were the restricted
// one. If the script cannot be parsed, every absolute path in its text counts.
func (s scan) script(text string) string {
	shell, parsed := parseShell(text)
	if parsed {
		text, s.parsed = shell.text, true
	}
	why := s.read(text)
	if why == "" {
		unquoted := s
		unquoted.unquoted = true
		why = unquoted.read(strings.NewReplacer(`'`, "", `"`, "", `\`, "").Replace(text))
	}
	if why == "" && strings.Contains(text, "sed") {
		why = s.sedFiles(text)
	}
	if why != "" {
		return why
	}
	s.within = true
	for _, fed := range shell.fed {
		if why := s.as(script).script(fed); why != "" {
			return why
		}
	}
	for _, word := range shell.words {
		if why := s.as(value).read(word); why != "" {
			return why
		}
	}
	for _, call := range shell.calls {
		if why := s.as(value).read(call[0]); why != "" {
			return why
		}
		for _, why := range s.command(call[0], call[1:]) {
			return why
		}
		shell := slices.IndexFunc(call, func(word string) bool { return word == "sh" || word == "bash" })
		if shell <= 0 {
			continue
		}
		for _, why := range s.command(call[shell], call[shell+1:]) { // env sh -c …
			return why
		}
	}
	return ""
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
