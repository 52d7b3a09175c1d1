package audit

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MostRequest bounds Record.Request in bytes. Shorter arguments are in it as they were sent.
const MostRequest = 8 << 10

// RequestText returns arguments, a JSON text, as a JSON text of at most most bytes: as they are, or
// with long texts cut to their beginning and, if there is no room for all, without the last ones.
func RequestText(arguments []byte, most int) string {
	if len(arguments) <= most {
		return string(arguments)
	}
	text := ""
	for longest := most - most/8; longest > mostCut; longest /= 2 { // most of it for the only long text
		var all bool
		if text, all = cutTexts(arguments, most, longest); all {
			break
		}
	}
	return text
}

// mostCut is the length of the longest note of a text that was cut, with the two quotes.
const mostCut = len(`"… [cut: 1000000000 bytes]"`) + 4

// cutTexts returns a JSON text with the beginnings of texts of more than longest bytes. all reports
// whether nothing else was left out to keep it within most bytes.
func cutTexts(arguments []byte, most, longest int) (text string, all bool) {
	var out bytes.Buffer
	options := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	from, to := jsontext.NewDecoder(bytes.NewBuffer(arguments), options...), jsontext.NewEncoder(&out, options...)
	for {
		token, err := from.ReadToken()
		if err != nil { // of arguments that are no JSON, or the end
			break
		}
		if token.Kind() == '"' {
			token = jsontext.String(cutText(token.String(), longest))
		}
		if kind := token.Kind(); kind != '}' && kind != ']' {
			// What closes objects and lists must fit, too, and a null for a name without value.
			const separators = len(`:null,`)
			if to.OutputOffset()+int64(size(token)+to.StackDepth()+separators+1) > int64(most) {
				closeAll(to)
				return strings.TrimSpace(out.String()), false
			}
		}
		if to.WriteToken(token) != nil {
			break
		}
	}
	closeAll(to)
	return strings.TrimSpace(out.String()), true
}

// size is the length of a token in bytes.
func size(t jsontext.Token) int {
	switch t.Kind() {
	case '"':
		quoted, _ := jsontext.AppendQuote(nil, t.String()) // the error reports invalid UTF-8, which is replaced
		return len(quoted)
	case '0':
		return len(t.String())
	}
	return len("false")
}

// cutText returns a text of at most most bytes: the text, or its beginning with a note.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := max(0, most-mostCut)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + fmt.Sprintf("… [cut: %d bytes]", len(s))
}

// closeAll ends what is open.
func closeAll(to *jsontext.Encoder) {
	for depth := to.StackDepth(); depth > 0; depth-- {
		kind, values := to.StackIndex(depth)
		token := jsontext.EndArray
		if kind == '{' {
			token = jsontext.EndObject
			if values%2 == 1 {
				_ = to.WriteToken(jsontext.Null)
			}
		}
		_ = to.WriteToken(token) // into memory
	}
}
