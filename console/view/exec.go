package view

import (
	"fmt"
	"net/http"
	"strings"

	"secbox/audit"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/console/ui"
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

// neverRan reports whether no command of an exec was started: it was refused, or ended while it
// waited.
func neverRan(rec audit.Record) bool {
	return rec.Status == audit.Rejected || rec.Status.Final() && rec.Status != audit.Lost && rec.StartedAt.IsZero()
}

// ExecSkill is the skill that an exec ran.
type ExecSkill struct {
	ID, Digest string // empty id: none
	Catalogued bool   // the catalog has it
	Package    ui.Address
	Owner      string // of the package, such as agent / user; empty: it came from no package that the caller may read
}

// execs leads to the execs of the skill, or of this version of it.
func (s ExecSkill) execs(sameVersion bool) ui.Address {
	to := ui.Link("history").With("skill_id", s.ID)
	if sameVersion {
		to = to.With("skill_digest", s.Digest)
	}
	return to
}

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

// callbackState says how far a webhook is.
func callbackState(d webhooks.Delivery) string {
	switch d.Now() {
	case webhooks.Open:
		return "waits for the end of the exec"
	case webhooks.Due:
		return "due: it is repeated until the service answers 2xx"
	case webhooks.Sending:
		return "being sent: the service may have it"
	case webhooks.Delivered:
		return "delivered"
	case webhooks.Failed:
		return "failed: no try is left, or the service answered 410"
	}
	return string(d.State)
}

// answerOf says what a try got.
func answerOf(t webhooks.Try) string {
	if t.Status == 0 {
		return t.Error
	}
	answer := strings.TrimSpace(fmt.Sprintf("%d %s", t.Status, http.StatusText(t.Status)))
	if t.Error != "" {
		answer += ": " + t.Error
	}
	return answer
}
