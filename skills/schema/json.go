package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Bounds of a JSON text. They are checked on the tokens, before anything recursive or allocating
// reads the text.
const (
	maxDepth  = 64      // of nested objects and lists
	maxValues = 200_000 // validation keeps something for each wrong value
	maxDigits = 1000    // characters of one number
)

// Finding is one thing that is wrong with a JSON text. It holds no values of the text, which may be
// secrets.
type Finding struct {
	Path   []string // the tokens of a JSON pointer
	Reason string   // goes on after the name of the place: "must be a string"
}

// Parse reads one JSON text: valid UTF-8, no name twice in an object, nothing after the value,
// within fixed bounds. Numbers become json.Number.
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
			if why := numberFault(token.String()); why != "" {
				return nil, here("%s", why)
			}
		}
		if dec.StackDepth() == 0 {
			if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
				return nil, &Finding{Reason: fmt.Sprintf("must be one JSON value; there is something after it, at byte %d",
					dec.InputOffset())}
			}
			break
		}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, &Finding{Reason: "is no JSON"} // impossible: the tokens were valid
	}
	return value, nil
}

func syntaxFinding(err error, first bool) *Finding {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax) && errors.Is(syntax.Err, jsontext.ErrDuplicateName):
		return &Finding{pathOf(syntax.JSONPointer), "is given more than once"}
	case errors.As(err, &syntax) && syntax.Err != nil && strings.Contains(syntax.Err.Error(), "UTF-8"):
		return &Finding{pathOf(syntax.JSONPointer), fmt.Sprintf("is not valid UTF-8 at byte %d", syntax.ByteOffset)}
	case errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF):
		return &Finding{Reason: fmt.Sprintf("is no JSON at byte %d", syntax.ByteOffset)}
	case first && errors.Is(err, io.EOF):
		return &Finding{Reason: "is empty; a JSON object is needed"}
	}
	return &Finding{Reason: "is no JSON: it ends too early"}
}

// numberFault says why a number is refused: it must be near some float64, since programs will read
// it into one, and exact calculation with it must not need much memory.
func numberFault(text string) string {
	if len(text) > maxDigits {
		return fmt.Sprintf("is a number of more than %d characters", maxDigits)
	}
	_, err := strconv.ParseFloat(text, 64)
	if _, exponent, ok := strings.Cut(strings.ToLower(text), "e"); ok && err == nil {
		var n int
		if n, err = strconv.Atoi(exponent); err == nil && (n < -400 || n > 400) {
			err = strconv.ErrRange
		}
	}
	if err != nil {
		return "is a number beyond the range of 64 bits"
	}
	return ""
}

// IsInteger reports whether a number from Parse is an integer in any notation.
func IsInteger(n json.Number) bool {
	r, ok := new(big.Rat).SetString(n.String())
	return ok && r.IsInt()
}

func pathOf(p jsontext.Pointer) []string { return slices.Collect(p.Tokens()) }

// Pointer returns a path as a JSON pointer, with long tokens cut.
func Pointer(path []string) string {
	var b strings.Builder
	for _, token := range path {
		b.WriteByte('/')
		b.WriteString(escape.Replace(Clip(token)))
	}
	return b.String()
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func unescape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// Clip cuts an untrusted text to 120 bytes, so that it cannot fill a report, and makes it valid
// UTF-8.
func Clip(s string) string { return clipTo(s, 120) }

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

// At returns the value at a path; false when there is none.
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
