// Package lines reads and replaces ranges of lines in a text, in memory or from a reader. It must
// not know files or paths.
//
// A line ends with LF or CRLF; the last one may end with the text. So "a\nb\n" and "a\nb" have two
// lines, "\n" has one and "" has none. A byte order mark is not part of the first line. Lines are
// counted from 1, and a range includes its end.
package lines

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"secbox/fault"
)

// maxBytes bounds the content whose lines can be edited in memory, before and after: the limit of a
// request's body.
const maxBytes = 32 << 20

// mark is UTF-8's byte order mark.
const mark = "\uFEFF"

// Replace replaces the lines start to end by with. With start and end after the last line it
// appends. An empty with removes the lines; a line break at the end of with ends its last line and
// makes no other.
//
// The other lines stay as they are, byte for byte, except that appending ends a last line that had
// no line break. The new lines get the line breaks of the text. In a text with both kinds, they get
// the more frequent one. In a text without line breaks, they keep the line breaks of with. A text
// whose last line has no line break still has none when that line is replaced or lines are
// appended. An empty text becomes with, unchanged.
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
	if size > maxBytes {
		return nil, fault.BadField("body", "makes the file %d bytes long, more than the %d whose lines can be edited", size, maxBytes)
	}
	result := make([]byte, 0, size)
	result = append(append(append(result, content[:c.From]...), c.Text...), content[c.To:]...)
	return result, nil
}

// Slice returns the lines start to end without their line breaks. Lines after the last one are left
// out, so that a reader can go on page by page until there are none. The result is never nil
// without an error, which is fault.InvalidRequest, naming the field start, end or path.
func Slice(content []byte, start, end int) ([]string, error) {
	if err := check(content); err != nil {
		return nil, err
	}
	return Read(bytes.NewReader(content), start, end, int64(len(content)))
}

// check refuses content that has no lines, or is too long.
func check(content []byte) error {
	if len(content) > maxBytes {
		return fault.BadField("path",
			"the file has %d bytes, more than the %d whose lines can be read or edited; download it, or use a command",
			len(content), maxBytes)
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

// beyond returns the error for a range after the last line. It gives the number of lines.
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

// restyle gives every line of with the line break. If open, the last line gets none, unless it is
// empty and would not be a line then. Carriage returns before a line break, or at the end, belong
// to a line break that an editor has damaged.
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
