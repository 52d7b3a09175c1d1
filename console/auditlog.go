package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"secbox/access/tokens"
	"secbox/api/content"
	"secbox/api/problem"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// AdminEvents lists administrative events; see admin.Store.
type AdminEvents interface {
	// List returns at most limit events, newest first, after the cursor.
	List(ctx context.Context, f admin.Filter, after *admin.Cursor, limit int) ([]admin.Event, error)
}

// Holds are the holds that stop retention; see visible.Holds.
type Holds interface {
	// List returns a page of holds that were not removed, oldest first, and the cursor of the next
	// page.
	List(ctx context.Context, cursor string, limit int) (holds []retention.Hold, next string, err error)

	// Add adds a hold by the caller; fault.InvalidRequest names the fields. An empty ID gets a new
	// one; it fails with the ID of a hold that was added before.
	Add(ctx context.Context, caller tokens.Token, wanted retention.Hold) (retention.Hold, error)

	// On returns at most limit holds that name an exec, oldest first.
	On(ctx context.Context, rec audit.Record, limit int) ([]retention.Hold, error)

	// Covered returns how many execs each hold names, counting no further than most.
	Covered(ctx context.Context, holds []retention.Hold, most int) ([]int, error)

	// Remove ends a hold by the caller; fault.UnknownHold.
	Remove(ctx context.Context, caller tokens.Token, id string) (retention.Hold, error)
}

// Retention removes what the settings no longer keep; see retention.Runner.
type Retention interface {
	Report(ctx context.Context) (retention.Report, error)
}

// auditLog shows the newest checkpoint, and who has it.
func (c *Console) auditLog(req *request) (ui.Page, error) {
	var p view.AuditLogPage
	var err error
	if p.State, err = c.cfg.Proofs.State(req.ctx()); errors.Is(err, translog.ErrNoState) {
		p.Lost, err = err, nil
	}
	if err == nil && p.State.Size > 0 {
		p.Checkpoint, err = c.cfg.Proofs.Checkpoint(req.ctx())
	}
	if err != nil {
		return ui.Page{}, err
	}
	report := c.cfg.Health.Latest(req.ctx())
	p.Log, p.Problems = report.AuditLog, view.AuditLogProblems(report)
	return ui.Page{Title: "Audit log", Badge: view.AuditLogBadge(p), Body: view.AuditLog(p)}, nil
}

// downloadCheckpoint sends the newest checkpoint, with the cosignatures that have arrived.
func (c *Console) downloadCheckpoint(req *request, w http.ResponseWriter) error {
	checkpoint, err := c.cfg.Proofs.Checkpoint(req.ctx())
	if err != nil {
		return err
	}
	return sendFile(req, w, "audit-log.checkpoint", "text/plain; charset=utf-8", []byte(checkpoint))
}

// downloadKey sends the public key of the log.
func (c *Console) downloadKey(req *request, w http.ResponseWriter) error {
	state, err := c.cfg.Proofs.State(req.ctx())
	if err == nil && state.VerifierKey == "" {
		err = fault.New(fault.NotLogged, "the transparency log is empty yet; its key is known with its first checkpoint, or by `core-api "+
			"audit key` on the server")
	}
	if err != nil {
		return err
	}
	return sendFile(req, w, "log.pub", "text/plain; charset=utf-8", []byte(state.VerifierKey+"\n"))
}

// eventProofPrice is the memory that the proof of an event takes: its text is encoded twice.
const eventProofPrice = 16 * admin.MaxData

// downloadEventProof sends the proof of an administrative event.
func (c *Console) downloadEventProof(req *request, w http.ResponseWriter) error {
	id, err := strconv.ParseInt(req.Param("id"), 10, 64)
	if err != nil || strconv.FormatInt(id, 10) != req.Param("id") {
		return fault.New(fault.UnknownEvent, "there is no event %s; the list has those that there are", ui.Cut(req.Param("id"), 40))
	}
	if err := req.door.Reserve(eventProofPrice); err != nil {
		return err
	}
	proof, err := c.cfg.Proofs.ProveAdmin(req.ctx(), id)
	if err != nil {
		return err
	}
	return sendFile(req, w, "event-"+req.Param("id")+".proof.json", "application/json", proof)
}

// sendFile sends a small file that the browser saves.
func sendFile(req *request, w http.ResponseWriter, name, contentType string, text []byte) error {
	w.Header().Set("Content-Disposition", content.Attachment(name))
	return content.NewPage(contentType, text, problem.CSP).Serve(w, req.Request())
}

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
