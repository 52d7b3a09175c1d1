// Package lines reads and replaces ranges of lines in a text file. It works on bytes in memory and knows nothing of files.
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
	if !utf8.ValidString(with) {
		return nil, fault.BadField("body", "is not UTF-8; lines can only be replaced by text")
	}
	with = strings.TrimLeft(with, mark)
	text := bytes.TrimPrefix(content, []byte(mark))
	head := content[:len(content)-len(text)]

	if err := checkRange(start, end); err != nil {
		return nil, err
	}
	n := count(text)
	appends := start == n+1 && end == start
	if !appends && end > n {
		return nil, beyond(start, end, n)
	}
	from := offset(text, start-1)
	to := from + offset(text[from:], end-start+1)
	before, after := text[:from], text[to:]

	if len(text) > 0 {
		with = restyle(with, style(text, with), !endsInBreak(text) && len(after) == 0)
	}
	var glue string
	if appends && with != "" && len(text) > 0 && !endsInBreak(text) {
		glue = style(text, with)
	}
	if size := len(head) + len(before) + len(glue) + len(with) + len(after); size > MaxBytes {
		return nil, fault.BadField("body", "makes the file %d bytes long, more than the %d whose lines can be edited", size, MaxBytes)
	}
	result := make([]byte, 0, len(head)+len(before)+len(glue)+len(with)+len(after))
	for _, part := range [][]byte{head, before, []byte(glue), []byte(with), after} {
		result = append(result, part...)
	}
	return result, nil
}

// Slice returns the lines start to end without their line breaks. An end beyond the last line means the last line; a start beyond it
// gives no lines, so that a reader may go on page by page until there are none. Never nil without an error, which is
// fault.InvalidRequest, naming the field start, end or path.
func Slice(content []byte, start, end int) ([]string, error) {
	if err := check(content); err != nil {
		return nil, err
	}
	if err := checkRange(start, end); err != nil {
		return nil, err
	}
	text := bytes.TrimPrefix(content, []byte(mark))
	text = text[offset(text, start-1):]
	list := []string{}
	for n := end - start; len(text) > 0 && n >= 0; n-- {
		line, rest, broken := bytes.Cut(text, []byte("\n"))
		if broken {
			line = bytes.TrimSuffix(line, []byte("\r"))
		}
		list = append(list, string(line))
		text = rest
	}
	return list, nil
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
		return fault.BadField("path", "the file is not UTF-8 text, so it has no lines; leave out start and end to read or replace it as a whole")
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

// offset is where the line after the first n begins, or the end of the text.
func offset(text []byte, n int) int {
	at := 0
	for ; n > 0 && at < len(text); n-- {
		next := bytes.IndexByte(text[at:], '\n')
		if next < 0 {
			return len(text)
		}
		at += next + 1
	}
	return at
}

func endsInBreak(text []byte) bool { return len(text) > 0 && text[len(text)-1] == '\n' }

// style is the line break that new lines get in a text that is not empty.
func style(text []byte, with string) string {
	crlf := bytes.Count(text, []byte("\r\n"))
	lf := bytes.Count(text, []byte("\n")) - crlf
	if crlf+lf == 0 {
		crlf = strings.Count(with, "\r\n")
		lf = strings.Count(with, "\n") - crlf
	}
	if crlf > lf {
		return "\r\n"
	}
	return "\n"
}

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
