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
	"secbox/audit/retention"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/runner/webhooks"
)

// execPage is what is known of one exec.
type execPage struct {
	rec       audit.Record
	token     string
	mayCancel bool
	canceling bool // the visitor has just asked for its end
	events    []audit.Event
	policy    []policyField
	limits    []limit
	output    []stream
	artifacts fileList
	inputs    fileList
	skill     skillPart
	replay    replayPart
	proof     proofState
	callback  *webhooks.Delivery // nil: none
	holds     []retention.Hold   // that keep it, for those who may know of holds
	mayHold   bool
	before    string // the exec before in the project; empty: none
	after     string
	spooled   bool   // the database does not have its end
	live      bool   // it has not ended, or its end completes a live page
	curl      string // gets the record from the API
}

// exec shows one exec.
func (c *Console) exec(v *visit) (ui.Page, error) {
	rec, err := c.cfg.Execs.Get(v.ctx(), v.caller, v.Param("id"))
	if err != nil {
		return ui.Page{}, err
	}
	if err := v.door.Reserve(4 * int64(rec.Size())); err != nil {
		return ui.Page{}, err
	}
	p := execPage{rec: rec, spooled: c.cfg.Events.Spooled(rec.ExecID), live: !rec.Status.Final() || v.query.Has("shown"), policy: policyOf(rec), limits: limitsOf(rec)}
	p.canceling = !rec.Status.Final() && v.query.Has("canceling")
	p.mayCancel = !rec.Status.Final() && !p.canceling && slices.Contains(workers, v.caller.Role)
	names, err := c.cfg.Execs.Names(v.ctx(), v.caller, rec.RequestedBy)
	if err != nil {
		return ui.Page{}, err
	}
	p.token = tokenName(names, rec.RequestedBy)
	if p.events, err = c.cfg.Events.Events(v.ctx(), rec.ExecID); err != nil {
		return ui.Page{}, err
	}
	if p.callback, err = c.cfg.Callbacks.Delivery(v.ctx(), rec.ExecID); err != nil {
		return ui.Page{}, err
	}
	removed, err := c.cfg.Execs.ArtifactsRemoved(v.ctx(), rec.ExecID)
	if err != nil {
		return ui.Page{}, err
	}
	if p.before, err = c.cfg.Execs.Neighbour(v.ctx(), v.caller, rec, false); err != nil {
		return ui.Page{}, err
	}
	if p.after, err = c.cfg.Execs.Neighbour(v.ctx(), v.caller, rec, true); err != nil {
		return ui.Page{}, err
	}
	if p.output, err = c.outputs(v, rec); err != nil {
		return ui.Page{}, err
	}
	if p.skill, err = c.skillOf(v, rec); err != nil {
		return ui.Page{}, err
	}
	if p.replay, err = c.replaysOf(v, rec); err != nil {
		return ui.Page{}, err
	}
	p.policy = withFirst(p.policy, p.replay.first)
	p.artifacts = c.artifactsPart(v.ctx(), rec, removed[rec.ExecID])
	p.inputs = c.inputsPart(v, rec)
	p.proof = c.proofOf(v, rec)
	if slices.Contains(auditors, v.caller.Role) {
		if p.holds, err = c.cfg.Holds.On(v.ctx(), rec, heldRows); err != nil {
			return ui.Page{}, err
		}
		p.mayHold = slices.Contains(admins, v.caller.Role)
	}
	p.curl = v.curl(inAPI(nil, "sandbox", "execs", rec.ExecID))
	page := ui.Page{
		Title: "Exec " + rec.ExecID, Crumbs: []ui.Crumb{{Label: "History", To: ui.Link("history")}}, Badge: execBadge(p),
		Actions: execActions(p), Body: execBody(p), Live: !rec.Status.Final(),
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

// heldRows bounds the holds on the page of an exec.
const heldRows = 5

// neverRan reports whether no command of an exec was started: it was refused, or ended while it waited.
func neverRan(rec audit.Record) bool {
	return rec.Status == audit.Rejected || rec.Status.Final() && rec.Status != audit.Lost && rec.StartedAt.IsZero()
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
	w.Header().Set("Content-Disposition", content.Attachment(proofName(rec)))
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
