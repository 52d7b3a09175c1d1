package wire

import (
	"encoding/base64"
	"unicode/utf8"
)

// encodedBase64 is the value of the Encoding fields.
const encodedBase64 = "base64"

// SetStdin sets the standard input.
func (e *Exec) SetStdin(stdin string) {
	e.Stdin = stdin
	e.Encoding = encodeTexts(&e.Stdin)
}

// SetOutput sets the rest of both streams.
func (r *ExecResult) SetOutput(stdout, stderr string) {
	r.Stdout, r.Stderr = stdout, stderr
	r.Encoding = encodeTexts(&r.Stdout, &r.Stderr)
}

// encodeTexts makes texts that JSON can carry: it leaves them, or encodes all of them in base64 if
// one is not UTF-8 or would grow more by escaping.
func encodeTexts(texts ...*string) string {
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

// escaped estimates the bytes by which s grows in JSON, on the high side.
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

// decodeTexts reverses encodeTexts and clears the encoding.
func decodeTexts(t Type, encoding *string, texts ...*string) error {
	switch *encoding {
	case "":
		return nil
	case encodedBase64:
	default:
		return protocolErrorf("%s: unknown encoding %s", t, quoted(*encoding))
	}
	for _, s := range texts {
		b, err := base64.StdEncoding.Strict().DecodeString(*s)
		if err != nil {
			return protocolErrorf("%s: invalid base64", t)
		}
		*s = string(b)
	}
	*encoding = ""
	return nil
}
