package view

import (
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/runner"
)

// Column is a column of the history.
type Column struct {
	Name    string // in the address
	Label   string
	Class   string
	Initial bool // shown unless the address has other columns
	Cell    func(rec audit.Record, names map[string]string) templ.Component
}

// inCard is the label beside a cell on a narrow page, where a row is a card; empty for a cell that
// needs none.
func (c Column) inCard() string {
	if c.Name == "status" || c.Name == "command" || c.Name == "duration" {
		return ""
	}
	return c.Label
}

func textCell(value func(audit.Record) string) func(audit.Record, map[string]string) templ.Component {
	return func(rec audit.Record, _ map[string]string) templ.Component { return ui.Text(value(rec)) }
}

// allColumns are in the order in which they are shown. The time, which leads to the exec, is always
// there.
var allColumns = []Column{
	{
		Name: "status", Label: "Status", Initial: true,
		Cell: func(rec audit.Record, _ map[string]string) templ.Component { return ui.Status(rec.Status) },
	},
	{
		Name: "command", Label: "Command", Class: "cut", Initial: true,
		Cell: func(rec audit.Record, _ map[string]string) templ.Component { return commandCell(rec) },
	},
	{Name: "reason", Label: "Reason", Initial: true, Cell: textCell(func(r audit.Record) string { return string(r.ErrorReason) })},
	{Name: "exit", Label: "Exit", Class: "num", Cell: textCell(exitCode)},
	{Name: "duration", Label: "Duration", Class: "num nowrap", Initial: true, Cell: textCell(func(r audit.Record) string {
		if r.EndedAt.IsZero() || r.StartedAt.IsZero() {
			return ""
		}
		return ui.Duration(r.DurationMS)
	})},
	{Name: "project", Label: "Project", Initial: true, Cell: textCell(func(r audit.Record) string { return r.ProjectID })},
	{Name: "user", Label: "User", Initial: true, Cell: textCell(func(r audit.Record) string { return r.UserID })},
	{Name: "agent", Label: "Agent", Cell: textCell(func(r audit.Record) string { return r.AgentID })},
	{Name: "task", Label: "Task", Cell: textCell(func(r audit.Record) string { return r.TaskID })},
	{Name: "conversation", Label: "Conversation", Cell: textCell(func(r audit.Record) string { return r.ConversationID })},
	{Name: "skill", Label: "Skill", Initial: true, Cell: textCell(func(r audit.Record) string { return r.SkillID })},
	{Name: "token", Label: "Requested by", Cell: func(rec audit.Record, names map[string]string) templ.Component {
		return ui.Text(TokenName(names, rec.RequestedBy))
	}},
	{Name: "backend", Label: "Backend", Cell: textCell(func(r audit.Record) string { return r.Backend })},
	{Name: "node", Label: "Node", Cell: textCell(func(r audit.Record) string { return r.NodeID })},
	{Name: "image", Label: "Image", Cell: textCell(func(r audit.Record) string { return r.Image })},
	{
		Name: "output", Label: "Output", Class: "num nowrap",
		Cell: textCell(func(r audit.Record) string { return ui.Bytes(r.StdoutBytes + r.StderrBytes) }),
	},
}

// Columns returns the columns of a comma-separated list of names, the initial ones for an empty
// list.
func Columns(list string, bad *fault.Fields) []Column {
	var names, known []string
	if list != "" {
		names = strings.Split(list, ",")
	}
	var out []Column
	for _, col := range allColumns {
		if slices.Contains(names, col.Name) || list == "" && col.Initial {
			out = append(out, col)
		}
		known = append(known, col.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			bad.Add("columns", "%q is no column; choose among %s", ui.Cut(name, 40), strings.Join(known, ", "))
			break
		}
	}
	return out
}

func exitCode(r audit.Record) string {
	if r.ExitCode == nil {
		return ""
	}
	return strconv.Itoa(*r.ExitCode)
}

// TokenName returns the name of a token, else its id.
func TokenName(names map[string]string, id string) string {
	if name := names[id]; name != "" {
		return name
	}
	return id
}

// command returns what ran as one text: the script of a shell or of Python, else the words.
func command(rec audit.Record) string {
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

// kinds returns what a command is run by.
func interpreter(rec audit.Record) string {
	switch {
	case rec.Kind == audit.KindChange:
		return "change of a file"
	case rec.Cmd == "bash":
		return runner.KindShell
	case rec.Cmd == "python":
		return runner.KindPython
	}
	return ""
}
