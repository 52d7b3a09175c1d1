package health

import (
	"fmt"
	"time"

	"secbox/audit"
)

// Spool counts the results of execs that the database does not have.
type Spool struct {
	Results  int   `json:"results"`       // that wait in the state dir or in memory
	Refused  int   `json:"refused"`       // of these, the results that the database did not take when it was last asked
	InMemory int   `json:"in_memory"`     // of these, the results that the state dir did not take either
	Damaged  int   `json:"damaged_files"` // files of the spool from which no record can be read
	OldestMS int64 `json:"oldest_ms"`     // since the first end of the results
}

func spoolOf(u audit.Unstored, now func() time.Time) Spool {
	s := Spool{Results: u.Results, Refused: u.Refused, InMemory: u.InMemory, Damaged: u.Damaged}
	if !u.Oldest.IsZero() {
		s.OldestMS = max(0, now().Sub(u.Oldest).Milliseconds())
	}
	return s
}

// spoolProblems reports results that the database does not have. Execs run nevertheless, so they
// are warnings.
func spoolProblems(s survey, now func() time.Time) []Problem {
	const check = "audit_spool"
	if s.spoolErr != nil {
		return []Problem{{
			Check: check, Reason: "the audit spool in the state dir cannot be read",
			Remedy: "check the owner and the mode of the state dir", err: s.spoolErr,
		}}
	}
	var p []Problem
	u := s.spool
	if u.Results > 0 {
		age := (time.Duration(spoolOf(u, now).OldestMS) * time.Millisecond).Round(time.Second)
		one := Problem{
			Check: check, Reason: fmt.Sprintf("the database does not have the results of %s, the first of them %s old; until it has "+
				"them, their rows are as they were before", execs(u.Results), age),
			Remedy: "they are kept and written as soon as the database takes them; `core-api audit spool list` shows them",
		}
		if u.Refused > 0 {
			one.Reason += fmt.Sprintf(". It did not take %d, among them exec %s: %s", u.Refused, u.ExecID, u.Reason)
			one.Remedy = "repair the cause: the results are kept and tried again, at least every 30 seconds; `core-api audit spool list` " +
				"shows them, and `core-api audit spool store EXEC_ID` tries one now, with the database's words"
		}
		if u.InMemory > 0 {
			one.Reason += fmt.Sprintf(". %d of them are in memory only, since the state dir did not take them: they are lost when this process ends", u.InMemory)
		}
		p = append(p, one)
	}
	if u.Damaged > 0 {
		p = append(p, Problem{
			Check:  check,
			Reason: fmt.Sprintf("%d files of the audit spool hold no record that can be read, among them %q; the rows of their execs stay open", u.Damaged, u.DamagedFile),
			Remedy: "`core-api audit spool list` shows them; repair or restore them, or end such an exec as lost with `core-api audit " +
				"spool discard FILE`",
		})
	}
	return p
}

func execs(n int) string {
	if n == 1 {
		return "1 exec"
	}
	return fmt.Sprintf("%d execs", n)
}
