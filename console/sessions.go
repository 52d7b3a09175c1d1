package console

import (
	"context"
	"maps"
	"slices"
	"time"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/runner"
	"secbox/sandbox/places"
)

// sessionsQuery are the parameters of the page of sessions.
var sessionsQuery = []string{"state", "project_id", "user_id", "requested_by", "since", "until", "live", "cursor"}

// sessions lists sessions, newest first.
func (c *Console) sessions(req *request) (ui.Page, error) {
	p, err := c.readSessions(req)
	return withRefusal(ui.Page{Title: "Sessions", Actions: view.PauseLink(p.Shown, p.Live), Body: view.Sessions(p)}, err)
}

func (c *Console) readSessions(req *request) (view.SessionsPage, error) {
	var bad fault.Fields
	f := c.filter(req.query, &bad)
	f.Commands, f.Sessions = true, true
	p := view.SessionsPage{Query: req.query, Now: c.cfg.Now(), Live: req.isLive(&bad)}
	p.Shown = ui.Link("sessions").WithAll(req.query).With("live", "")
	p.Here = p.Shown.With("cursor", "")
	switch state := req.query.Get("state"); state {
	case "":
	case view.RunningSessions, view.EndedSessions:
		if f.Statuses = []audit.Status{audit.Running}; state == view.EndedSessions {
			f.Statuses = audit.Ended
		}
	default:
		bad.Add("state", "must be %s or %s", view.RunningSessions, view.EndedSessions)
	}
	callers, err := c.requesters(req, &f)
	if err != nil {
		return p, err
	}
	if len(callers) > 1 {
		bad.Add("requested_by", "is the name of several; give the id of one")
	}
	if err := bad.Err(); err != nil {
		return p, err
	}
	list := p.Here.String()
	after, err := timeCursor(req.query.Get("cursor"), list)
	if err != nil {
		return p, err
	}
	p.First = after == nil
	recs, next, err := c.cfg.Execs.List(req.ctx(), req.caller, f, after, view.SessionRows)
	if err == nil {
		err = reserve(req, recs)
	}
	if err != nil {
		return p, err
	}
	if p.Names, err = tokenNames(c, req, recs, requestedBy); err != nil {
		return p, err
	}
	for _, rec := range recs {
		row := c.sessionRow(rec)
		if row.State == nil {
			if row.Execs, err = c.execsOf(req, rec); err != nil {
				return p, err
			}
		}
		p.Rows = append(p.Rows, row)
	}
	if next != nil {
		p.SetNext("cursor", visible.EncodeCursor(*next, list))
	}
	asked := maps.Clone(req.query)
	for _, own := range []string{"live", "state", "cursor"} { // a cursor is of this page's list
		asked.Del(own)
	}
	if state := req.query.Get("state"); state != "" {
		asked.Set("status", state)
	}
	p.Curl = req.curl(inAPI(asked, "sandbox", "sessions"))
	p.Listed = true
	return p, nil
}

// sessionRow returns a session with what this node knows of it.
func (c *Console) sessionRow(rec audit.Record) view.SessionRow {
	row := view.SessionRow{Record: rec, Terms: runner.TermsOf(rec)}
	if rec.Status.Final() {
		return row
	}
	if state, err := c.cfg.Runner.Session(rec.ExecID); err == nil {
		row.State, row.Execs = &state, state.Execs
	}
	return row
}

// latestSeen is how many of a session's latest rows say how many execs it has had. Execs that begin
// at once may be on record in another order than their numbers.
const latestSeen = 8

// execsOf returns how many execs a session has had, by their rows.
func (c *Console) execsOf(req *request, rec audit.Record) (most int64, err error) {
	latest, _, err := c.cfg.Execs.List(req.ctx(), req.caller, audit.Filter{SessionID: rec.ExecID, Summary: true}, nil, latestSeen)
	for _, one := range latest {
		most = max(most, one.SessionSeq)
	}
	return most, err
}

// processesTime is how long a page waits for the list of a session's processes.
const processesTime = 2 * time.Second

// processesOf asks a session of this node for its processes.
func (c *Console) processesOf(req *request, p *view.SessionPart) {
	ctx, cancel := context.WithTimeout(req.ctx(), processesTime)
	defer cancel()
	var err error
	p.Processes, p.MoreProcesses, err = places.Session{In: c.cfg.Runner.Inside(p.Record.ExecID)}.Processes(ctx)
	if err != nil {
		p.ProcessesError = fault.From(places.Fault(err)).Message
	}
}

// sessionPart returns a session and its latest execs, in their order.
func (c *Console) sessionPart(req *request, rec audit.Record) (*view.SessionPart, error) {
	if !rec.IsSession() {
		return nil, nil
	}
	p := &view.SessionPart{SessionRow: c.sessionRow(rec)}
	of := audit.Filter{SessionID: rec.ExecID, Commands: true}
	execs, next, err := c.cfg.Execs.List(req.ctx(), req.caller, of, nil, view.SessionRows+1)
	if err == nil {
		err = reserve(req, execs)
	}
	if err != nil {
		return nil, err
	}
	p.Latest = slices.DeleteFunc(execs, func(r audit.Record) bool { return r.ExecID == rec.ExecID })
	p.More = next != nil
	slices.Reverse(p.Latest)
	if p.State != nil {
		c.processesOf(req, p)
	}
	p.Used, _ = c.cfg.Runner.SessionUsage(req.ctx(), rec) // the list of its files says what is wrong with them
	return p, nil
}
