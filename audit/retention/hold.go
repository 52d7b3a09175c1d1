package retention

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"secbox/fault"
)

// HoldKind is what a hold names.
type HoldKind string

// The kinds of holds.
const (
	HoldProject HoldKind = "project"
	HoldUser    HoldKind = "user"
	HoldTask    HoldKind = "task"
	HoldExec    HoldKind = "exec"
)

// HoldKinds are all kinds.
var HoldKinds = []HoldKind{HoldProject, HoldUser, HoldTask, HoldExec}

// Hold keeps execs from being removed.
type Hold struct {
	ID        string
	Kind      HoldKind
	Value     string // the id of the project, user, task or exec
	Reason    string
	AddedAt   time.Time
	AddedBy   string // a token's id, or "command line"
	RemovedAt time.Time
	RemovedBy string
}

// HoldCursor is the place of a hold in a list.
type HoldCursor struct {
	AddedAt time.Time
	ID      string
}

const (
	// MaxHolds bounds the holds at one time: every exec that retention looks at is compared with
	// them.
	MaxHolds = 10_000

	maxHoldValue  = 255
	maxHoldReason = 1000
)

// Check refuses a hold that cannot be added, and names the fields.
func (h Hold) Check() error {
	var bad fault.Fields
	if !slices.Contains(HoldKinds, h.Kind) {
		bad.Add("kind", "must be project, user, task or exec")
	}
	// Users and tasks are what clients named them, with any character but those that no request may
	// have.
	if h.Value == "" {
		bad.Add("value", "is missing: give the id of the project, user, task or exec")
	} else if len(h.Value) > maxHoldValue || !utf8.ValidString(h.Value) ||
		strings.ContainsFunc(h.Value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		bad.Add("value", "must be at most %d bytes of UTF-8 without control characters", maxHoldValue)
	}
	if strings.TrimSpace(h.Reason) == "" {
		bad.Add("reason", "is missing: say why, for those who will ask whether the hold may be released")
	} else if len(h.Reason) > maxHoldReason || !plain(h.Reason) {
		bad.Add("reason", "must be 1 to %d bytes of UTF-8 that can be printed", maxHoldReason)
	}
	return bad.Err()
}

func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
