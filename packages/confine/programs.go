package confine

import (
	"slices"
	"strings"
)

// grammar describes a command's options, to find the arguments that are programs. It must be
// certain: after an option that it does not know, every argument is checked as a plain one.
type grammar struct {
	flags  string   // options without a value
	rest   string   // options whose value, if any, is attached
	values string   // options with a value, attached or the next argument, that is not a program
	lax    string   // the options in values whose value may hold a single slash, as awk's separator
	code   string   // options whose value is a program
	long   []string // long options: "name" without a value, "name=" with an attached one
	inline bool     // the first operand is the program, unless there was a code option
}

func grammars(command string) (grammar, bool) {
	switch command {
	case "sed":
		return grammar{
			flags: "nrEsuz", rest: "i", code: "e", inline: true,
			long: []string{
				"quiet", "silent", "regexp-extended", "null-data", "separate", "unbuffered", "posix", "debug", "sandbox",
				"in-place", "in-place=",
			},
		}, true
	case "awk":
		return grammar{values: "Fv", lax: "F", inline: true}, true
	case "grep":
		return grammar{
			flags: "EFGPiyvwxcLloqshHnbTUzrRaI0123456789", values: "ABCmdD", code: "e", inline: true,
			long: []string{
				"ignore-case", "recursive", "line-number", "extended-regexp", "fixed-strings", "basic-regexp", "perl-regexp",
				"only-matching", "count",
				"files-with-matches", "files-without-match", "invert-match", "word-regexp", "line-regexp", "no-filename", "with-filename",
				"quiet",
				"no-messages", "text", "color", "color=", "include=", "exclude=", "exclude-dir=", "max-count=", "after-context=",
				"before-context=", "context=",
			},
		}, true
	case "python3":
		return grammar{flags: "IBEsSuOqvxbiPd", values: "WX", code: "cm"}, true
	case "cut": // these two only in scripts
		return grammar{flags: "nsz", values: "bcfd", lax: "d"}, true
	case "sort":
		return grammar{flags: "bcCdfghiMmnRrsuVz", values: "kotST", lax: "t"}, true
	}
	return grammar{}, false
}

// kindsOf returns the kind of every argument.
func kindsOf(command string, args []string) []kind {
	kinds := make([]kind, len(args))
	g, known := grammars(command)
	switch {
	case command == "bash" || command == "sh":
		if at := operandOfShell(args); at < len(args) {
			fill(kinds[at+1:], value)
			if runsText(args[:at]) {
				kinds[at] = script
			}
		}
	case command == "find":
		for i := 0; i < len(args); i++ {
			if !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, args[i]) || i+1 == len(args) {
				continue
			}
			own := args[i+2:]
			if end := slices.IndexFunc(own, func(a string) bool { return a == ";" || a == "+" }); end >= 0 {
				own = own[:end]
			}
			if slices.Contains(Commands(), args[i+1]) {
				copy(kinds[i+2:], kindsOf(args[i+1], own))
			}
			i += 1 + len(own)
		}
	case command == "curl":
		for i := 1; i < len(args); i++ {
			if slices.Contains([]string{"-d", "--data", "--data-ascii", "--data-binary", "--data-raw", "--json", "-H", "--header"},
				args[i-1]) {
				kinds[i] = value
			}
		}
	case command == "eval" || command == "trap":
		fill(kinds, script)
	case command == "tr": // opens no files
		fill(kinds, program)
	case known:
		g.find(args, kinds)
	case command == "echo" || !slices.Contains(Commands(), command): // in a script there are others
		fill(kinds, value)
	}
	return kinds
}

func fill(kinds []kind, k kind) {
	for i := range kinds {
		kinds[i] = k
	}
}

// operandOfShell returns the place of the first argument of bash or sh that is neither an option
// nor the value of one.
func operandOfShell(args []string) int {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--" || arg == "-":
			return i + 1
		case arg == "--rcfile" || arg == "--init-file":
			i++
		case strings.HasPrefix(arg, "--"):
		case len(arg) > 1 && (arg[0] == '-' || arg[0] == '+'):
			i += strings.Count(arg, "o") + strings.Count(arg, "O")
		default:
			return i
		}
	}
	return len(args)
}

// runsText reports whether one of a shell's options is -c, also among other letters.
func runsText(options []string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		return len(o) > 1 && o[0] == '-' && o[1] != '-' && strings.ContainsRune(o, 'c')
	})
}

// find marks the programs among the arguments.
func (g grammar) find(args []string, kinds []kind) {
	operand := -1 // the first one
	coded := false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if operand < 0 && arg == "--" {
			if i+1 < len(args) && g.inline && !coded {
				kinds[i+1] = program
			}
			return
		}
		if len(arg) < 2 || arg[0] != '-' {
			if operand < 0 {
				operand = i
				if !g.inline { // a file, followed by its arguments
					fill(kinds[i+1:], value)
					return
				}
				if !coded {
					kinds[i] = program
				}
			}
			continue
		}
		known, code, takesNext := g.option(arg)
		if operand >= 0 && (!known || code) { // sed and grep also take options after operands: then the operand may have been a file
			kinds[operand] = plain
		}
		switch {
		case !known:
			return
		case code:
			coded = true
			if takesNext {
				if i++; i < len(args) {
					kinds[i] = program
				}
			} else {
				kinds[i] = program // attached
			}
			if !g.inline { // the arguments after python3 -c are the program's
				fill(kinds[min(i+1, len(args)):], value)
				return
			}
		case g.lax != "" && strings.IndexByte(g.lax, arg[1]) >= 0:
			if kinds[i] = program; len(arg) == 2 {
				if i++; i < len(args) {
					kinds[i] = program
				}
			}
		case takesNext:
			i++
		}
	}
}

// option parses an argument that begins with a dash: whether it is known, whether its value is a
// program, and whether its value is the next argument.
func (g grammar) option(arg string) (known, code, takesNext bool) {
	if name, ok := strings.CutPrefix(arg, "--"); ok {
		before, _, valued := strings.Cut(name, "=")
		if valued {
			before += "="
		}
		return slices.Contains(g.long, before), false, false
	}
	for i := 1; i < len(arg); i++ {
		c, last := arg[i], i == len(arg)-1
		switch {
		case strings.IndexByte(g.flags, c) >= 0:
		case strings.IndexByte(g.rest, c) >= 0:
			return true, false, false
		case strings.IndexByte(g.code, c) >= 0:
			return true, true, last
		case strings.IndexByte(g.values, c) >= 0:
			return true, false, last
		default:
			return false, false, false
		}
	}
	return true, false, false
}
