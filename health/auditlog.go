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

	Problem string `json:"-"` // why this node cannot extend it; empty: it can, or another one does
}

// auditLogLate is how far the log may be behind without a problem: it is extended every half second, and after a node's death another one waits
// 10 seconds.
const auditLogLate = 30 * time.Second

// auditLogProblems reports a log that is behind. Execs run nevertheless, so it is a warning.
func auditLogProblems(s survey) []Problem {
	switch late := time.Duration(s.auditLog.BehindMS) * time.Millisecond; {
	case s.auditLogErr != nil && s.databaseErr == nil:
		return []Problem{{Check: "audit_log", Reason: "the transparency log cannot be read", Remedy: "look into the server's log", err: s.auditLogErr}}
	case s.auditLogErr != nil || late < auditLogLate:
		return nil
	default:
		p := Problem{
			Check: "audit_log", Reason: fmt.Sprintf("the transparency log lacks %d events, the first of them %s old", s.auditLog.BehindEvents, late.Round(time.Second)),
			Remedy: "after an upgrade, wait until it has the events from before; else look into the server's log",
		}
		if s.auditLog.Problem != "" {
			p.Reason, p.Remedy = p.Reason+": "+s.auditLog.Problem, "see docs/auditing.md, Transparency log"
		}
		return []Problem{p}
	}
}
