package console

import (
	"errors"
	"net/http"
	"slices"
	"unicode"
	"unicode/utf8"

	"secbox/api/content"
	"secbox/api/problem"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// exec shows one exec.
func (c *Console) exec(v *visit) (ui.Page, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return ui.Page{}, err
	}
	if err := v.door.Reserve(4 * int64(rec.Size())); err != nil {
		return ui.Page{}, err
	}
	p := view.ExecPage{Record: rec, Spooled: c.cfg.Events.Spooled(rec.ExecID), Live: !rec.Status.Final() || v.query.Has("shown"), Policy: view.Policy(rec), Limits: view.Limits(rec)}
	p.Canceling = !rec.Status.Final() && v.query.Has("canceling")
	p.MayCancel = !rec.Status.Final() && !p.Canceling && slices.Contains(workers, v.caller.Role)
	names, err := c.cfg.Execs.Names(v.ctx(), v.caller, rec.RequestedBy)
	if err != nil {
		return ui.Page{}, err
	}
	p.Token = view.TokenName(names, rec.RequestedBy)
	if p.Events, err = c.cfg.Events.Events(v.ctx(), rec.ExecID); err != nil {
		return ui.Page{}, err
	}
	if p.Callback, err = c.cfg.Callbacks.Delivery(v.ctx(), rec.ExecID); err != nil {
		return ui.Page{}, err
	}
	removed, err := c.cfg.Execs.ArtifactsRemoved(v.ctx(), rec.ExecID)
	if err != nil {
		return ui.Page{}, err
	}
	if p.Before, err = c.cfg.Execs.Neighbour(v.ctx(), v.caller, rec, false); err != nil {
		return ui.Page{}, err
	}
	if p.After, err = c.cfg.Execs.Neighbour(v.ctx(), v.caller, rec, true); err != nil {
		return ui.Page{}, err
	}
	if p.Output, err = c.outputs(v, rec); err != nil {
		return ui.Page{}, err
	}
	if p.Skill, err = c.skillOf(v, rec); err != nil {
		return ui.Page{}, err
	}
	if p.Replay, err = c.replaysOf(v, rec); err != nil {
		return ui.Page{}, err
	}
	p.Policy = view.WithReplayedLayers(p.Policy, p.Replay.First)
	p.Artifacts = c.artifactsPart(v.ctx(), rec, removed[rec.ExecID])
	p.Inputs = c.inputsPart(v, rec)
	p.Proof = c.proofOf(v, rec)
	if slices.Contains(auditors, v.caller.Role) {
		if p.Holds, err = c.cfg.Holds.On(v.ctx(), rec, view.HeldRows); err != nil {
			return ui.Page{}, err
		}
		p.MayHold = slices.Contains(admins, v.caller.Role)
	}
	p.Curl = v.curl(inAPI(nil, "sandbox", "execs", rec.ExecID))
	page := ui.Page{
		Title: "Exec " + rec.ExecID, Crumbs: []ui.Crumb{{Label: "History", To: ui.Link("history")}}, Badge: view.ExecBadge(p),
		Actions: view.ExecActions(p), Body: view.Exec(p), Live: !rec.Status.Final(),
	}
	return page, nil
}

// cancel requests the end of an exec.
func (c *Console) cancel(v *visit) (ui.Address, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return ui.Address{}, err
	}
	if err := c.cfg.Runner.Cancel(v.ctx(), rec.ExecID); err != nil && !fault.Is(err, fault.ExecEnded) {
		return ui.Address{}, err
	}
	return ui.Link("execs", rec.ExecID).With("canceling", "1"), nil
}

// downloadProof sends the proof of an exec.
func (c *Console) downloadProof(v *visit, w http.ResponseWriter) error {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return err
	}
	if err := v.door.Reserve(proofPrice * int64(rec.Size())); err != nil {
		return err
	}
	proof, err := c.cfg.Proofs.Prove(v.ctx(), rec)
	if err == nil {
		err = c.recordDownload(v, rec, "proof", "")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Disposition", content.Attachment(view.ProofFile(rec)))
	return content.NewPage("application/json", proof, problem.CSP).Serve(w, v.Request())
}

// recordDownload records that the caller gets a file of an exec. If it fails, nothing may be sent.
func (c *Console) recordDownload(v *visit, rec audit.Record, what, path string) error {
	if v.Request().Method == http.MethodHead {
		return nil
	}
	return c.cfg.Execs.RecordDownload(v.ctx(), v.caller, rec, what, path)
}

// reason returns the message of an error for a part of a page, as a sentence.
func reason(err error) string {
	var e *fault.Error
	if !errors.As(err, &e) {
		e = fault.From(err)
	}
	first, size := utf8.DecodeRuneInString(e.Message)
	return string(unicode.ToUpper(first)) + e.Message[size:]
}
