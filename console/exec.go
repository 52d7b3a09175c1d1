package console

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// execOf returns the exec that the address names.
func (c *Console) execOf(req *request) (audit.Record, error) {
	return c.cfg.Execs.Get(req.ctx(), req.caller, req.Param("id"))
}

// exec shows one exec.
func (c *Console) exec(req *request) (ui.Page, error) {
	rec, err := c.execOf(req)
	if err != nil {
		return ui.Page{}, err
	}
	if err := req.door.Reserve(4 * int64(rec.Size())); err != nil {
		return ui.Page{}, err
	}
	p := view.ExecPage{
		Record: rec, Spooled: c.cfg.Events.Spooled(rec.ExecID), Live: !rec.Status.Final() || req.query.Has("shown"),
		Policy: view.Policy(rec), Limits: view.Limits(rec), Now: c.cfg.Now(),
	}
	p.Canceling = !rec.Status.Final() && req.query.Has("canceling")
	p.MayCancel = !rec.Status.Final() && req.may(workers)
	names, err := c.cfg.Execs.Names(req.ctx(), req.caller, rec.RequestedBy)
	if err != nil {
		return ui.Page{}, err
	}
	p.Token = view.TokenName(names, rec.RequestedBy)
	if p.Events, err = c.cfg.Events.Events(req.ctx(), rec.ExecID); err != nil {
		return ui.Page{}, err
	}
	if p.Callback, err = c.cfg.Callbacks.Delivery(req.ctx(), rec.ExecID); err != nil {
		return ui.Page{}, err
	}
	if p.Network, err = c.cfg.Connections.Connections(req.ctx(), rec.ExecID, 0, view.ShownConnections); err != nil {
		return ui.Page{}, err
	}
	removed, err := c.cfg.Execs.ArtifactsRemoved(req.ctx(), rec.ExecID)
	if err != nil {
		return ui.Page{}, err
	}
	if p.Before, err = c.cfg.Execs.Neighbour(req.ctx(), req.caller, rec, false); err != nil {
		return ui.Page{}, err
	}
	if p.After, err = c.cfg.Execs.Neighbour(req.ctx(), req.caller, rec, true); err != nil {
		return ui.Page{}, err
	}
	if p.Session, err = c.sessionPart(req, rec); err != nil {
		return ui.Page{}, err
	}
	if p.Output, err = c.outputs(req, rec); err != nil {
		return ui.Page{}, err
	}
	if p.Skill, err = c.skillOf(req, rec); err != nil {
		return ui.Page{}, err
	}
	if p.Replay, err = c.replaysOf(req, rec); err != nil {
		return ui.Page{}, err
	}
	p.Policy = view.WithReplayedLayers(p.Policy, p.Replay.First)
	p.Artifacts = c.artifactsPart(req.ctx(), rec, removed[rec.ExecID])
	p.Inputs = c.inputsPart(req, rec)
	p.Versions = c.versionsOf(req, rec)
	p.Proof = c.proofOf(req, rec)
	if req.may(auditors) {
		if p.Holds, err = c.cfg.Holds.On(req.ctx(), rec, view.HeldRows); err != nil {
			return ui.Page{}, err
		}
		p.MayHold = req.may(admins)
	}
	p.Curl = req.curl(inAPI(nil, "sandbox", "execs", rec.ExecID))
	list := ui.Crumb{Label: "History", To: ui.Link("history")}
	if p.Session != nil {
		list = ui.Crumb{Label: "Sessions", To: ui.Link("sessions")}
	}
	page := ui.Page{
		Title: view.PageTitle(rec), Crumbs: []ui.Crumb{list}, Badge: view.ExecBadge(p),
		Actions: view.ExecActions(p), Body: view.Exec(p), Live: !rec.Status.Final(), Cast: rec.TTYRecord != "",
	}
	return page, nil
}

// cancel requests the end of an exec.
func (c *Console) cancel(req *request) (ui.Address, error) {
	rec, err := c.execOf(req)
	if err != nil {
		return ui.Address{}, err
	}
	if err := c.cfg.Runner.Cancel(req.ctx(), rec.ExecID); err != nil && !fault.Is(err, fault.ExecEnded) {
		return ui.Address{}, err
	}
	return ui.Link("execs", rec.ExecID).With("canceling", "1"), nil
}

