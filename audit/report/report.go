// Package report answers what an auditor asks about a span of time: who ran what, what was refused,
// what changed, what was removed and by which rule. A Report is made of documents only, so that the
// page of the console and a reader of a bundle get the same from the same documents.
//
// A bundle is a file with the documents, the proof that the transparency log has them and no others
// between two of its entries, and the report. CheckBundle verifies it without a network. The
// package must not know databases or HTTP; package export writes bundles.
package report

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"secbox/audit"
	"secbox/audit/admin"
)

// Bounds of a report. Callers choose the values that are counted, and so how many there are.
const (
	mostGroups   = 100 // callers, and rules
	mostExamples = 5   // of each count
	mostText     = 255 // bytes of a value; longer ones are cut
	mostMessage  = 300 // bytes of a refusal's message
	mostData     = 1 << 10
)

// Span is a time: since inclusive, until exclusive.
type Span struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Has reports whether the span has a moment.
func (s Span) Has(t time.Time) bool { return !t.Before(s.Since) && t.Before(s.Until) }

// Exec is what a report needs of a record. Its JSON names are the record's.
type Exec struct {
	ExecID      string       `json:"exec_id"`
	Kind        audit.Kind   `json:"kind"`
	ProjectID   string       `json:"project_id"`
	AgentID     string       `json:"agent_id"`
	UserID      string       `json:"user_id"`
	SkillID     string       `json:"skill_id"`
	RequestedBy string       `json:"requested_by"`
	Status      audit.Status `json:"status"`
	ErrorReason audit.Reason `json:"error_reason"`
	Detail      string       `json:"detail"`
	CreatedAt   time.Time    `json:"created_at"`
}

// ExecOf returns the part of a record that a report needs.
func ExecOf(r audit.Record) Exec {
	return Exec{
		r.ExecID, r.Kind, r.ProjectID, r.AgentID, r.UserID, r.SkillID, r.RequestedBy, r.Status, r.ErrorReason, r.Detail,
		r.CreatedAt,
	}.cut()
}

// cut bounds the texts. The result shares no memory with longer texts.
func (x Exec) cut() Exec {
	for _, s := range []*string{&x.ExecID, &x.ProjectID, &x.AgentID, &x.UserID, &x.SkillID, &x.RequestedBy} {
		*s = short(*s, mostText)
	}
	x.Kind, x.Status = audit.Kind(short(string(x.Kind), mostText)), audit.Status(short(string(x.Status), mostText))
	x.ErrorReason = audit.Reason(short(string(x.ErrorReason), mostText))
	if x.Status != audit.Rejected {
		x.Detail = ""
	}
	x.Detail, x.CreatedAt = short(x.Detail, mostMessage), x.CreatedAt.UTC()
	return x
}

func short(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-len("…")], "") + "…"
	}
	return strings.Clone(s)
}

// size is the memory of an exec in bytes, about.
func (x Exec) size() int {
	return len(x.ExecID) + len(x.ProjectID) + len(x.AgentID) + len(x.UserID) + len(x.SkillID) + len(x.RequestedBy) + len(x.Detail) + 256
}

// Report is what happened in a span. Lists are sorted, and the same facts give the same report in
// whatever order they come.
type Report struct {
	Span
	Execs    int64            `json:"execs"`   // created in the span
	Changes  int64            `json:"changes"` // of files, created in the span
	ByStatus map[string]int64 `json:"by_status"`
	Refusals

	Who        []Who     `json:"who"`         // the largest counts first
	WhoOmitted int64     `json:"who_omitted"` // records of callers that Who leaves out
	Refused    []Refused `json:"refused"`

	Events  []Events  `json:"events"`  // administrative ones, by area and kind
	Removed []Removed `json:"removed"` // by retention
	Gaps    Gaps      `json:"gaps"`    // of a bundle
}

