package schema

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// MeantText parses arguments, and returns them as Meant takes them. The text is as sent except for
// what Meant changes: programs may depend on the order of the names in an object.
func MeantText(arguments []byte, doc any) (text []byte, value any, wrong *Finding) {
	value, wrong = Parse(arguments)
	if wrong != nil {
		return nil, nil, wrong
	}
	value, changed := Meant(value, doc)
	if !changed {
		return arguments, value, nil
	}
	before, wrong := Parse(arguments) // again: Meant changes what it is given
	if wrong != nil {
		return nil, nil, wrong
	}
	return rewritten(arguments, before, value), value, nil
}

// rewritten returns the text of a value that Meant has changed, made of the text of the value
// before.
func rewritten(text []byte, before, after any) []byte {
	if reflect.DeepEqual(before, after) {
		return text
	}
	if inner, ok := before.(string); ok { // the text is a JSON value's
		if read, wrong := Parse([]byte(inner)); wrong == nil {
			return rewritten([]byte(inner), read, after)
		}
	}
	var out bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(text))
	switch b := before.(type) {
	case map[string]any:
		a, _ := after.(map[string]any)
		_, _ = d.Token() // Parse has found that the text is valid
		out.WriteByte('{')
		for d.More() {
			key, _ := d.Token()
			name, _ := key.(string)
			var member json.RawMessage
			if d.Decode(&member) != nil {
				break
			}
			as, kept := a[name]
			if !kept {
				continue
			}
			if out.Len() > 1 {
				out.WriteByte(',')
			}
			quoted, _ := json.Marshal(name)
			out.Write(quoted)
			out.WriteByte(':')
			out.Write(rewritten(member, b[name], as))
		}
		out.WriteByte('}')
	case []any:
		a, _ := after.([]any)
		_, _ = d.Token()
		out.WriteByte('[')
		for n := 0; n < len(a) && d.More(); n++ {
			var item json.RawMessage
			if d.Decode(&item) != nil {
				break
			}
			if n > 0 {
				out.WriteByte(',')
			}
			out.Write(rewritten(item, b[n], a[n]))
		}
		out.WriteByte(']')
	default:
		plain, _ := json.Marshal(after)
		out.Write(plain)
	}
	return out.Bytes()
}
