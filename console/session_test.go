package console_test

import (
	"testing"

	"secbox/audit"
)

// TestExecsOfSessions: the page of an exec in a session names it, and the page of a session claims
// no limit of a single command.
func TestExecsOfSessions(t *testing.T) {
	t.Parallel()
	f := fullApp()
	server := f.serve(t)
	path := server + "/console/execs/" + execID(2)
	rec := &f.records[58]
	says(t, get(t, path), []string{"Share Time"}, []string{"Session number", "Context"})
	rec.SessionID, rec.SessionSeq, rec.Context, rec.Warm = execID(1), 3, "main", true
	says(t, get(t, path), []string{"Session number 3 in " + execID(1), "Context main", "in its session’s container"}, []string{"that waited for"})
	rec.SessionID, rec.SessionSeq, rec.Context, rec.Warm, rec.Status = rec.ExecID, 0, "", false, audit.Running
	rec.PolicySnapshot = defaultPolicy()
	says(t, get(t, path), []string{"This is a session: the execs in it", "until now", "Memory"}, []string{" left", "Share Time"})
}
