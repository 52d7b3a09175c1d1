package view

import (
	"secbox/audit"
	"secbox/audit/translog"
	"secbox/console/ui"
)

// ProofState is how an exec stands to the transparency log.
type ProofState struct {
	Index       int64                 // in the log, of the newest event
	Pending     bool                  // the log will have it in a moment
	Stopped     string                // why it will not: no node extends the log; empty: it will
	MayOpenLog  bool                  // the caller may open the page of the log
	Open        bool                  // the exec has not ended, so that more events follow
	Unsigned    bool                  // this node could not verify the checkpoint's signature
	Differences []translog.Difference // the database was changed
	Problem     string                // why nothing is known
}

// until says that there will be more events.
func (p ProofState) until() string {
	if p.Open {
		return " until now"
	}
	return ""
}

// checkCommand checks the proof of an exec, in the directory of the downloads.
func checkCommand(rec audit.Record) string {
	return "secbox audit check " + ProofFile(rec) + " --key log.pub"
}

// ProofFile is the name of the file with the proof of an exec.
func ProofFile(rec audit.Record) string { return rec.ExecID + ".proof.json" }

// differenceText says what of a record is not as the log says.
func differenceText(d translog.Difference) string {
	return ui.Cut(d.What, 100) + ": expected " + ui.Cut(d.Expected, 200) + ", found " + ui.Cut(d.Found, 200)
}
