package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"secbox/access/sessions"
	"secbox/api/gate"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/replay"
)

const (
	replayRows = 20         // of the list of replays
	pointRows  = 200        // of a comparison
	replayVars = 200        // variables that the form asks for
	replayKey  = "console-" // begins the Idempotency-Keys of forms
)

// replaysOf reads what the page of an exec has about replays.
func (c *Console) replaysOf(req *request, rec audit.Record) (view.ExecReplays, error) {
	p := view.ExecReplays{Record: rec}
	if req.may(workers) && rec.Status.Final() {
		if err := replay.Check(rec); err != nil {
			p.Refusal = reason(err)
		}
		p.Allowed = p.Refusal == ""
	}
	if p.Allowed {
		p.Vars, p.Key = replay.Variables(rec), replayKey+sessions.Secret()
		p.Vars = p.Vars[:min(len(p.Vars), replayVars)]
	}
	rows, next, err := c.cfg.Execs.List(req.ctx(), req.caller, audit.Filter{ReplayOf: rec.ExecID, Summary: true}, nil, replayRows)
	if err != nil {
		return p, err
	}
	p.List, p.More = rows, next != nil
	if rec.ReplayOf == "" || !rec.Status.Final() {
		return p, nil
	}
	first, err := c.cfg.Execs.Get(req.ctx(), req.caller, rec.ReplayOf)
	if err != nil {
		p.Problem = reason(err)
		return p, nil
	}
	p.First = &first
	p.Points = c.cfg.Replayer.Compare(req.ctx(), first, rec, req.door.Reserve)
	p.Verdict = view.Verdict(p.Points)
	slices.SortStableFunc(p.Points, func(a, b replay.Point) int { return cmp.Compare(view.Rank(a), view.Rank(b)) })
	if p.Cut = len(p.Points) - pointRows; p.Cut > 0 {
		p.Points = p.Points[:pointRows]
	}
	return p, nil
}

// replay runs an exec again. It leads to the page of the new exec as soon as that has one, and
// holds its memory until it has ended.
func (c *Console) replay(req *request) (ui.Address, error) {
	first, err := c.execOf(req)
	if err != nil {
		return ui.Address{}, err
	}
	if err := gate.CheckReplay(req.ctx(), req.caller, first, c.cfg.Runner); err != nil {
		return ui.Address{}, err
	}
	key := req.form.Get("key")
	if secret, ok := strings.CutPrefix(key, replayKey); !ok || !isSecret(secret) {
		return ui.Address{}, fault.BadField("key", "is not that of the form; open the page of the exec again and use its form")
	}
	q := replay.Request{
		First: first, Stdin: []byte(strings.ReplaceAll(req.form.Get("stdin"), "\r\n", "\n")), RequestedBy: req.caller.ID,
		IdempotencyKey: key, Reserve: req.door.Reserve,
		OnOpen: func(execID string) { req.redirectNow(ui.Link("execs", execID)) },
	}
	q.Env = map[string]string{}
	for i, name := range replay.Variables(first) {
		if value := req.form.Get(view.VariableField(i)); value != "" {
			q.Env[name] = value
		}
	}
	res, err := c.cfg.Replayer.Replay(req.ctx(), q)
	if req.Response().Committed { // the page of the exec tells how it ended
		if err != nil {
			c.log.Warn("a replay that had begun failed", "first", first.ExecID, "error", err)
		}
		return ui.Address{}, nil
	}
	if err != nil {
		return ui.Address{}, err
	}
	return ui.Link("execs", res.Exec.Record.ExecID), nil
}

// redirectNow answers a form before its work is done. The browser does not wait for more on this
// connection.
func (req *request) redirectNow(to ui.Address) {
	h := req.Response().Header()
	h.Set("Connection", "close")
	h.Set("Content-Length", "0")
	h.Set("Location", to.String())
	req.Response().WriteHeader(http.StatusSeeOther)
	_ = http.NewResponseController(req.Response()).Flush() // fails only if the client is gone
}
