package ui

import (
	"bytes"
	"context"
	"html"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/a-h/templ"
)

// Terminal turns the output of a command, piece after piece, into HTML. Sequences of ANSI that set
// colours and weights become classes; every other control character is shown, so that output can
// neither hide nor overwrite anything. The HTML of a piece is complete in itself: elements that it
// opens are closed. The zero value is at the beginning of the output. A copy goes on from the same
// place.
type Terminal struct{ now style }

// Output shows a piece that is complete.
func (t Terminal) Output(text []byte) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		out, _ := t.HTML(text, true)
		_, err := io.WriteString(w, out)
		return err
	})
}

// HTML returns the HTML of the next piece, and how many of its bytes that shows: unless it is the
// last piece, a character or sequence that may go on in the next one is left, and belongs at that
// one's beginning.
func (t *Terminal) HTML(text []byte, last bool) (out string, used int) {
	text = text[:whole(text, last)]
	var b strings.Builder
	b.Grow(len(text) + len(text)/8)
	open := ""
	set := func(classes string) {
		if classes == open {
			return
		}
		if open != "" {
			b.WriteString("</span>")
		}
		if open = classes; open != "" {
			b.WriteString(`<span class="` + open + `">`)
		}
	}
	for rest := text; len(rest) > 0; {
		if n, params, ok := sgr(rest); ok {
			t.now = t.now.apply(params)
			rest = rest[n:]
			continue
		}
		end := len(rest)
		if n := bytes.IndexByte(rest[1:], 0x1b); n >= 0 {
			end = n + 1
		}
		set(t.now.classes())
		writeOutput(&b, rest[:end])
		rest = rest[end:]
	}
	set("")
	return b.String(), len(text)
}

// Skip is HTML for a piece that is not shown.
func (t *Terminal) Skip(text []byte, last bool) (used int) {
	text = text[:whole(text, last)]
	for rest := text; ; {
		i := bytes.IndexByte(rest, 0x1b)
		if i < 0 {
			return len(text)
		}
		rest = rest[i:]
		n, params, ok := sgr(rest)
		if ok {
			t.now = t.now.apply(params)
		}
		rest = rest[max(n, 1):]
	}
}

// whole returns the length of a text without a character or a sequence at its end that may go on.
func whole(text []byte, last bool) int {
	if last {
		return len(text)
	}
	if i := bytes.LastIndexByte(text[max(0, len(text)-maxSGR+1):], 0x1b); i >= 0 {
		i += max(0, len(text)-maxSGR+1)
		if unfinished(text[i:]) {
			return i
		}
	}
	end := len(text)
	if end > 0 && text[end-1] == '\r' {
		return end - 1
	}
	for n := 1; n <= min(utf8.UTFMax-1, end); n++ {
		if last := text[end-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				end -= n
			}
			break
		}
	}
	if r, size := utf8.DecodeLastRune(text[:end]); symbol(r) { // emojiStyle may follow
		return end - size
	}
	return end
}

// unfinished reports whether more bytes could make a text, which begins with an escape and is
// shorter than maxSGR, a sequence of sgr.
func unfinished(text []byte) bool {
	if len(text) > 1 && text[1] != '[' {
		return false
	}
	for _, c := range text[min(2, len(text)):] {
		if (c < '0' || c > '9') && c != ';' && c != ':' {
			return false
		}
	}
	return true
}

// writeOutput writes text without sequences. A carriage return that begins the same line again, as
// progress bars do, begins a new one here.
func writeOutput(b *strings.Builder, text []byte) {
	for len(text) > 0 {
		if n := ordinary(text); n > 0 {
			b.WriteString(html.EscapeString(string(text[:n])))
			text = text[n:]
			continue
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\r' && len(text) > 1 && text[1] == '\n':
			n = 2
			b.WriteByte('\n')
		case r == '\r':
			b.WriteString("<span class=\"odd\">␍</span>\n")
		case odd(r):
			b.WriteString(`<span class="odd">`)
			writeVisible(b, r)
			b.WriteString("</span>")
		default: // RuneError
			b.WriteRune(r)
		}
		text = text[n:]
	}
}

// ordinary returns the length of the beginning of a text that is shown as it is.
func ordinary(text []byte) (n int) {
	before := rune(0)
	for n < len(text) {
		r, size := utf8.DecodeRune(text[n:])
		if r == utf8.RuneError || odd(r) && (r != emojiStyle || !symbol(before)) {
			break
		}
		before = r
		n += size
	}
	return n
}
