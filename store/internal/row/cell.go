package row

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"

	"secbox/audit"
)

// cell scans a column into a field. It never fails: a value that the field cannot have leaves the
// field empty, and is noted. One damaged value must hide neither its row nor the rows after it.
type cell struct {
	name       string
	field      any
	unreadable *map[string]string // as in audit.Record

	last string // the last text or policy snapshot, which many rows share
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

// ScanBytes is Scan for drivers that have text and JSON as bytes of their own. It makes fewer
// copies.
func (c *cell) ScanBytes(value []byte) error {
	if value == nil {
		return c.Scan(nil)
	}
	switch f := c.field.(type) {
	case *string:
		if c.remember(value) {
			*f = c.last
			return nil
		}
	case *json.RawMessage, *[]string, *[]audit.Input, *map[string]audit.LargeList:
		if c.setJSON(value) {
			return nil
		}
	}
	return c.Scan(string(value))
}

// remember makes last a text, if that is valid UTF-8.
func (c *cell) remember(text []byte) bool {
	if string(text) == c.last {
		return true
	}
	if !utf8.Valid(text) {
		return false
	}
	c.last = string(text)
	return true
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
	case **int64:
		if value == nil {
			return true
		}
		n, ok := value.(int64)
		if ok {
			*f = &n
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
	switch v := value.(type) {
	case string:
		return c.setJSON([]byte(v))
	case []byte:
		return c.setJSON(v)
	}
	return false
}

// setJSON is set for JSON columns.
func (c *cell) setJSON(text []byte) bool {
	switch f := c.field.(type) {
	case *jsonObject:
		if len(text) == 0 || text[0] != '{' || !json.Valid(text) {
			return false
		}
		*f = jsonObject(text)
		return true
	case *json.RawMessage:
		if len(text) == 0 || string(text) != c.last && !json.Valid(text) {
			return false
		}
		c.remember(text)
		*f = bytes.Clone(text)
		return true
	case *[]string:
		return setJSON(f, text, "[]", []string{})
	case *[]audit.Input:
		return setJSON(f, text, "[]", []audit.Input{})
	case *map[string]audit.LargeList:
		return setJSON(f, text, "{}", map[string]audit.LargeList{})
	}
	panic(fmt.Sprintf("column %s: no field for a %T", c.name, c.field))
}

// setJSON decodes a list or an object. Most are empty, as the text and the value that follow.
func setJSON[T any](field *T, text []byte, empty string, none T) bool {
	if string(text) == empty {
		*field = none
		return true
	}
	var v T
	ok := len(text) > 0 && text[0] == empty[0] && jsonv2.Unmarshal(text, &v, jsonv2.RejectUnknownMembers(true)) == nil
	if ok {
		*field = v
	}
	return ok
}

// jsonObject is a text that is a JSON object.
type jsonObject string

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
