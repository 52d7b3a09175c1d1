package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns a text that is safe on a terminal and within a line: as it is, or quoted.
func Printable(s string) string {
	const most = 400 // bytes
	if len(s) > most {
		end := most
		for !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	for _, c := range s {
		if !unicode.IsPrint(c) || c == utf8.RuneError {
			return strconv.Quote(s)
		}
	}
	return s
}

// String returns the difference as one line.
func (d Difference) String() string {
	of := "log"
	if d.ExecID != "" {
		of = "exec " + id(d.ExecID)
	}
	return fmt.Sprintf("%s: %s: expected %s, found %s", of, Printable(d.What), Printable(d.Expected), Printable(d.Found))
}

// id returns an id that cannot be taken for several words.
func id(s string) string {
	for _, c := range s {
		if c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '-' && c != '_' && c != '.' {
			return Printable(strconv.Quote(s))
		}
	}
	return Printable(s)
}

// Printer prints differences and the summary, as lines of text or of JSON.
type Printer struct {
	Out  io.Writer
	JSON bool
}

// Begin prints the first line of a run with NewOnly, which says what it leaves out.
func (p Printer) Begin(o Options) {
	left := o.LeftOut()
	switch {
	case !o.NewOnly:
	case p.JSON:
		p.line(map[string]*LeftOut{"left_out": left})
	case left == nil:
		fmt.Fprintln(p.Out, "Left out: nothing; there is no earlier run that this one can continue.")
	default:
		fmt.Fprintf(p.Out, "Left out: %s and %s with their artifacts, unless they have new entries. Changes to them since they were "+
			"compared, the first at %s, are not found; run without --new-only to compare everything.\n",
			many(left.Entries, "entry"), many(left.Execs, "exec"), formatTime(left.FullAt))
	}
}

// Difference prints a difference.
func (p Printer) Difference(d Difference) {
	if p.JSON {
		p.line(d)
		return
	}
	fmt.Fprintln(p.Out, d)
}

// Summary prints the last line.
func (p Printer) Summary(s Summary) {
	if p.JSON {
		p.line(map[string]Summary{"summary": s})
		return
	}
	fmt.Fprintln(p.Out, s)
}

func (p Printer) line(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return
	}
	var line []byte
	for _, c := range string(text) {
		if unicode.IsPrint(c) {
			line = utf8.AppendRune(line, c)
			continue
		}
		for _, half := range utf16.AppendRune(nil, c) { // terminals obey some characters that JSON allows
			line = fmt.Appendf(line, `\u%04x`, half)
		}
	}
	_, _ = p.Out.Write(append(line, '\n'))
}

// String returns the counts as one line.
func (s Summary) String() string {
	text := many(s.Differences, "difference")
	if s.Differences > MaxReported {
		text += fmt.Sprintf(", of which the last %d are not printed", s.Differences-MaxReported)
	}
	if s.Only {
		text += " in a part of the execs, without holds"
	}
	if s.LeftOut != nil {
		text += " in what is new, and " + many(s.LeftOut.Entries, "entry") + " and " + many(s.LeftOut.Execs, "exec") + " were left out"
	}
	text += ": the log has " + many(s.Size, "entry")
	text += fmt.Sprintf("; compared %s, %s", many(s.Events, "event"), many(s.Execs, "exec"))
	if s.Holds > 0 {
		text += ", " + many(s.Holds, "hold")
	}
	if s.Artifacts {
		text += ", " + many(s.ArtifactFiles, "file")
	} else {
		text += "; no artifacts were compared"
	}
	if s.Project != "" && s.Execs == 0 {
		text += fmt.Sprintf("; there is no exec of the project %q", s.Project)
	}
	if s.Pending > 0 {
		text += fmt.Sprintf("; %s not in the log yet", many(s.Pending, "event"))
	}
	if s.Removed > 0 {
		text += fmt.Sprintf("; %s removed by retention", many(s.Removed, "event"))
	}
	if s.ColumnsNewer > 0 {
		text += fmt.Sprintf("; %s with columns that are newer than their last event, and not proven", many(s.ColumnsNewer, "exec"))
	}
	return text
}

func many(n int64, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(what, "y"))
	case strings.HasSuffix(what, "sh"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}
