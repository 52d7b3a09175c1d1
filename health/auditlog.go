package health

import (
	"fmt"
	"time"
)

// AuditLog is the transparency log, and how far it is behind the events of the audit.
type AuditLog struct {
	Entries      int64 `json:"entries"`
	BehindEvents int   `json:"behind_events"` // that it does not have yet
	BehindMS     int64 `json:"behind_ms"`     // age of the first of them

	AnchorDir       string         `json:"-"`                // audit.anchor_dir; empty: none
	AnchoredEntries int64          `json:"anchored_entries"` // of the last checkpoint in audit.anchor_dir; 0: none
	Witnesses       []AuditWitness `json:"witnesses"`

	SignedAt      time.Time `json:"-"` // of the newest checkpoint; zero: there is none
	Problem       string    `json:"-"` // why this node cannot extend it; empty: it can, or another one does
	Halted        string    `json:"-"` // why this node does not extend it until its next start; empty: it does
	HaltedRemedy  string    `json:"-"`
	AnchorProblem string    `json:"-"` // with the remedy
}

// AuditWitness is a witness of the transparency log.
type AuditWitness struct {
	Name    string `json:"name"`
	Entries int64  `json:"entries"` // of the newest checkpoint that it has cosigned since this process started

	Root       string        `json:"-"` // of that checkpoint
	CosignedAt time.Time     `json:"-"` // when it did
	Since      time.Time     `json:"-"` // from when on it has cosigned, or has not
	Problem    string        `json:"-"` // of the last attempt
	ProblemFor time.Duration `json:"-"`
}

// auditLogLate is how far the log may be behind without a problem: it is extended every half
// second, and after a node's death another one waits 10 seconds.
const auditLogLate = 30 * time.Second

// auditWatchProblems reports a log that the database has lost, and checkpoints that do not get out
// of the database.
func auditWatchProblems(log AuditLog) []Problem {
	var p []Problem
	if log.Halted != "" {
		p = append(p, Problem{Check: "audit_log", Reason: log.Halted, Remedy: log.HaltedRemedy})
	}
	if log.AnchorProblem != "" && log.Halted == "" {
		p = append(p, Problem{
			Check: "audit_anchor", Reason: log.AnchorProblem,
			Remedy: "execs and the log go on; until it is repaired, a rollback of the database may go unnoticed",
		})
	}
	for _, w := range log.Witnesses {
		if w.Problem != "" && w.ProblemFor >= auditLogLate && log.Halted == "" {
			p = append(p, Problem{
				Check: "audit_witness", Reason: fmt.Sprintf("%s; the log has %d entries, and it has cosigned %d", w.Problem, log.Entries,
					w.Entries),
				Remedy: "start the witness, or check its address and key in audit.witnesses; execs and the log go on without it",
			})
		}
	}
	return p
}

// auditLogProblems reports a log that is behind. Execs run nevertheless, so it is a warning.
func auditLogProblems(s survey) []Problem {
	switch late := time.Duration(s.auditLog.BehindMS) * time.Millisecond; {
	case s.auditLogErr != nil && s.databaseErr == nil:
		return []Problem{{
			Check: "audit_log", Reason: "the transparency log cannot be read", Remedy: "look into the server's log",
			err: s.auditLogErr,
		}}
	case s.auditLogErr != nil || late < auditLogLate || s.auditLog.Halted != "":
		return nil
	default:
		p := Problem{
			Check: "audit_log", Reason: fmt.Sprintf("the transparency log lacks %d events, the first of them %s old",
				s.auditLog.BehindEvents, late.Round(time.Second)),
			Remedy: "after an upgrade, wait until it has the events from before; else look into the server's log",
		}
		if s.auditLog.Problem != "" {
			p.Reason, p.Remedy = p.Reason+": "+s.auditLog.Problem, "see docs/auditing.md, Transparency log"
		}
		return []Problem{p}
	}
}
