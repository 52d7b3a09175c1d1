package console

import (
	"slices"

	"secbox/audit"
	"secbox/audit/translog"
	"secbox/console/ui"
)

// proofState is how an exec stands to the transparency log.
type proofState struct {
	index       int64                 // in the log, of the newest event
	pending     bool                  // the log will have it in a moment
	stopped     string                // why it will not: no node extends the log; empty: it will
	mayLook     bool                  // the visitor may open the page of the log
	open        bool                  // the exec has not ended, so that more events follow
	unsigned    bool                  // this node could not verify the checkpoint's signature
	differences []translog.Difference // the database was changed
	problem     string                // why nothing is known
}

// proofPrice is the memory that one byte of a record takes in its proof; as api counts it.
const proofPrice = 16

// proofOf compares the record, as it is now, with its events and with the log.
func (c *Console) proofOf(v *visit, rec audit.Record) proofState {
	p := proofState{mayLook: slices.Contains(auditors, v.caller.Role), open: !rec.Status.Final()}
	if c.cfg.Events.Spooled(rec.ExecID) {
		p.problem = "the database does not have the end of this exec yet"
		return p
	}
	if err := v.door.Reserve(4 * int64(rec.Size())); err != nil { // at most four events
		p.problem = reason(err)
		return p
	}
	standing, err := c.cfg.Proofs.Standing(v.ctx(), rec)
	// A row that has changed since it was read has newer events. A status follows another at most three times.
	for range 3 {
		if err != nil || len(standing.Differences) == 0 {
			break
		}
		now, e := c.cfg.Execs.Get(v.ctx(), v.caller, rec.ExecID)
		if e != nil || now.Status == rec.Status {
			err = e
			break
		}
		rec = now
		standing, err = c.cfg.Proofs.Standing(v.ctx(), rec)
	}
	if err != nil {
		p.problem = reason(err)
		return p
	}
	p.index, p.pending, p.differences, p.unsigned = standing.Index, standing.Index < 0, standing.Differences, standing.Unsigned != nil
	if p.pending {
		for _, problem := range c.cfg.Health.Latest(v.ctx()).Problems {
			if problem.Check == "audit_log" {
				p.stopped, p.pending = problem.Reason, false
			}
		}
	}
	return p
}

// until says that there will be more events.
func (p proofState) until() string {
	if p.open {
		return " until now"
	}
	return ""
}

// checkCommand checks the proof of an exec, in the directory of the downloads.
func checkCommand(rec audit.Record) string {
	return "secbox audit check " + proofName(rec) + " --key log.pub"
}

func proofName(rec audit.Record) string { return rec.ExecID + ".proof.json" }

// differenceText says what of a record is not as the log says.
func differenceText(d translog.Difference) string {
	return ui.Cut(d.What, 100) + ": expected " + ui.Cut(d.Expected, 200) + ", found " + ui.Cut(d.Found, 200)
}
