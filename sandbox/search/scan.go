package search

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"golang.org/x/text/encoding/unicode"
)

const (
	bufferBytes = 1 << 20 // of a file in memory; a longer line is matched in pieces
	sniffBytes  = 8 << 10 // at the beginning of a file: with a NUL in them it is binary, and not searched
)

// scanner matches files, one after another. Each worker has one.
type scanner struct {
	*walk
	buf   []byte
	block block
}

func newScanner(w *walk) *scanner {
	if w.matcher == nil {
		return nil
	}
	return &scanner{walk: w, block: block{over: w.over}}
}

// fileScan is the state of one file.
type fileScan struct {
	lines  []Line
	count  int // lines that match
	number int // of complete lines before the buffer
	shown  int // number of the last line in lines
	after  int // lines of context that are still due
	before []Line
}

// errBinary is returned for files that are not searched.
var errBinary = errors.New("the file is binary")

// Byte order marks. They are not part of a file's first line.
var (
	markUTF8 = []byte("\ufeff")
	markLE   = []byte("\xff\xfe") // UTF-16, as PowerShell and Notepad write it
	markBE   = []byte("\xfe\xff")
)

// scan returns the lines of a file that are to be shown, and how many match; errBinary for a binary
// file. UTF-16 with a byte order mark is searched as UTF-8. It reads no more than size bytes: the
// file may grow.
func (s *scanner) scan(file io.Reader, size int64) ([]Line, int, error) {
	if len(s.buf) < bufferBytes {
		need := int(min(size+1, bufferBytes))
		if len(s.buf) < need {
			s.buf = make([]byte, max(need, 64<<10))
		}
	}
	file = io.LimitReader(file, size)
	f := &fileScan{}
	held := 0 // bytes of an incomplete line at the beginning of the buffer
	for first := true; ; first = false {
		n, err := io.ReadFull(file, s.buf[held:])
		if first && (bytes.HasPrefix(s.buf[:n], markLE) || bytes.HasPrefix(s.buf[:n], markBE)) {
			file = io.MultiReader(bytes.NewReader(bytes.Clone(s.buf[:n])), file)
			file = unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Reader(file)
			n, err = io.ReadFull(file, s.buf)
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, 0, err
		}
		last := err != nil
		filled := s.buf[:held+n]
		if first {
			filled = bytes.TrimPrefix(filled, markUTF8)
		}
		if first && bytes.IndexByte(filled[:min(len(filled), sniffBytes)], 0) >= 0 {
			return nil, 0, errBinary
		}
		whole := filled
		if !last {
			if end := bytes.LastIndexByte(filled, '\n'); end >= 0 {
				whole = filled[:end+1]
			}
		}
		if done := s.part(f, whole); done || last || s.over() {
			return f.lines, f.count, nil
		}
		held = copy(s.buf, filled[len(whole):])
	}
}

// part matches complete lines; done: no more need to be read.
func (s *scanner) part(f *fileScan, buf []byte) (done bool) {
	s.block.text = buf
	s.block.crlf = len(s.matcher.literal) == 0 && bytes.IndexByte(buf, '\r') >= 0
	if s.matcher.fold && len(s.matcher.literal) > 0 {
		s.block.lower = lowerASCII(s.block.lower, buf)
	}
	content := s.request.Mode == Content
	at, number := 0, f.number // number: of complete lines before at
	for {
		start, end, hit := s.matcher.next(&s.block, at)
		if start < 0 {
			break
		}
		f.count++
		if s.request.Mode == Files {
			return true
		}
		_, next := endOfLine(buf, end)
		if content && len(f.lines) < s.request.Limit {
			skipped := bytes.Count(buf[at:start], newline)
			f.trailing(buf[at:start], number)
			s.leading(f, buf[at:start], number+skipped)
			number += skipped + 1
			f.lines = append(f.lines, lineOf(buf[start:end], number, hit, false))
			f.shown, f.after = number, s.request.After
		}
		if at = next; at >= len(buf) {
			at = len(buf)
			break
		}
	}
	if content && len(f.lines) < s.request.Limit {
		f.trailing(buf[at:], number)
		s.remember(f, buf[at:], number)
		f.number = number + bytes.Count(buf[at:], newline)
	}
	return false
}

var newline = []byte("\n")

// trailing adds the lines after a match, which are due; number lines are before buf.
func (f *fileScan) trailing(buf []byte, number int) {
	for f.after > 0 && len(buf) > 0 {
		end, next := endOfLine(buf, 0)
		number++
		f.lines = append(f.lines, lineOf(buf[:end], number, 0, true))
		f.shown, f.after = number, f.after-1
		buf = buf[min(next, len(buf)):]
	}
}

// leading adds the lines before a match that are not shown yet; number lines end with buf.
func (s *scanner) leading(f *fileScan, buf []byte, number int) {
	s.remember(f, buf, number-bytes.Count(buf, newline))
	for _, l := range f.before {
		if l.Number > f.shown {
			f.lines = append(f.lines, l)
			f.shown = l.Number
		}
	}
	f.before = f.before[:0]
}

// remember keeps the last lines of buf for the next match; number lines are before it.
func (s *scanner) remember(f *fileScan, buf []byte, number int) {
	if s.request.Before == 0 {
		return
	}
	lines := bytes.Count(buf, newline)
	from := len(buf)
	for n := 0; n < s.request.Before && from > 0; n++ {
		from = bytes.LastIndexByte(buf[:from-1], '\n') + 1
		lines--
	}
	number += lines
	for rest := buf[from:]; len(rest) > 0; {
		end, next := endOfLine(rest, 0)
		number++
		f.before = append(f.before, lineOf(rest[:end], number, 0, true))
		rest = rest[min(next, len(rest)):]
	}
	if extra := len(f.before) - s.request.Before; extra > 0 {
		f.before = slices.Delete(f.before, 0, extra)
	}
}

// lineOf copies the part of a line around a position.
func lineOf(line []byte, number, at int, context bool) Line {
	cut := 0
	if len(line) > maxLineBytes {
		cut = min(max(0, at-maxLineBytes/4), len(line)-maxLineBytes)
	}
	text := line[cut:min(len(line), cut+maxLineBytes)]
	return Line{Number: number, Text: bytes.Clone(text), Cut: cut, More: len(line) - cut - len(text), Context: context}
}
