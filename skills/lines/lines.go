// Package lines reads and replaces ranges of lines in a text file, in memory or as it is read. It knows nothing of paths.
//
// A line ends with LF or CRLF; the last one may end with the file. So "a\nb\n" and "a\nb" have two lines, "\n" has one and "" has none. A
// byte order mark belongs to the file, not to its first line. Lines are counted from 1 and a range includes its end.
package lines

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"secbox/fault"
)

// MaxBytes is the largest content, before or after, whose lines can be edited: what a request's body may hold at most.
const MaxBytes = 32 << 20

// mark is UTF-8's byte order mark.
const mark = "\uFEFF"

// Replace puts the lines of with in the place of the lines start to end. To begin one after the last line, with end equal to start,
// appends. An empty with removes the lines; a line break at its end ends its last line and makes no other.
//
// What is not in the range stays as it is, byte for byte, except that appending ends a last line that had no line break. The new lines
// get the file's line breaks, whatever with has; in a file that has both kinds the more frequent one, and in a file that has none with's
// own. A file whose last line has no line break still has none when that line is replaced or something is appended. An empty file
// becomes with as it is.
//
// Errors: fault.InvalidRequest, naming the field start, end, path or body.
func Replace(content []byte, start, end int, with string) ([]byte, error) {
	if err := check(content); err != nil {
		return nil, err
	}
	c, err := Find(bytes.NewReader(content), start, end, with)
	if err != nil {
		return nil, err
	}
	size := len(content) - int(c.To-c.From) + len(c.Text)
	if size > MaxBytes {
		return nil, fault.BadField("body", "makes the file %d bytes long, more than the %d whose lines can be edited", size, MaxBytes)
	}
	result := make([]byte, 0, size)
	result = append(append(append(result, content[:c.From]...), c.Text...), content[c.To:]...)
	return result, nil
}

// Slice returns the lines start to end without their line breaks. An end beyond the last line means the last line; a start beyond it
// gives no lines, so that a reader may go on page by page until there are none. Never nil without an error, which is
// fault.InvalidRequest, naming the field start, end or path.
func Slice(content []byte, start, end int) ([]string, error) {
	if err := check(content); err != nil {
		return nil, err
	}
	return Read(bytes.NewReader(content), start, end, int64(len(content)))
}

// Count is the number of lines.
func Count(content []byte) int {
	return count(bytes.TrimPrefix(content, []byte(mark)))
}

func count(text []byte) int {
	n := bytes.Count(text, []byte("\n"))
	if len(text) > 0 && !endsInBreak(text) {
		n++
	}
	return n
}

// check refuses what is no text whose lines could be meant.
func check(content []byte) error {
	if len(content) > MaxBytes {
		return fault.BadField("path", "the file has %d bytes, more than the %d whose lines can be read or edited; download it, or use a command",
			len(content), MaxBytes)
	}
	if !utf8.Valid(content) {
		return errNoText
	}
	return nil
}

func checkRange(start, end int) error {
	switch {
	case start < 1:
		return fault.BadField("start", "lines are counted from 1, not from %d", start)
	case end < start:
		return fault.BadField("end", "is %d, before start, which is %d", end, start)
	}
	return nil
}

// beyond says how many lines there are, since whoever gave the range has counted something else.
func beyond(start, end, n int) error {
	lines := "the file has 1 line"
	if n != 1 {
		lines = "the file has " + strconv.Itoa(n) + " lines"
	}
	if start > n {
		return fault.BadField("start", "is %d, but %s; to append, give %d as start and end", start, lines, n+1)
	}
	return fault.BadField("end", "is %d, but %s", end, lines)
}

func endsInBreak(text []byte) bool { return len(text) > 0 && text[len(text)-1] == '\n' }

// restyle gives every line of with the line break; open leaves it out after the last one, unless that is empty and would be no line
// without. Carriage returns before a line break, or at the end, are part of a line break that an editor has mangled.
func restyle(with, lineBreak string, open bool) string {
	var b strings.Builder
	for line := range strings.Lines(with) {
		b.WriteString(strings.TrimRight(strings.TrimSuffix(line, "\n"), "\r"))
		b.WriteString(lineBreak)
	}
	styled := b.String()
	if bare := strings.TrimSuffix(styled, lineBreak); open && bare != "" && !strings.HasSuffix(bare, "\n") {
		return bare
	}
	return styled
}