// downloadProof sends the proof of an exec.
func (c *Console) downloadProof(req *request, w http.ResponseWriter) error {
	rec, err := c.execOf(req)
	if err != nil {
		return err
	}
	if err := req.door.Reserve(proofPrice * int64(rec.Size())); err != nil {
		return err
	}
	proof, err := c.cfg.Proofs.Prove(req.ctx(), rec)
	if err == nil {
		err = c.recordDownload(req, rec, "proof", "")
	}
	if err != nil {
		return err
	}
	return sendFile(req, w, view.ProofFile(rec), "application/json", proof)
}

// recordDownload records that the caller gets a file of an exec. If it fails, nothing may be sent.
func (c *Console) recordDownload(req *request, rec audit.Record, what, path string) error {
	if req.Request().Method == http.MethodHead {
		return nil
	}
	return c.cfg.Execs.RecordDownload(req.ctx(), req.caller, rec, what, path)
}

// reason returns the message of an error for a part of a page, as a sentence.
func reason(err error) string {
	message := fault.From(err).Message
	first, size := utf8.DecodeRuneInString(message)
	return string(unicode.ToUpper(first)) + message[size:]
}

// skillOf finds the pages of the skill that an exec ran. As an invoke does, it searches the catalog
// before the packages of the workspace's user; only a command that ran in the folder of a package
// is certainly of the package.
func (c *Console) skillOf(req *request, rec audit.Record) (view.ExecSkill, error) {
	p := view.ExecSkill{ID: rec.SkillID, Digest: rec.SkillDigest}
	if p.ID == "" {
		return p, nil
	}
	seen := req.door.Skills()
	now, err := seen.Of(req.ctx(), req.caller, nil, nil)
	if err != nil {
		return p, err
	}
	_, unknown := now.Get(p.ID)
	p.Catalogued = unknown == nil
	agent, user, isWorkspace := strings.Cut(rec.ProjectID, "~")
	if !isWorkspace || p.Catalogued && rec.Cwd != "/workspace/work/skills/"+p.ID {
		return p, nil
	}
	if _, err := seen.Owner(req.caller, agent, user); err == nil {
		p.Package, p.Owner = ui.Link("packages", agent, user, p.ID), agent+" / "+user
	}
	return p, nil
}

// proofPrice is the memory that one byte of a record takes in its proof; as api counts it.
const proofPrice = 16

// proofOf compares the record, as it is now, with its events and with the log.
func (c *Console) proofOf(req *request, rec audit.Record) view.ProofState {
	p := view.ProofState{MayOpenLog: req.may(auditors), Open: !rec.Status.Final()}
	if c.cfg.Events.Spooled(rec.ExecID) {
		p.Problem = "the database does not have the end of this exec yet"
		return p
	}
	if err := req.door.Reserve(4 * int64(rec.Size())); err != nil { // at most four events
		p.Problem = reason(err)
		return p
	}
	standing, err := c.cfg.Proofs.Standing(req.ctx(), rec)
	// A row that has changed since it was read has newer events. A status follows another at most
	// three times.
	for range 3 {
		if err != nil || len(standing.Differences) == 0 {
			break
		}
		now, e := c.cfg.Execs.Get(req.ctx(), req.caller, rec.ExecID)
		if e != nil || now.Status == rec.Status {
			err = e
			break
		}
		rec = now
		standing, err = c.cfg.Proofs.Standing(req.ctx(), rec)
	}
	if err != nil {
		p.Problem = reason(err)
		return p
	}
	p.LoggedAt, p.Witnesses = standing.LoggedAt, standing.Witnesses
	p.Index, p.Pending, p.Differences, p.Unsigned = standing.Index, standing.Index < 0, standing.Differences, standing.Unsigned != nil
	if p.Pending {
		for _, problem := range c.cfg.Health.Latest(req.ctx()).Problems {
			if problem.Check == "audit_log" {
				p.Stopped, p.Pending = problem.Reason, false
			}
		}
	}
	return p
}
