package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"secbox/api/visible"
	"secbox/audit/admin"
	"secbox/audit/report"
	"secbox/console/ui"
	"secbox/console/view"
)

// Reports answers what happened in a span of time; see export.Reports.
type Reports interface {
	// Read counts at most most of the newest records of the span.
	Read(ctx context.Context, span report.Span, most int) (report.Answer, error)
}

// reportPrice is the memory of a report on the page, in bytes.
const reportPrice = 4 << 20

// reportQuery are the parameters of a report.
var reportQuery = []string{"since", "until"}

// auditReport answers what an auditor asks about a span of time.
func (c *Console) auditReport(req *request) (ui.Page, error) {
	p := view.ReportPage{Query: req.query}
	span, err := visible.ParseSpan(req.query.Get, c.cfg.Now())
	if err != nil {
		return withRefusal(p.Page(), err)
	}
	if err := req.door.Reserve(reportPrice); err != nil {
		return ui.Page{}, err
	}
	answer, err := c.cfg.Reports.Read(req.ctx(), span, view.ReportRows)
	if err != nil {
		return ui.Page{}, err
	}
	p.Answer, p.Made = answer, true
	var ids []string
	for _, who := range answer.Report.Who {
		ids = append(ids, who.RequestedBy)
	}
	for _, refused := range answer.Report.Refused {
		for _, r := range refused.Examples {
			ids = append(ids, r.RequestedBy)
		}
	}
	if p.Names, err = c.cfg.Execs.Names(req.ctx(), req.caller, ids...); err != nil {
		return ui.Page{}, err
	}
	if p.Changed, err = eventRowsOf(req, newestChanges(answer.Report)); err != nil {
		return ui.Page{}, err
	}
	p.Curl = req.curl(inAPI(p.Span(), "audit", "report"))
	return p.Page(), nil
}

// newestChanges returns the newest events of each kind of change, newest first.
func newestChanges(r report.Report) (list []admin.Event) {
	for _, events := range r.Events {
		if !events.Area.Changed() {
			continue
		}
		for _, e := range events.Examples {
			list = append(list, admin.Event{
				Seq: e.Seq, At: e.At, Actor: e.Actor, Kind: events.Kind, Subject: e.Subject, Data: cmp.Or(string(e.Data), "{}"),
			})
		}
	}
	slices.SortFunc(list, func(x, y admin.Event) int { return cmp.Or(y.At.Compare(x.At), cmp.Compare(y.Seq, x.Seq)) })
	return list
}

// downloadReport sends the report with its evidence. A form with an invalid time is shown again.
func (c *Console) downloadReport(req *request, w http.ResponseWriter) error {
	span, err := visible.ParseSpan(req.query.Get, c.cfg.Now().Truncate(time.Microsecond))
	if err != nil {
		return req.Redirect(http.StatusSeeOther, ui.Link("audit", "report").WithAll(req.query).String())
	}
	return req.door.ExportReport(w, req.Request(), span)
}
