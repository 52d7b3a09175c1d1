package console

import (
	"secbox/audit"
	"secbox/console/view"
)

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
	// A row that has changed since it was read has newer events. A status follows another at most three times.
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
