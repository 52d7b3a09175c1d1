package search

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxPattern is the longest regular expression, in bytes.
const maxPattern = 1000

// matcher finds lines that match a regular expression. It is safe for concurrent use.
type matcher struct {
	re      *regexp.Regexp
	literal []byte // every match contains it; in lower case if fold; empty: unknown
	rare    int    // index of the byte of literal that texts have least often
	fold    bool
	exact   bool // the literal is the whole expression
	whole   bool // re can be matched against many lines at once
}

func newMatcher(pattern string, ignoreCase bool) (*matcher, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("the pattern has more than %d bytes", maxPattern)
	}
	flags := "(?m)"
	if ignoreCase {
		flags = "(?mi)"
	}
	re, err := regexp.Compile(flags + pattern)
	if err != nil {
		var wrong *syntax.Error
		if errors.As(err, &wrong) {
			return nil, fmt.Errorf("the pattern is no regular expression: %s in %q; write a \\ before characters that are meant literally",
				wrong.Code, wrong.Expr)
		}
		return nil, err
	}
	tree, err := syntax.Parse(flags+pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	m := &matcher{re: re, whole: !anchored(tree)}
	literal, fold := required(tree)
	if fold {
		literal = plainFold(literal)
	}
	m.literal, m.fold = []byte(literal), fold
	m.rare = rarest(literal)
	m.exact = tree.Op == syntax.OpLiteral && !fold && !strings.ContainsAny(literal, "\r\n")
	return m, nil
}

// anchored reports whether an expression has \A or \z, which mean the line's ends here.
func anchored(re *syntax.Regexp) bool {
	if re.Op == syntax.OpBeginText || re.Op == syntax.OpEndText {
		return true
	}
	for _, sub := range re.Sub {
		if anchored(sub) {
			return true
		}
	}
	return false
}

// required returns the longest text that every match contains; fold: in any case.
func required(re *syntax.Regexp) (literal string, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune), re.Flags&syntax.FoldCase != 0
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if one, folded := required(sub); len(one) > len(literal) {
				literal, fold = one, folded
			}
		}
	}
	return literal, fold
}

// plainFold returns the longest part of a text whose other case differs only in ASCII letters, in
// lower case. k and s have further forms.
func plainFold(text string) (longest string) {
	for part := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return r >= 0x80 || r == 'k' || r == 's' }) {
		if len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// next returns the first line from a position on that matches: where it begins, where it ends,
// without the end of line, and where the match begins. start is -1 when there is none.
func (m *matcher) next(b *block, from int) (start, end, at int) {
	buf := b.text
	for from < len(buf) {
		hit := from
		switch {
		case len(m.literal) > 0:
			in := buf
			if m.fold {
				in = b.lower
			}
			if hit = m.index(in, from); hit < 0 {
				return -1, 0, 0
			}
		case m.whole && !b.crlf:
			if b.over != nil && b.over() { // when no line matches, a match over many lines is looked for again from each line
				return -1, 0, 0
			}
			found := m.re.FindIndex(buf[from:])
			if found == nil {
				return -1, 0, 0
			}
			if hit = from + found[0]; hit == len(buf) && buf[hit-1] == '\n' { // after the last line
				return -1, 0, 0
			}
		}
		start = from + bytes.LastIndexByte(buf[from:hit], '\n') + 1
		end, from = endOfLine(buf, hit)
		if m.exact {
			return start, end, hit - start
		}
		if found := m.re.FindIndex(buf[start:end]); found != nil {
			return start, end, found[0]
		}
	}
	return -1, 0, 0
}

// common are the bytes that source code and English have most often, the most frequent first.
const common = " etaoinsrlcdu(.)pmf\"\t,_h=gbyvw-/'0:;1{}>Tx"

// rarest returns the index of the byte of a text that other texts have least often.
func rarest(text string) (at int) {
	best := -1
	for i := range len(text) {
		rank := strings.IndexByte(common, text[i])
		if rank < 0 {
			return i
		}
		if rank > best {
			at, best = i, rank
		}
	}
	return at
}

// index returns the position of the literal, from a position on; -1: there is none. Looking for one
// rare byte is several times as fast as bytes.Index, which looks for the first one.
func (m *matcher) index(in []byte, from int) int {
	for at, misses := from+m.rare, 0; at < len(in); misses++ {
		if misses > 16 && misses > (at-from)/64 { // it is not that rare here
			from = at - m.rare
			if i := bytes.Index(in[from:], m.literal); i >= 0 {
				return from + i
			}
			return -1
		}
		i := bytes.IndexByte(in[at:], m.literal[m.rare])
		if i < 0 {
			return -1
		}
		if start := at + i - m.rare; bytes.HasPrefix(in[start:], m.literal) {
			return start
		}
		at += i + 1
	}
	return -1
}

// endOfLine returns the end of the line at a position, without \r, and where the next line begins.
func endOfLine(buf []byte, at int) (end, next int) {
	end = len(buf)
	if i := bytes.IndexByte(buf[at:], '\n'); i >= 0 {
		end = at + i
	}
	next = end + 1
	if end > at && buf[end-1] == '\r' {
		end--
	}
	return end, next
}

// block is a part of a file, of complete lines.
type block struct {
	text  []byte
	lower []byte // text with ASCII letters in lower case, if the matcher needs it
	crlf  bool   // text has a \r, before which $ must match; unknown if the matcher has a literal

	over func() bool // reports whether the search must end; may be nil
}

// lowerASCII puts the lower case of src into dst.
func lowerASCII(dst, src []byte) []byte {
	dst = append(dst[:0], src...)
	for i, c := range dst {
		if c-'A' < 26 {
			dst[i] = c + 'a' - 'A'
		}
	}
	return dst
}
