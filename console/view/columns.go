package view

import (
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
)

// Column is a column of the history.
type Column struct {
	Name    string // in the address
	Label   string
	Class   string
	Initial bool // shown unless the address has other columns
	Cell    func(p HistoryPage, rec audit.Record) templ.Component
}

// inCard is the label beside a cell on a narrow page, where a row is a card; empty for a cell that
// needs none.
func (c Column) inCard() string {
	if c.Name == "status" || c.Name == "command" || c.Name == "duration" {
		return ""
	}
	return c.Label
}

// filterCell is a value that leads to the rows with the same value of a parameter.
func filterCell(param string, value func(audit.Record) string) func(HistoryPage, audit.Record) templ.Component {
	return func(p HistoryPage, rec audit.Record) templ.Component {
		return valueCell(p, param, value(rec), value(rec))
	}
}

// execCell is a value that leads to a part of the page of the exec.
func execCell(value func(audit.Record) string, parts ...string) func(HistoryPage, audit.Record) templ.Component {
	return func(_ HistoryPage, rec audit.Record) templ.Component {
		return linkCell(ui.Link(append([]string{"execs", rec.ExecID}, parts...)...), value(rec))
	}
}

// allColumns are in the order in which they are shown. The time, which leads to the exec, is always
// there.
var allColumns = []Column{
	{
		Name: "status", Label: "Status", Initial: true,
		Cell: func(p HistoryPage, rec audit.Record) templ.Component { return statusCell(p, rec.Status) },
	},
	{
		Name: "command", Label: "Command", Class: "cut", Initial: true,
		Cell: func(_ HistoryPage, rec audit.Record) templ.Component { return execCommandCell(rec) },
	},
	{
		Name: "reason", Label: "Reason", Initial: true,
		Cell: filterCell("error_reason", func(r audit.Record) string { return string(r.ErrorReason) }),
	},
	{Name: "exit", Label: "Exit", Class: "num", Cell: execCell(exitCode)},
	{Name: "duration", Label: "Duration", Class: "num nowrap", Initial: true, Cell: execCell(func(r audit.Record) string {
		if r.EndedAt.IsZero() || r.StartedAt.IsZero() {
			return ""
		}
		return ui.Duration(r.DurationMS)
	})},
	{Name: "project", Label: "Project", Initial: true, Cell: filterCell("project_id", func(r audit.Record) string { return r.ProjectID })},
	{Name: "token", Label: "Requested by", Initial: true, Cell: func(p HistoryPage, rec audit.Record) templ.Component {
		return valueCell(p, "requested_by", rec.RequestedBy, TokenName(p.Names, rec.RequestedBy))
	}},
	{Name: "user", Label: "User", Initial: true, Cell: filterCell("user_id", func(r audit.Record) string { return r.UserID })},
	{Name: "agent", Label: "Agent", Cell: filterCell("agent_id", func(r audit.Record) string { return r.AgentID })},
	{Name: "task", Label: "Task", Cell: filterCell("task_id", func(r audit.Record) string { return r.TaskID })},
	{
		Name: "conversation", Label: "Conversation",
		Cell: filterCell("conversation_id", func(r audit.Record) string { return r.ConversationID }),
	},
	{Name: "skill", Label: "Skill", Initial: true, Cell: filterCell("skill_id", func(r audit.Record) string { return r.SkillID })},
	{Name: "backend", Label: "Backend", Cell: filterCell("backend", func(r audit.Record) string { return r.Backend })},
	{Name: "node", Label: "Node", Cell: func(p HistoryPage, rec audit.Record) templ.Component {
		if p.MayExport { // auditors and admins, who have the page
			return linkCell(ui.Link("runners"), rec.NodeID)
		}
		return ui.Text(rec.NodeID)
	}},
	{Name: "image", Label: "Image", Cell: func(p HistoryPage, rec audit.Record) templ.Component {
		image, shown := askedImage(rec)
		return valueCell(p, "text", image, shown)
	}},
	{
		Name: "output", Label: "Output", Class: "num nowrap",
		Cell: execCell(func(r audit.Record) string { return ui.Bytes(r.StdoutBytes + r.StderrBytes) }, "output", "stdout"),
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
