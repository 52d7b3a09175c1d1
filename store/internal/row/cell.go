package row

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"

	"secbox/audit"
)

// cell scans a column into a field. It never fails: a value that the field cannot have leaves the field empty, and is noted. One damaged value must
// hide neither its row nor the rows after it.
type cell struct {
	name       string
	field      any
	unreadable *map[string]string // as in audit.Record

	valid string // the last policy snapshot, which many rows share
}

// Scan implements sql.Scanner.
func (c *cell) Scan(value any) error {
	if c.set(value) {
		return nil
	}
	if *c.unreadable == nil {
		*c.unreadable = map[string]string{}
	}
	(*c.unreadable)[c.name] = beginning(value)
	return nil
}

// set reports whether the field can have the value.
func (c *cell) set(value any) (ok bool) {
	switch f := c.field.(type) {
	case *string:
		text, ok := value.(string)
		if ok = ok && utf8.ValidString(text); ok {
			*f = text
		}
		return ok
	case *bool:
		switch v := value.(type) {
		case bool:
			*f = v
			return true
		case int64: // SQLite
			*f = v == 1
			return v == 0 || v == 1
		}
		return false
	case *int64:
		*f, ok = value.(int64)
		return ok
	case **int:
		if value == nil {
			return true
		}
		n, ok := value.(int64)
		if ok {
			*f = new(int(n))
		}
		return ok
	case *time.Time:
		if value == nil {
			return c.name != "created_at"
		}
		var at time.Time
		err := timeInto{&at}.Scan(value)
		if ok = err == nil && at.Year() >= 0 && at.Year() <= 9999; ok { // JSON has no others
			*f = at
		}
		return ok
	}
	text, isText := value.(string)
	if b, ok := value.([]byte); ok {
		text, isText = string(b), true
	}
	return isText && c.setJSON(text)
}

// setJSON is set for JSON columns.
func (c *cell) setJSON(text string) bool {
	switch f := c.field.(type) {
	case *json.RawMessage:
		raw := []byte(text)
		if text != c.valid && !json.Valid(raw) {
			return false
		}
		c.valid, *f = text, raw
		return true
	case *[]string:
		return setJSON(f, text, '[')
	case *[]audit.Input:
		return setJSON(f, text, '[')
	case *map[string]audit.LargeList:
		return setJSON(f, text, '{')
	}
	panic(fmt.Sprintf("column %s: no field for a %T", c.name, c.field))
}

// setJSON decodes a list or an object, which begins with this character.
func setJSON[T any](field *T, text string, first byte) bool {
	var v T
	ok := text != "" && text[0] == first && jsonv2.Unmarshal([]byte(text), &v, jsonv2.RejectUnknownMembers(true)) == nil
	if ok {
		*field = v
	}
	return ok
}

const maxBeginning = 200 // bytes

// beginning returns the beginning of a value as text.
func beginning(value any) string {
	var text string
	switch v := value.(type) {
	case nil:
		return "NULL"
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		text = fmt.Sprint(v)
	}
	if len(text) > maxBeginning {
		text = text[:maxBeginning] + "…"
	}
	return strings.ToValidUTF8(text, string(utf8.RuneError))
}
