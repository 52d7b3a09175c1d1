package lines

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"secbox/fault"
)

// Change replaces the bytes From to To of a file by Text.
type Change struct {
	From, To int64
	Text     string
}

// Find reads a file piece by piece and returns the change that Replace would make to it. It returns
// the errors of Replace and of r.
func Find(r io.Reader, start, end int, with string) (Change, error) {
	if !utf8.ValidString(with) {
		return Change{}, fault.BadField("body", "is not UTF-8; lines can only be replaced by text")
	}
	if err := checkRange(start, end); err != nil {
		return Change{}, err
	}
	s, err := survey(r, start, end)
	if err != nil {
		return Change{}, err
	}
	n := s.breaks
	if s.open() {
		n++
	}
	appends := start == n+1 && end == start
	if !appends && end > n {
		return Change{}, beyond(start, end, n)
	}
	with = strings.TrimLeft(with, mark)
	if s.text > 0 {
		lineBreak := s.style(with)
		with = restyle(with, lineBreak, s.open() && s.to == s.size)
		if appends && with != "" && s.open() {
			with = lineBreak + with
		}
	}
	return Change{s.from, s.to, with}, nil
}

// surveyed is the result of one pass through a file.
type surveyed struct {
	size, text   int64 // bytes, with and without a byte order mark
	from, to     int64 // the range; the file's end for missing lines
	breaks, crlf int
	last         byte
}

// open reports whether the last line has no line break.
func (s surveyed) open() bool { return s.text > 0 && s.last != '\n' }

func (s surveyed) style(with string) string {
	crlf, lf := s.crlf, s.breaks-s.crlf
	if s.breaks == 0 {
		crlf = strings.Count(with, "\r\n")
		lf = strings.Count(with, "\n") - crlf
	}
	return moreFrequent(crlf, lf)
}

// Break returns the line break that a text has most often, "\r\n" or "\n"; "\n" if it has none.
func Break(text []byte) string {
	crlf := bytes.Count(text, []byte("\r\n"))
	return moreFrequent(crlf, bytes.Count(text, []byte("\n"))-crlf)
}

// Unix returns a program without a byte order mark, and with line breaks \n if all are \r\n, as
// editors on Windows write it: bash takes the \r for a part of words. A text with both kinds keeps
// them, since a \r in it may be meant.
func Unix(program string) string {
	program = strings.TrimPrefix(program, mark)
	if crlf := strings.Count(program, "\r\n"); crlf == strings.Count(program, "\n") {
		program = strings.ReplaceAll(program, "\r\n", "\n")
	}
	return program
}

func moreFrequent(crlf, lf int) string {
	if crlf > lf {
		return "\r\n"
	}
	return "\n"
}

func survey(r io.Reader, start, end int) (s surveyed, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(len(mark))
	if err != nil && !errors.Is(err, io.EOF) {
		return s, err
	}
	if string(head) == mark {
		_, _ = in.Discard(len(mark))
		s.size = int64(len(mark))
	}
	if start == 1 {
		s.from = s.size
	}
	first := s.size
	var runes validator
	for {
		piece, err := in.ReadSlice('\n')
		if !runes.add(piece) {
			return s, errNoText
		}
		s.size += int64(len(piece))
		if n := len(piece); n > 0 && piece[n-1] == '\n' {
			before := s.last
			if n > 1 {
				before = piece[n-2]
			}
			if before == '\r' {
				s.crlf++
			}
			s.breaks++
			if s.breaks == start-1 {
				s.from = s.size
			}
			if s.breaks == end {
				s.to = s.size
			}
		}
		if len(piece) > 0 {
			s.last = piece[len(piece)-1]
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return s, err
		}
	}
	if !runes.done() {
		return s, errNoText
	}
	s.text = s.size - first
	if start > 1 && s.breaks < start-1 {
		s.from = s.size
	}
	if s.breaks < end {
		s.to = s.size
	}
	return s, nil
}

var errNoText = fault.BadField("path",
	"the file is not UTF-8 text, so it has no lines; leave out start and end to read or replace it as a whole")

// validator checks for UTF-8 in a text that is read in pieces.
type validator struct{ tail []byte }

func (v *validator) add(piece []byte) bool {
	if len(v.tail) > 0 {
		for len(piece) > 0 && !utf8.FullRune(v.tail) {
			v.tail = append(v.tail, piece[0])
			piece = piece[1:]
		}
		if !utf8.FullRune(v.tail) {
			return true
		}
		if !utf8.Valid(v.tail) {
			return false
		}
		v.tail = v.tail[:0]
	}
	for n := 1; n < utf8.UTFMax && n <= len(piece); n++ {
		if at := len(piece) - n; utf8.RuneStart(piece[at]) {
			if !utf8.FullRune(piece[at:]) {
				v.tail = append(v.tail, piece[at:]...)
				piece = piece[:at]
			}
			break
		}
	}
	return utf8.Valid(piece)
}

func (v *validator) done() bool { return len(v.tail) == 0 }

// Read returns the lines start to end, as Slice does, and reads no further. Together they may have
// most bytes: fault.FileTooLarge otherwise. Only the returned lines must be UTF-8.
func Read(r io.Reader, start, end int, most int64) ([]string, error) {
	if err := checkRange(start, end); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(r, 64<<10)
	if head, _ := in.Peek(len(mark)); string(head) == mark {
		_, _ = in.Discard(len(mark))
	}
	list := []string{}
	var line []byte
	for n := 1; n <= end; {
		piece, err := in.ReadSlice('\n')
		if n >= start {
			if most -= int64(len(piece)); most < 0 {
				return nil, fault.New(fault.FileTooLarge,
					"the lines have more bytes than are read at once; ask for fewer lines, or use a command")
			}
			line = append(line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		if n >= start && (err == nil || len(line) > 0) {
			if !utf8.Valid(line) {
				return nil,
					fault.BadField("path",
						"the lines are no UTF-8 text, so they cannot be shown; download the file, or look at it with a command")
			}
			if bare, broken := bytes.CutSuffix(line, []byte("\n")); broken {
				line = bytes.TrimSuffix(bare, []byte("\r"))
			}
			list = append(list, string(line))
			line = line[:0]
		}
		if err != nil {
			break
		}
		n++
	}
	return list, nil
}
