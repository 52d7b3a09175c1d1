package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/replay"
)

const namedPoints = 5 // of a kind, in the sentence about a comparison

// ExecReplays is what the page of an exec has about replays.
type ExecReplays struct {
	Record  audit.Record
	Allowed bool   // the caller may run it again, and the record does not say that it cannot
	Refusal string // what the record says to one who may
	Vars    []string
	Key     string // of the form, so that it runs once however often it is sent
	List    []audit.Record
	More    bool // than list
	Points  []replay.Point
	Cut     int           // points that are not listed
	Verdict string        // of the comparison, in a sentence; empty: there is none
	First   *audit.Record // that this one replays; nil: it is no replay, or the first one cannot be read
	Problem string        // why there is no comparison
}

// Verdict sums up a comparison in a sentence.
func Verdict(points []replay.Point) string {
	if len(points) == 0 {
		return ""
	}
	same := 0
	names := map[replay.Equal][]string{}
	for _, p := range points {
		if p.Equal == replay.Yes {
			same++
		} else {
			names[p.Equal] = append(names[p.Equal], ui.Cut(pointName(p), 60))
		}
	}
	text := fmt.Sprintf("It came out the same in %d of %d points", same, len(points))
	for _, other := range []struct {
		what  replay.Equal
		label string
	}{{replay.No, "; different: "}, {replay.Unknown, "; not known: "}} {
		if list := names[other.what]; len(list) > 0 {
			text += other.label + strings.Join(list[:min(len(list), namedPoints)], ", ")
			if more := len(list) - namedPoints; more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
		}
	}
	return text + "."
}

// Rank has the points that differ first.
func Rank(p replay.Point) int {
	return slices.Index([]replay.Equal{replay.No, replay.Unknown, replay.Yes}, p.Equal)
}

// VariableField is the name of the field of a form for the n-th variable, whose own name may be any
// text.
func VariableField(n int) string { return "env." + strconv.Itoa(n) }

// outcomeOf says in a few words how an exec ended.
func outcomeOf(rec audit.Record) string {
	if rec.ExitCode == nil {
		return ""
	}
	return "exit code " + strconv.Itoa(*rec.ExitCode)
}

// pointName is what a point of a comparison is about, for readers.
func pointName(p replay.Point) string {
	switch p.What {
	case "exit_code":
		return "exit code"
	case "stdout":
		return "standard output"
	case "stderr":
		return "standard error"
	case "stdin":
		return "standard input"
	case "work":
		return "other files in work/"
	case "other_inputs":
		return "other files in inputs/"
	}
	return p.What
}

// digestText reports whether a text is a digest: a reader compares only its beginning.
func digestText(s string) bool {
	s = strings.TrimPrefix(s, "sha256:")
	return (len(s) == 64 || len(s) == 32) && strings.Trim(s, "0123456789abcdef") == ""
}
