package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a JSON text, whoever wrote it. They are checked on the tokens, before anything recursive or allocating looks at the text.
const (
	maxDepth  = 64      // of nested objects and lists
	maxValues = 200_000 // values: what validates them keeps something for each that is wrong
	maxDigits = 1000    // characters of one number
)

// Finding is one thing that is wrong with a JSON text: where, as the tokens of a JSON pointer, and what, as a sentence without the
// place. Findings do not hold values of the text, which may be secrets.
type Finding struct {
	Path   []string
	Reason string
}

// Parse reads one JSON text: UTF-8, no name twice in an object, nothing behind the value, within the bounds above. Numbers stay
// json.Number.
func Parse(raw []byte) (any, *Finding) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	for values := 0; ; values++ {
		token, err := dec.ReadToken()
		if errors.Is(err, io.EOF) && values > 0 {
			break
		}
		if err != nil {
			return nil, syntaxFinding(err, values == 0)
		}
		here := func(format string, args ...any) *Finding {
			return &Finding{pathOf(dec.StackPointer()), fmt.Sprintf(format, args...)}
		}
		switch {
		case dec.StackDepth() > maxDepth:
			return nil, here("is nested deeper than %d levels", maxDepth)
		case values >= maxValues:
			return nil, here("is where the text passes %d values; put that much data into a file", maxValues)
		case token.Kind() == jsontext.KindNumber:
			if why := badNumber(token.String()); why != "" {
				return nil, here("%s", why)
			}
		}
		if dec.StackDepth() == 0 {
			if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
				return nil, &Finding{nil, fmt.Sprintf("must be one JSON value; there is something behind it, at byte %d", dec.InputOffset())}
			}
			break
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, &Finding{nil, "is no JSON"} // cannot be: the tokens were fine
	}
	return value, nil
}

func syntaxFinding(err error, first bool) *Finding {
	var broken *jsontext.SyntacticError
	switch {
	case errors.As(err, &broken) && errors.Is(broken.Err, jsontext.ErrDuplicateName):
		return &Finding{pathOf(broken.JSONPointer), "is given more than once"}
	case errors.As(err, &broken) && broken.Err != nil && strings.Contains(broken.Err.Error(), "UTF-8"):
		return &Finding{pathOf(broken.JSONPointer), fmt.Sprintf("is not valid UTF-8 at byte %d", broken.ByteOffset)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Finding{nil, "is no JSON: it ends too early"}
	case errors.As(err, &broken):
		return &Finding{nil, fmt.Sprintf("is no JSON at byte %d", broken.ByteOffset)}
	case first && errors.Is(err, io.EOF):
		return &Finding{nil, "is empty; a JSON object is needed"}
	}
	return &Finding{nil, "is no JSON: it ends too early"}
}

// badNumber says why a number is refused: a float64 must be able to come near it, since that is what programs will read it into, and an
// exact calculation with it must not take all memory.
func badNumber(text string) string {
	if len(text) > maxDigits {
		return fmt.Sprintf("is a number of more than %d characters", maxDigits)
	}
	if _, err := strconv.ParseFloat(text, 64); err != nil {
		return "is a number beyond what 64 bits can hold"
	}
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok {
		if n, err := strconv.Atoi(exponent); err != nil || n < -400 || n > 400 {
			return "is a number beyond what 64 bits can hold"
		}
	}
	return ""
}

// IsInteger reports whether a number is an integer, however it is written. It has passed badNumber.
func IsInteger(n json.Number) bool {
	r, ok := new(big.Rat).SetString(n.String())
	return ok && r.IsInt()
}

func pathOf(p jsontext.Pointer) []string {
	var path []string
	for token := range p.Tokens() {
		path = append(path, token)
	}
	return path
}

// Pointer writes a path as a JSON pointer.
func Pointer(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteByte('/')
		b.WriteString(pointerEscape.Replace(Clip(token)))
	}
	return b.String()
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// Clip keeps a stranger's text from filling a report.
func Clip(s string) string {
	const most = 120
	return clipTo(s, most)
}

// clipTo cuts a text after most bytes and makes it valid UTF-8.
func clipTo(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.ToValidUTF8(s[:cut], "\uFFFD") + "…"
}

// At finds the value at a path; false when there is none.
func At(value any, path []string) (any, bool) {
	for _, token := range path {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[token]
			if !ok {
				return nil, false
			}
			value = next
		case []any:
			n, err := strconv.Atoi(token)
			if err != nil || n < 0 || n >= len(v) {
				return nil, false
			}
			value = v[n]
		default:
			return nil, false
		}
	}
	return value, true
}
