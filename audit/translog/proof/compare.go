package proof

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"secbox/audit"
	"secbox/internal/whole"
)

// Difference is a column of a row that is not as its events say. Values are JSON.
type Difference struct{ Column, Expected, Found string }

func (d Difference) String() string {
	return fmt.Sprintf("%s: expected %s, found %s", d.Column, whole.Shorten(d.Expected), whole.Shorten(d.Found))
}

// compare is History.Compare. It decodes the records, and so is slow.
func compare(events []Document, row audit.Record) (differences []Difference, unproven []string, err error) {
	last := events[len(events)-1]
	want, err := last.Decode()
	if err != nil {
		return nil, nil, fmt.Errorf("the record of event %d cannot be read: %w", len(events), err)
	}
	if len(events) > 1 {
		first, err := events[0].Decode()
		if err != nil {
			return nil, nil, fmt.Errorf("the record of event 1 cannot be read: %w", err)
		}
		if !reflect.DeepEqual(first.Brief().LargeLists, want.LargeLists) {
			return nil, nil, fmt.Errorf("the first and the last event do not agree about large_lists")
		}
		want = withLists(want, first)
	}
	var written map[string]json.RawMessage
	if err := json.Unmarshal([]byte(last.Record), &written); err != nil {
		return nil, nil, err
	}
	expected, found := encoded(want), encoded(row)
	for _, info := range audit.Columns {
		name := info.Name
		if _, ok := written[name]; !ok && info.Use&audit.Omitted == 0 {
			unproven = append(unproven, name)
		} else if text, bad := row.Unreadable[name]; bad {
			differences = append(differences, Difference{name, show(expected[name]), text + ", which is not a value of this column"})
		} else if !sameJSON(expected[name], found[name]) {
			differences = append(differences, Difference{name, show(expected[name]), show(found[name])})
		}
	}
	slices.Sort(unproven)
	slices.SortFunc(differences, func(a, b Difference) int { return strings.Compare(a.Column, b.Column) })
	return differences, unproven, nil
}

// withLists returns the record with the large lists of the first event.
func withLists(r, first audit.Record) audit.Record {
	for name := range first.LargeLists {
		switch name {
		case "args":
			r.Args = first.Args
		case "env_keys":
			r.EnvKeys = first.EnvKeys
		case "env_hmacs":
			r.EnvHMACs = first.EnvHMACs
		case "inputs":
			r.Inputs = first.Inputs
		}
	}
	r.LargeLists = first.LargeLists
	return r
}

// encoded returns a record's columns as JSON.
func encoded(r audit.Record) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	text, _ := json.Marshal(r) // it was read from JSON
	_ = json.Unmarshal(text, &all)
	return all
}

// sameJSON compares values by their meaning: the databases may order the members of a policy
// snapshot differently.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) || sameButForSpace(a, b) {
		return true
	}
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// sameButForSpace reports whether two values have the same text but for space beside punctuation.
// It is many times faster than decoding both.
func sameButForSpace(a, b []byte) bool {
	quoted, last := false, byte(',')
	for {
		if !quoted {
			x, y := bytes.TrimLeft(a, jsonSpace), bytes.TrimLeft(b, jsonSpace)
			if space := len(x) < len(a) || len(y) < len(b); space && len(x) > 0 && !punctuation(last) && !punctuation(x[0]) {
				return false
			}
			a, b = x, y
		}
		if len(a) == 0 || len(b) == 0 {
			return len(a) == len(b) && !quoted
		}
		if last = a[0]; last != b[0] {
			return false
		}
		n := 1
		switch {
		case last == '"':
			quoted = !quoted
		case last == '\\' && quoted:
			if n = 2; len(a) < n || len(b) < n || a[1] != b[1] {
				return false
			}
		}
		a, b = a[n:], b[n:]
	}
}

const jsonSpace = " \t\r\n"

func punctuation(c byte) bool { return strings.IndexByte("{}[],:", c) >= 0 }

func decode(text json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func show(text json.RawMessage) string {
	if text == nil {
		return "nothing"
	}
	return string(text)
}
