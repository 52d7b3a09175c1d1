package view

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/audit"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/console/ui"
	"secbox/policy"
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
	Versions  Versions // of a change
	Skill     ExecSkill
	Session   *SessionPart // nil: the exec is none
	Replay    ExecReplays
	Proof     ProofState
	Callback  *webhooks.Delivery // nil: none
	Network   []audit.Connection // the first ones
	Holds     []retention.Hold   // that keep it, for those who may know of holds
	MayHold   bool
	Before    string // the exec before in the project; empty: none
	After     string
	Spooled   bool   // the database does not have its end
	Live      bool   // it has not ended, or its end completes a live page
	Curl      string // gets the record from the API
	Now       time.Time
}

// section is a part of the page, with the id of its panel.
type section struct{ id, label string }

// sections returns the parts of the page, in their order.
func (p ExecPage) sections() []section {
	ran, exec := ranCommand(p.Record), p.Record.Kind != audit.KindChange
	all := []struct {
		section
		shown bool
	}{
		{section{"command", whatTitle(p.Record)}, p.Record.ErrorReason != audit.RefusalsOmitted},
		{section{"outcome", "Outcome"}, true},
		{section{"for", "For whom"}, true},
		{section{"session", "Session"}, p.Session != nil},
		{section{"terminal", "Terminal"}, p.Record.TTYRecord != ""},
		{section{"stdout", "Output"}, ran && (p.silent() || p.streamShown("stdout"))},
		{section{"stderr", "Standard error"}, p.streamShown("stderr")},
		{section{"timeline", "Timeline"}, true},
		{section{"resources", "Resources"}, ran && len(p.Limits) > 0},
		{section{"connections", "Connections"}, len(p.Network) > 0},
		{section{"webhook", "Webhook"}, p.Callback != nil},
		{section{"comparison", "Comparison"}, p.Replay.Problem != "" || len(p.Replay.Points) > 0},
		{section{"artifacts", "Artifacts"}, ran && p.Artifacts.hasContent()},
		{section{"inputs", "Inputs"}, exec && p.Inputs.hasContent()},
		{section{"policy", "Policy"}, exec && len(p.Policy) > 0},
		{section{"replay", "Replay"}, exec && (p.Replay.Allowed || p.Replay.Refusal != "" || len(p.Replay.List) > 0)},
		{section{"proof", "Proof"}, true},
	}
	var out []section
	for _, s := range all {
		if s.shown {
			out = append(out, s.section)
		}
	}
	return out
}

// has reports whether the page has a section.
func (p ExecPage) has(id string) bool {
	return slices.ContainsFunc(p.sections(), func(s section) bool { return s.id == id })
}

// silent reports whether a command that has ended wrote nothing at all.
func (p ExecPage) silent() bool {
	return ranCommand(p.Record) && len(p.Output) > 0 && !slices.ContainsFunc(p.Output, func(s Stream) bool { return !s.silent() })
}

// shownStreams are the streams that have a panel: all unless the exec has ended, and then those
// that were written to.
func (p ExecPage) shownStreams() (out []Stream) {
	for _, s := range p.Output {
		if ranCommand(p.Record) && !s.silent() {
			out = append(out, s)
		}
	}
	return out
}

func (p ExecPage) streamShown(name string) bool {
	return slices.ContainsFunc(p.shownStreams(), func(s Stream) bool { return s.Name == name })
}

// begun is when an exec that runs began, as far as that is on record before its end.
func (p ExecPage) begun() time.Time {
	if i := slices.IndexFunc(p.Events, func(e audit.Event) bool { return e.Kind == audit.EventStarted }); i >= 0 {
		return p.Events[i].At
	}
	return p.Record.CreatedAt
}

// timeoutOf is the time limit of an exec; zero if it is not known, and for a session, whose execs
// have the policy's.
func timeoutOf(rec audit.Record) time.Duration {
	snapshot, err := policy.ParseSnapshot(rec.PolicySnapshot)
	if err != nil || rec.IsSession() {
		return 0
	}
	return time.Duration(snapshot.Values.TimeoutMS) * time.Millisecond
}

// counted says how long an exec has run, and what is left of most; live.js counts it up.
func counted(since, most time.Duration) string {
	whole := func(d time.Duration) string {
		if d = max(0, d.Truncate(time.Second)); d < time.Minute {
			return strconv.Itoa(int(d.Seconds())) + " s"
		}
		return ui.Duration(d.Milliseconds())
	}
	text := whole(since) + " until now"
	if most > 0 {
		text += ", at most " + whole(most-since) + " left"
	}
	return text
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
	LoggedAt    time.Time             // since when the log has it
	Witnesses   []translog.Witnessed  // whether they have cosigned it
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

// checkCommand checks the proof of an exec and its cosignatures, in the directory of the downloads.
func (p ExecPage) checkCommand() string {
	command := "secbox audit check " + ProofFile(p.Record) + " --key log.pub"
	for _, w := range p.Proof.Witnesses {
		if w.Key != "" {
			command += " --witness-key " + ShellQuote(w.Key)
		}
	}
	return command
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
