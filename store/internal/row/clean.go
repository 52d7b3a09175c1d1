package row

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"secbox/audit"
	"secbox/fault"
)

// PostgreSQL stores neither NUL nor invalid UTF-8, and its jsonb neither escaped NULs nor halves of
// surrogate pairs. Records with them must not be lost, and must be the same in both databases. So
// both store a NUL as the visible ␀ (U+2400), and invalid sequences as U+FFFD.

// Text makes a string storable.
func Text(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\u2400")
}

// clean makes every text of a record storable and cuts its times to the microseconds that are kept.
// It fails only on a policy snapshot that is no JSON.
func clean(all []column) error {
	for _, c := range all {
		switch f := c.field.(type) {
		case *string:
			*f = Text(*f)
		case *[]string:
			*f = Texts(*f)
		case *[]audit.Input:
			inputs := make([]audit.Input, len(*f))
			for i, in := range *f {
				inputs[i] = audit.Input{Path: Text(in.Path), Size: in.Size, SHA256: Text(in.SHA256), Mode: Text(in.Mode)}
			}
			*f = inputs
		case *time.Time:
			*f = f.UTC().Truncate(time.Microsecond)
		case *json.RawMessage:
			document, err := cleanJSON(*f)
			if err != nil {
				return fault.Wrap(fault.Internal, fmt.Errorf("%s: %w", c.Name, err), "the exec could not be recorded")
			}
			*f = document
		}
	}
	return nil
}

// Texts is Text for a list; a nil one becomes empty, as it is read back.
func Texts(values []string) []string {
	cleaned := make([]string, len(values))
	for i, v := range values {
		cleaned[i] = Text(v)
	}
	return cleaned
}

// cleanJSON makes a JSON document storable as jsonb. It does not change a document without \u
// escapes.
func cleanJSON(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if !json.Valid(raw) {
		return nil, fmt.Errorf("no valid JSON")
	}
	if utf8.Valid(raw) && !bytes.Contains(raw, []byte(`\u`)) {
		return raw, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw)) // replaces invalid UTF-8
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(withoutNUL(v)); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func withoutNUL(v any) any {
	switch v := v.(type) {
	case string:
		return Text(v)
	case []any:
		for i := range v {
			v[i] = withoutNUL(v[i])
		}
		return v
	case map[string]any:
		cleaned := make(map[string]any, len(v))
		for name, value := range v {
			cleaned[Text(name)] = withoutNUL(value)
		}
		return cleaned
	}
	return v
}
