package view

import (
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/runner"
	"secbox/workspace"
)

// ExecTitle says what an exec was asked to do, as one text: what a skill was asked, the script of a
// shell or of Python, the words of another command, the file of a change. It comes from clients.
func ExecTitle(rec audit.Record) string {
	switch {
	case rec.ErrorReason == audit.RefusalsOmitted:
		return "refusals without rows"
	case rec.Kind == audit.KindChange:
		return changeTitle(rec)
	case rec.Request != "":
		return rec.SkillID + ": " + question(arguments(rec.Request))
	case Unasked(rec):
		rec.Args = slices.Clone(rec.Args)
		for i, arg := range rec.Args {
			if inSkill(arg) {
				rec.Args[i] = arg[len(skillFolder)+skillDigest+1:]
			}
		}
		return rec.SkillID + ": " + command(rec)
	}
	return command(rec)
}

// Unasked reports whether a record of an invoke does not have what the skill was asked.
func Unasked(rec audit.Record) bool {
	return rec.Request == "" && rec.SkillID != "" && slices.ContainsFunc(rec.Args, inSkill)
}

// shells are the shells of users' sandboxes. They get the line of a command as their one argument.
var shells = []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh", "powershell.exe"}

func inShell(rec audit.Record) bool { return len(rec.Args) == 1 && slices.Contains(shells, rec.Cmd) }

// PageTitle is the beginning of ExecTitle for the heading of a page.
func PageTitle(rec audit.Record) string { return ui.Cut(onOneLine(ExecTitle(rec)), 60) }

// Paths of skills' files in a container: the folder, the digest of the skill, the file.
const (
	skillFolder = "/workspace/inputs/" + workspace.SkillFolders + "/"
	skillDigest = 64 // characters
)

func inSkill(arg string) bool {
	rest, ok := strings.CutPrefix(arg, skillFolder)
	return ok && len(rest) > skillDigest && rest[skillDigest] == '/'
}

// argument is an argument of a skill. Its value is a text, or any other JSON.
type argument struct {
	name, value string
	text        bool
}

// block reports whether the value needs a place of its own.
func (a argument) block() bool { return strings.Contains(a.value, "\n") || len(a.value) > 120 }

// ofOneLine returns the arguments that need no place of their own, without the one with a number.
func ofOneLine(args []argument, but int) (lines []argument) {
	for i, a := range args {
		if i != but && !a.block() {
			lines = append(lines, a)
		}
	}
	return lines
}

// arguments are the arguments of a request, in their order. A request that is no object is one
// argument without a name.
func arguments(request string) []argument {
	from := jsontext.NewDecoder(strings.NewReader(request), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if from.PeekKind() != '{' {
		return []argument{{value: request}}
	}
	var all []argument
	_, err := from.ReadToken()
	for err == nil && from.PeekKind() == '"' {
		var name jsontext.Token
		var value jsontext.Value
		if name, err = from.ReadToken(); err != nil {
			break
		}
		a := argument{name: name.String()}
		if value, err = from.ReadValue(); err == nil {
			a.value, a.text = textOf(value)
			all = append(all, a)
		}
	}
	if err != nil || from.PeekKind() != '}' { // it was changed in the database
		return []argument{{value: request}}
	}
	return all
}

// textOf returns a JSON string as its text, and other JSON as it is.
func textOf(value jsontext.Value) (text string, isText bool) {
	if value.Kind() != '"' {
		return string(value), false
	}
	unquoted, err := jsontext.AppendUnquote(nil, value)
	return string(unquoted), err == nil
}

// questions are names of arguments that say what a skill is asked to do, by which the built-in
// skills call them, and others.
var questions = []string{"code", "script", "command", "filter", "query", "pattern", "prompt", "url", "path"}

// asked returns the index of the argument that says what the skill is asked to do; -1: all do.
func asked(args []argument) int {
	for _, name := range questions {
		if i := slices.IndexFunc(args, func(a argument) bool { return a.name == name && a.text }); i >= 0 {
			return i
		}
	}
	if len(args) == 1 {
		return 0
	}
	return -1
}

// question puts arguments into one text, first the one that matters most.
func question(args []argument) string {
	var b strings.Builder
	first := asked(args)
	if first >= 0 {
		b.WriteString(args[first].value)
	}
	for i, a := range args {
		if i == first {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(" ")
		}
		value := a.value
		if a.text {
			value = ShellQuote(value)
		}
		b.WriteString(a.name + "=" + value)
	}
	if b.Len() == 0 {
		return "no arguments"
	}
	return b.String()
}

// RequestHas reports whether a value of a request has a text, which is in lower case, in any case.
func RequestHas(request, lower string) bool {
	quoted, _ := jsontext.AppendQuote(nil, lower) // the error reports invalid UTF-8, which is replaced
	written := string(quoted[1 : len(quoted)-1])
	// Only then may the text be written otherwise. Decoding takes longer.
	otherwise := strings.Contains(request, `\u`) || strings.Contains(request, `\/`)
	if !otherwise && !strings.Contains(strings.ToLower(request), written) {
		return false
	}
	from := jsontext.NewDecoder(strings.NewReader(request), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for {
		token, err := from.ReadToken()
		if err != nil {
			return false
		}
		if strings.Contains(strings.ToLower(token.String()), lower) {
			return true
		}
	}
}

// command returns what ran as one text: the script of a shell or of Python, else the words.
func command(rec audit.Record) string {
	if inShell(rec) {
		return rec.Args[0]
	}
	if len(rec.Args) == 2 && (rec.Cmd == "bash" && rec.Args[0] == "-lc" ||
		rec.Cmd == "python" && (rec.Args[0] == "-c" || rec.Args[0] == runner.CodeFile)) {
		return rec.Args[1]
	}
	words := []string{ShellQuote(rec.Cmd)}
	for _, arg := range rec.Args {
		words = append(words, ShellQuote(arg))
	}
	return strings.Join(words, " ")
}

// ShellQuote returns a word as a shell of POSIX reads it, in quotes if it needs them.
func ShellQuote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n\"'\\$`|&;<>()*?[]{}!#~") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// interpreter is what a command is run by.
func interpreter(rec audit.Record) string {
	switch {
	case rec.Kind == audit.KindChange:
		return ""
	case inShell(rec):
		return rec.Cmd + ", which got this as its one argument"
	case rec.Cmd == "bash":
		return runner.KindShell
	case rec.Cmd == "python":
		return runner.KindPython
	}
	return ""
}

// skillInput returns the input with the whole arguments of a skill; false if the record does not
// list it.
func skillInput(rec audit.Record) (audit.Input, bool) {
	i := slices.IndexFunc(rec.Inputs, func(in audit.Input) bool { return path.Dir(in.Path) == workspace.SkillInputs })
	if i < 0 {
		return audit.Input{}, false
	}
	return rec.Inputs[i], true
}

// requestNote says how the request of a record stands to the input whose digest the record has.
// altered: it is not what was sent.
func requestNote(rec audit.Record) (note string, altered bool) {
	in, ok := skillInput(rec)
	switch {
	case !ok:
		return "", false
	case in.Size > audit.MostRequest:
		return fmt.Sprintf("Shortened: the caller sent %s. The record has the digest of all of it, which is the input %s; "+
			"this beginning is not compared with it.", ui.Bytes(in.Size),
			path.Base(in.Path)), false
	case fmt.Sprintf("%x", sha256.Sum256([]byte(rec.Request))) == in.SHA256:
		return "As the caller sent it: the input on record has the same SHA-256.", false
	}
	return "This is not what the caller sent: the input on record has another SHA-256. The database was changed, and not by secbox.", true
}
