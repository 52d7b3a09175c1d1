package view

import (
	"strings"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/sandbox"
)

// Versions are the changes on record before and after a change of a file.
type Versions struct {
	Before, After       *audit.Record // nil: none was found
	MoreBefore, MoreNow bool          // there are changes that were not looked at
	Problem             string        // why nothing is known
}

// Versioned reports whether a record says which content a file has after a change.
func Versioned(rec audit.Record) bool {
	return rec.Kind == audit.KindChange && rec.Status == audit.Succeeded && rec.SHA256After != ""
}

// ChangedPath is the path of the file of a change.
func ChangedPath(rec audit.Record) string {
	if len(rec.Args) == 0 {
		return ""
	}
	return rec.Args[0]
}

// changeTitle is the tool or operation with its file, and where a transfer comes from or goes to.
func changeTitle(rec audit.Record) string {
	words := []string{rec.Cmd}
	for _, arg := range rec.Args {
		if arg != "" {
			words = append(words, ShellQuote(arg))
		}
	}
	return strings.Join(words, " ")
}

// changeAction says what a change did.
func changeAction(rec audit.Record) string {
	var done, meant string
	switch {
	case rec.Cmd == "feishu.upload":
		done, meant = "sent the file to Feishu", "was to send the file to Feishu"
	case rec.SHA256Before == sandbox.Absent:
		done, meant = "made the file", "was to make the file"
	default:
		done, meant = "changed the file", "was to change the file"
	}
	text := ""
	switch {
	case rec.Status == audit.Succeeded:
		text = done
	case rec.Status == audit.Lost:
		text = meant + ", and may have"
	case rec.Status.Final():
		text = meant + ", and did not"
	default:
		text = meant
	}
	return text + " (" + rec.Cmd + ")"
}

// transferred is where a transfer comes from or goes to; empty for other changes.
func transferred(rec audit.Record) (label, where string) {
	if len(rec.Args) < 2 {
		return "", ""
	}
	label = map[string]string{"from": "From", "to": "To"}[rec.Args[1]]
	if label == "" {
		return "", ""
	}
	return label, strings.Join(strings.Fields(strings.Join(rec.Args[2:], " ")), " ")
}

// sizeAfter is the size of the new content.
func sizeAfter(rec audit.Record) string {
	if rec.SizeAfter == nil {
		return ""
	}
	n := *rec.SizeAfter
	if n < 1024 {
		return ui.Bytes(n)
	}
	return ui.Bytes(n) + " (" + ui.Count(n) + " B)"
}

func beforeLabel(rec audit.Record) string {
	if rec.Cmd == "feishu.upload" {
		return "SHA-256 of what was sent"
	}
	return "SHA-256 before"
}

func afterLabel(rec audit.Record) string {
	if rec.Status.Final() && rec.Status != audit.Succeeded && rec.SHA256After != "" {
		return "SHA-256 asked for"
	}
	return "SHA-256 after"
}
