package wire

import (
	"encoding/base64"
	"unicode/utf8"
)

// encodedBase64 is the value of the Encoding fields.
const encodedBase64 = "base64"

// SetStdin puts bytes into the message.
func (e *Exec) SetStdin(stdin string) {
	texts := []*string{&e.Stdin}
	e.Stdin = stdin
	e.Encoding = encodeTexts(texts)
}

// SetOutput puts the rests of both streams into the message.
func (r *ExecResult) SetOutput(stdout, stderr string) {
	r.Stdout, r.Stderr = stdout, stderr
	r.Encoding = encodeTexts([]*string{&r.Stdout, &r.Stderr})
}

// encodeTexts makes texts of bytes that JSON carries: as they are, or all of them in base64 when one is no UTF-8 or would grow more by
// being escaped.
func encodeTexts(texts []*string) string {
	plain := true
	for _, t := range texts {
		plain = plain && utf8.ValidString(*t) && escaped(*t) <= len(*t)/3
	}
	if plain {
		return ""
	}
	for _, t := range texts {
		*t = base64.StdEncoding.EncodeToString([]byte(*t))
	}
	return encodedBase64
}

// escaped counts the bytes by which s grows in JSON, a little too many.
func escaped(s string) int {
	n := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n' || c == '\t' || c == '\r' || c == '"' || c == '\\':
			n++
		case c < ' ':
			n += 5
		}
	}
	return n
}

// decodeTexts makes the bytes again that encodeTexts was given, and clears the encoding: whoever gets the message has no more to do.
func decodeTexts(t Type, encoding *string, texts ...*string) error {
	switch *encoding {
	case "":
		return nil
	case encodedBase64:
	default:
		return wrong("%s: there is no encoding %s", t, quoted(*encoding))
	}
	for _, s := range texts {
		b, err := base64.StdEncoding.Strict().DecodeString(*s)
		if err != nil {
			return wrong("%s: what is said to be base64 is not", t)
		}
		*s = string(b)
	}
	*encoding = ""
	return nil
}
