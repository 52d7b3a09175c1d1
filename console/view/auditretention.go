package view

import (
	"fmt"

	"secbox/audit/retention"
	"secbox/console/ui"
)

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
