package console

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

// column is a column of the history.
type column struct {
	name    string // in the address
	label   string
	class   string
	initial bool // shown unless the address has other columns
	cell    func(rec audit.Record, names map[string]string) templ.Component
}

// inCard is the label beside a cell on a narrow page, where a row is a card; empty for a cell that needs none.
func (c column) inCard() string {
	if c.name == "status" || c.name == "command" || c.name == "duration" {
		return ""
	}
	return c.label
}

func textCell(value func(audit.Record) string) func(audit.Record, map[string]string) templ.Component {
	return func(rec audit.Record, _ map[string]string) templ.Component { return ui.Text(value(rec)) }
}

// allColumns are in the order in which they are shown. The time, which leads to the exec, is always there.
var allColumns = []column{
	{name: "status", label: "Status", initial: true, cell: func(rec audit.Record, _ map[string]string) templ.Component { return ui.Status(rec.Status) }},
	{name: "command", label: "Command", class: "cut", initial: true, cell: func(rec audit.Record, _ map[string]string) templ.Component { return commandCell(rec) }},
	{name: "reason", label: "Reason", initial: true, cell: textCell(func(r audit.Record) string { return string(r.ErrorReason) })},
	{name: "exit", label: "Exit", class: "num", cell: textCell(exitCode)},
	{name: "duration", label: "Duration", class: "num nowrap", initial: true, cell: textCell(func(r audit.Record) string {
		if r.EndedAt.IsZero() || r.StartedAt.IsZero() {
			return ""
		}
		return ui.Duration(r.DurationMS)
	})},
	{name: "project", label: "Project", initial: true, cell: textCell(func(r audit.Record) string { return r.ProjectID })},
	{name: "user", label: "User", initial: true, cell: textCell(func(r audit.Record) string { return r.UserID })},
	{name: "agent", label: "Agent", cell: textCell(func(r audit.Record) string { return r.AgentID })},
	{name: "task", label: "Task", cell: textCell(func(r audit.Record) string { return r.TaskID })},
	{name: "conversation", label: "Conversation", cell: textCell(func(r audit.Record) string { return r.ConversationID })},
	{name: "skill", label: "Skill", initial: true, cell: textCell(func(r audit.Record) string { return r.SkillID })},
	{name: "token", label: "Requested by", cell: func(rec audit.Record, names map[string]string) templ.Component {
		return ui.Text(tokenName(names, rec.RequestedBy))
	}},
	{name: "backend", label: "Backend", cell: textCell(func(r audit.Record) string { return r.Backend })},
	{name: "node", label: "Node", cell: textCell(func(r audit.Record) string { return r.NodeID })},
	{name: "image", label: "Image", cell: textCell(func(r audit.Record) string { return r.Image })},
	{name: "output", label: "Output", class: "num nowrap", cell: textCell(func(r audit.Record) string { return ui.Bytes(r.StdoutBytes + r.StderrBytes) })},
}

// chosenColumns returns the columns of a comma-separated list of names, the initial ones for an empty list.
func chosenColumns(list string, bad *fault.Fields) []column {
	var names, known []string
	if list != "" {
		names = strings.Split(list, ",")
	}
	var out []column
	for _, col := range allColumns {
		if slices.Contains(names, col.name) || list == "" && col.initial {
			out = append(out, col)
		}
		known = append(known, col.name)
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

// tokenName returns the name of a token, else its id.
func tokenName(names map[string]string, id string) string {
	if name := names[id]; name != "" {
		return name
	}
	return id
}

// command returns what ran as one text: the script of a shell or of Python, else the words.
func command(rec audit.Record) string {
	if len(rec.Args) == 2 && (rec.Cmd == "bash" && rec.Args[0] == "-lc" || rec.Cmd == "python" && (rec.Args[0] == "-c" || rec.Args[0] == runner.CodeFile)) {
		return rec.Args[1]
	}
	words := []string{quoted(rec.Cmd)}
	for _, arg := range rec.Args {
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

func quoted(word string) string {
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
