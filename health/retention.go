package health

import "time"

// Retention is what rules removed of the audit, and when the next run is due.
type Retention struct {
	Enabled   bool       `json:"enabled"`
	Running   bool       `json:"running"`
	BeganAt   *time.Time `json:"began_at,omitempty"` // of the running or last run
	Records   int64      `json:"records"`            // that it removed
	Artifacts int64      `json:"artifacts"`          // of execs whose record stays
	Projects  int64      `json:"projects"`           // whose unused inputs or workspace it removed
	Held      int64      `json:"held"`               // execs that a hold kept
	Altered   int64      `json:"altered"`            // execs that stayed because they are not as the transparency log says
	Queued    int64      `json:"queued"`             // removed execs whose artifacts may still be on the disk
	Holds     int64      `json:"holds"`
	NextAt    *time.Time `json:"next_at,omitempty"`

	Problem string `json:"-"` // of this node's last run; empty: none

	// Of all runs of this process.
	TotalRecords   int64 `json:"-"`
	TotalArtifacts int64 `json:"-"`
	TotalProjects  int64 `json:"-"`
}

// retentionProblems reports a run that failed. Execs run nevertheless, so it is a warning.
func retentionProblems(s survey) []Problem {
	switch {
	case s.retentionErr != nil && s.databaseErr == nil:
		return []Problem{{
			Check: "retention", Reason: "the state of retention cannot be read", Remedy: "look into the server's log",
			err: s.retentionErr,
		}}
	case s.retentionErr != nil || s.retention.Problem == "":
		return nil
	}
	return []Problem{{Check: "retention", Reason: s.retention.Problem, Remedy: "see docs/auditing.md, Retention"}}
}
