package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/runner"
)

// overview shows what happens now, and the execs of a day, a week or a month.
func (c *Console) overview(req *request) (ui.Page, error) {
	p := view.OverviewPage{Now: c.cfg.Now().UTC(), Node: req.caller.Role != tokens.Worker, Open: req.caller.ID == runner.Tokenless}
	name := cmp.Or(req.query.Get("span"), view.Spans[0].Name)
	i := slices.IndexFunc(view.Spans, func(s view.Span) bool { return s.Name == name })
	var bad fault.Fields
	if i < 0 {
		bad.Add("span", "must be day, week or month")
	}
	p.Live = req.isLive(&bad)
	if err := bad.Err(); err != nil {
		return ui.Page{}, err
	}
	p.Span, p.Here = view.Spans[i], ui.Link("overview").With("span", req.query.Get("span"))
	if err := c.readOverview(req, &p); err != nil {
		return ui.Page{}, err
	}
	return ui.Page{Title: "Overview", Actions: view.OverviewActions(p), Body: view.Overview(p)}, nil
}

func (c *Console) readOverview(req *request, p *view.OverviewPage) (err error) {
	width := time.Duration(p.Span.Hours) * time.Hour
	end := p.Now.Truncate(width).Add(width)
	begin := end.Add(-time.Duration(p.Span.Bars) * width)
	hours := int(p.Now.Truncate(time.Hour).Sub(begin)/time.Hour) + 1
	if p.Recent, err = c.cfg.Execs.Recent(req.ctx(), req.caller, hours); err != nil {
		return err
	}
	p.Bars = make([]view.Bar, p.Span.Bars)
	for i := range p.Bars {
		p.Bars[i].Since = begin.Add(time.Duration(i) * width)
		p.Bars[i].Until = p.Bars[i].Since.Add(width)
	}
	refused, failed := map[string]int64{}, map[string]int64{}
	for _, h := range p.Recent.Hours {
		i := int(h.Hour.Sub(begin) / width)
		if i < 0 || i >= len(p.Bars) { // the hour has changed meanwhile
			continue
		}
		p.Bars[i].Add(h.Status, h.Execs)
		p.Totals.Add(h.Status, h.Execs)
		switch h.Status {
		case audit.Rejected:
			refused[string(h.ErrorReason)] += h.Execs
		case audit.Failed, audit.Errored, audit.Timeout, audit.OOMKilled, audit.Lost:
			failed[string(h.ErrorReason)] += h.Execs
		}
	}
	p.Omitting = refused[string(audit.RefusalsOmitted)]
	p.Refused, p.Failed = view.TopReasons(refused), view.TopReasons(failed)

	open := audit.Filter{Statuses: []audit.Status{audit.Queued, audit.Running}}
	var next *audit.Cursor
	if p.Running, next, err = c.cfg.Execs.List(req.ctx(), req.caller, open, nil, view.OverviewRows); err != nil {
		return err
	}
	p.More = next != nil
	if err := reserve(req, p.Running); err != nil {
		return err
	}
	if p.Totals.Total() == 0 && len(p.Running) == 0 && p.Recent.Complete {
		any, _, err := c.cfg.Execs.List(req.ctx(), req.caller, audit.Filter{Summary: true}, nil, 1)
		if err != nil {
			return err
		}
		if p.Empty = len(any) == 0; p.Empty {
			p.Curl = curlExec(req)
		}
	}
	if p.Node {
		p.Health, p.Pool = c.cfg.Health.Latest(req.ctx()), c.cfg.Pool.Stats()
	}
	return nil
}

// curlExec returns a command that runs an exec; empty if the caller may not.
func curlExec(req *request) string {
	if !req.may(workers) {
		return ""
	}
	token := ""
	if req.session != "" {
		token = " " + tokenHeader
	}
	return fmt.Sprintf(`curl -s %s/sandbox/execs%s -H 'Content-Type: application/json' -d '{"project_id": "demo", "exec": {"script": "echo hello"}}'`, req.server(), token)
}
