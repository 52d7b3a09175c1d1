package view

import (
	"net/url"
	"strconv"
	"time"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/runner"
	"secbox/runner/session"
	"secbox/sandbox/places"
)

// SessionRows is how many sessions a page lists, and how many execs the page of one.
const SessionRows = 50

// The states of sessions that a page can be limited to.
const (
	RunningSessions = "running"
	EndedSessions   = "ended"
)

// SessionsPage is a page of the sessions.
type SessionsPage struct {
	Pager
	Query  url.Values
	Rows   []SessionRow
	Names  map[string]string // of tokens
	Shown  ui.Address        // of this page, live
	Live   bool
	Listed bool // false: the filters were refused
	Now    time.Time
	Curl   string // gets the same from the API
}

// SessionRow is a session.
type SessionRow struct {
	Record audit.Record
	Terms  runner.SessionTerms
	Execs  int64          // so far
	State  *session.State // nil: it does not run on this node
}

// SessionPart is what the page of a session has beside an exec's.
type SessionPart struct {
	SessionRow
	Latest []audit.Record // its latest execs, in their order
	More   bool           // it has had others before
	Used   session.Samples

	// Of a session of this node, or why they are not known.
	Processes      []places.Process
	MoreProcesses  bool
	ProcessesError string
}

// name is what people call the session; its id if it has no name.
func (r SessionRow) name() string {
	if r.Terms.Name != "" {
		return r.Terms.Name
	}
	return r.Record.ExecID
}

func (r SessionRow) ended() bool { return r.Record.Status.Final() }

// ends is when the session has ended, or will at the latest.
func (r SessionRow) ends() time.Time {
	switch {
	case r.ended():
		return r.Record.EndedAt
	case r.State != nil:
		return r.State.ExpiresAt
	}
	return r.Record.CreatedAt.Add(r.Terms.TTL)
}

// running is how many of its execs run; "" if this node does not know it.
func (r SessionRow) running() string {
	if r.State == nil {
		return ""
	}
	return strconv.Itoa(r.State.Running)
}
