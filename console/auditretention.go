package console

import (
	"fmt"

	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/console/ui"
)

const retentionRows = 10 // the last runs that removed something

// retentionPage is what the settings keep, and what the runs removed.
type retentionPage struct {
	retention.Report
	runs []eventRow
}

// retention shows the rules, the running or last run, and when the next one is due.
func (c *Console) retention(v *visit) (ui.Page, error) {
	report, err := c.cfg.Retention.Report(v.ctx())
	if err != nil {
		return ui.Page{}, err
	}
	p := retentionPage{Report: report}
	runs, err := c.cfg.AdminEvents.List(v.ctx(), admin.Filter{Kind: admin.RetentionRun}, nil, retentionRows)
	if err == nil {
		p.runs, err = eventRowsOf(v, runs)
	}
	return ui.Page{Title: "Retention", Badge: retentionBadge(p), Body: retentionBody(p)}, err
}

// state returns in a word what retention does, and the class of its colour.
func (p retentionPage) state() (word, tone string) {
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
