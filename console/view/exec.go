package view

import (
	"secbox/audit"
	"secbox/audit/retention"
	"secbox/runner/webhooks"
)

// ExecPage is what is known of one exec.
type ExecPage struct {
	Record    audit.Record
	Token     string
	MayCancel bool
	Canceling bool // the caller has just asked for its end
	Events    []audit.Event
	Policy    []PolicyField
	Limits    []Limit
	Output    []Stream
	Artifacts FileList
	Inputs    FileList
	Skill     ExecSkill
	Replay    ExecReplays
	Proof     ProofState
	Callback  *webhooks.Delivery // nil: none
	Holds     []retention.Hold   // that keep it, for those who may know of holds
	MayHold   bool
	Before    string // the exec before in the project; empty: none
	After     string
	Spooled   bool   // the database does not have its end
	Live      bool   // it has not ended, or its end completes a live page
	Curl      string // gets the record from the API
}

// HeldRows bounds the holds on the page of an exec.
const HeldRows = 5

// neverRan reports whether no command of an exec was started: it was refused, or ended while it waited.
func neverRan(rec audit.Record) bool {
	return rec.Status == audit.Rejected || rec.Status.Final() && rec.Status != audit.Lost && rec.StartedAt.IsZero()
}