// Who is what one caller ran for one user, agent, project and skill.
type Who struct {
	RequestedBy string           `json:"requested_by"`
	UserID      string           `json:"user_id"`
	AgentID     string           `json:"agent_id"`
	ProjectID   string           `json:"project_id"`
	SkillID     string           `json:"skill_id"`
	Kind        audit.Kind       `json:"kind"`
	Count       int64            `json:"count"`
	ByStatus    map[string]int64 `json:"by_status"`
	Refusals
}

// Refusals counts refused requests. Other counts are of records, and a record with the reason
// refusals_omitted stands for requests that have none. Bundles of the format v1 do not have it.
type Refusals struct {
	Requests   int64 `json:"refused_requests,omitzero"`
	Unrecorded int64 `json:"unrecorded,omitzero"` // of Requests: they have no rows of their own
}

func (r *Refusals) add(x Exec) {
	n := audit.UnrecordedRefusals(x.ErrorReason, x.Detail)
	r.Requests += max(n, 1)
	r.Unrecorded += n
}

// WithoutRows says how many of the requests have no rows, to be read after their number; empty if
// all have rows. count formats a number.
func (r Refusals) WithoutRows(count func(int64) string) string {
	switch r.Unrecorded {
	case 0:
		return ""
	case r.Requests:
		return " without rows of their own"
	}
	return ", " + count(r.Unrecorded) + " of them without rows of their own"
}

// Refused counts refusals for one reason.
type Refused struct {
	Reason audit.Reason `json:"reason"`
	Count  int64        `json:"count"` // records
	Refusals
	Messages int64     `json:"messages,omitzero"` // different ones; not in bundles of v1
	Examples []Refusal `json:"examples"`          // the newest with each message, of the newest messages
}

// Refusal is a request that was refused.
type Refusal struct {
	ExecID      string    `json:"exec_id"`
	At          time.Time `json:"at"`
	RequestedBy string    `json:"requested_by"`
	ProjectID   string    `json:"project_id"`
	Message     string    `json:"message"`
	Records     int64     `json:"records,omitzero"` // of the reason, with this message; not in bundles of v1
}

// Events counts administrative events of one kind.
type Events struct {
	Area     Area       `json:"area"`
	Kind     admin.Kind `json:"kind"`
	Count    int64      `json:"count"`
	Examples []Event    `json:"examples"` // the newest
}

// Event is an administrative event.
type Event struct {
	Seq     int64          `json:"seq"`
	At      time.Time      `json:"at"`
	Actor   admin.Actor    `json:"actor"`
	Subject string         `json:"subject"`
	Data    jsontext.Value `json:"data,omitempty"` // unless it is long
}

// The parts of Removed.
const (
	Records    = "record"
	Artifacts  = "artifacts"
	Workspaces = "workspace"
)

// Removed counts what a rule of retention removed.
type Removed struct {
	Rule  string   `json:"rule"`
	Part  string   `json:"part"`
	Count int64    `json:"count"`
	Named []string `json:"named"` // some of the execs or workspaces
}

// Gaps are entries of the log whose event a bundle does not have.
type Gaps struct {
	Removed int64   `json:"removed"` // an event of retention in the bundle names them
	Unknown int64   `json:"unknown"` // nothing says why: their events cannot be proven
	First   []int64 `json:"first"`   // the first of the unknown ones
}

// Answer is a report about the newest records of a span, as the database has them.
type Answer struct {
	Report       Report    `json:"report"`
	Complete     bool      `json:"complete"`      // all of the span was counted
	CountedSince time.Time `json:"counted_since"` // execs and changes
	EventsSince  time.Time `json:"events_since"`  // administrative events
	Unproven     Unproven  `json:"unproven"`
	Compared     int64     `json:"compared"` // newest entries of the log until the end of the span that were compared

	Denied  map[string]int64 `json:"denied"`  // requests by each field that policy refused; one may have several
	Exports int64            `json:"exports"` // that began: each has an event then, and one at its end
}

// AllRecords reports whether all execs and changes of the span were counted.
func (a Answer) AllRecords() bool { return !a.CountedSince.After(a.Report.Since) }

// AllEvents reports whether all administrative events of the span were counted.
func (a Answer) AllEvents() bool { return !a.EventsSince.After(a.Report.Since) }
