package console

import (
	"secbox/audit/admin"
	"secbox/console/ui"
	"secbox/console/view"
)

const retentionRows = 10 // the last runs that removed something

// retention shows the rules, the running or last run, and when the next one is due.
func (c *Console) retention(req *request) (ui.Page, error) {
	report, err := c.cfg.Retention.Report(req.ctx())
	if err != nil {
		return ui.Page{}, err
	}
	p := view.RetentionPage{Report: report}
	runs, err := c.cfg.AdminEvents.List(req.ctx(), admin.Filter{Kind: admin.RetentionRun}, nil, retentionRows)
	if err == nil {
		p.Runs, err = eventRowsOf(req, runs)
	}
	return ui.Page{Title: "Retention", Badge: view.RetentionBadge(p), Body: view.Retention(p)}, err
}
