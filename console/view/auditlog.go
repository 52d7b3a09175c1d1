package view

import (
	"fmt"
	"strings"

	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/console/ui"
	"secbox/health"
)

// auditTabs are the pages of the audit log.
var auditTabs = []ui.NavItem{
	{Label: "Log", To: ui.Link("audit")},
	{Label: "Report", To: ui.Link("audit", "report")},
	{Label: "Events", To: ui.Link("audit", "events")},
	{Label: "Holds", To: ui.Link("audit", "holds")},
	{Label: "Retention", To: ui.Link("audit", "retention")},
	{Label: "Export", To: ui.Link("audit", "export")},
}

// AuditLogPage is the state of the transparency log.
type AuditLogPage struct {
	State      translog.State
	Lost       error  // why there is no state; nil: there is
	Checkpoint string // with cosignatures
	Log        health.AuditLog
	Problems   []health.Problem // of the log, its witnesses and its anchor
}

// AuditLogProblems returns the problems of the log, its witnesses and its anchor.
func AuditLogProblems(report health.Report) []health.Problem {
	var problems []health.Problem
	for _, problem := range report.Problems {
		if strings.HasPrefix(problem.Check, "audit_") {
			problems = append(problems, problem)
		}
	}
	return problems
}

// logState returns in a word how a log with this number of entries is, and the class of its colour.
func logState(log health.AuditLog, problems []health.Problem, entries int64) (word, tone string) {
	switch {
	case log.Halted != "":
		return "stopped", "bad"
	case len(problems) > 0 || log.Problem != "":
		return "with problems", "warn"
	case entries == 0:
		return "empty", ""
	}
	return "signing", "good"
}

func (p AuditLogPage) logState() (word, tone string) {
	if p.Lost != nil {
		return "lost", "bad"
	}
	return logState(p.Log, p.Problems, p.State.Size)
}

// signers returns the names of the keys that have signed a checkpoint: the log and its witnesses.
func signers(checkpoint string) []string {
	_, signatures, _ := strings.Cut(checkpoint, "\n\n")
	var names []string
	for line := range strings.Lines(signatures) {
		if rest, ok := strings.CutPrefix(line, "— "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// keyID returns the name and the hash of a public key, without the key itself.
func keyID(verifier string) string {
	parts := strings.SplitN(verifier, "+", 3)
	return strings.Join(parts[:min(2, len(parts))], "+")
}

// RetentionPage is what the settings keep, and what the runs removed.
type RetentionPage struct {
	retention.Report
	Runs []EventRow
}

// state returns in a word what retention does, and the class of its colour.
func (p RetentionPage) state() (word, tone string) {
	switch {
	case p.Problem != "":
		return "with a problem", "warn"
	case p.Running:
		return "running", "busy"
	case p.Enabled:
		return "on", "good"
	}
	return "off", ""
}

// kept says how long something is kept.
func kept(days int64, otherwise string) string {
	if days == 0 {
		return otherwise
	}
	return fmt.Sprintf("%s days after the exec’s end", ui.Count(days))
}

// keptUnused says when workspaces are removed.
func keptUnused(hours int64) string {
	if hours == 0 {
		return "for ever"
	}
	return several(hours, "hour") + " after their last use"
}
