package proof

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"secbox/audit"
)

// columnAt is the index of a column in audit.Columns.
var columnAt = func() map[string]int {
	all := map[string]int{}
	for i, c := range audit.Columns {
		all[c.Name] = i
	}
	return all
}()

// columns are the values of a record's columns as JSON, in the order of audit.Columns; nil for
// columns that the record does not have.
type columns []column

type column jsontext.Value

// readColumns reads the JSON of a record without decoding its values, which is many times faster.
// It ignores unknown columns.
func readColumns(record string) (columns, error) {
	all := make(columns, len(audit.Columns))
	text := []byte(record)
	d := jsontext.NewDecoder(bytes.NewBuffer(text))
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return nil, errors.Join(err, errNoObject)
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		at, known := columnAt[string(name[1:len(name)-1])]
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		if end := int(d.InputOffset()); known {
			all[at] = text[end-len(value) : end : end]
		}
	}
	_, err := d.ReadToken()
	return all, err
}

var errNoObject = errors.New("it is no JSON object")

// has reports whether a column has a value other than null and {}.
func (c columns) has(name string) bool {
	value := c[columnAt[name]]
	return value != nil && string(value) != "null" && string(value) != "{}"
}

// text returns the status.
func (c columns) text(name string) audit.Status {
	var s string
	_ = json.Unmarshal(c[columnAt[name]], &s) // "" is no status
	return audit.Status(s)
}

// equals reports whether the column is certainly the JSON of a field of a record, to which field
// points.
func (c column) equals(field any) bool {
	v := reflect.ValueOf(field).Elem()
	if c == nil {
		return v.IsZero()
	}
	switch f := field.(type) {
	case *string:
		return c.isText(*f)
	case *bool:
		return string(c) == strconv.FormatBool(*f)
	case *int64:
		return string(c) == strconv.FormatInt(*f, 10)
	case **int:
		if *f == nil {
			return string(c) == "null"
		}
		return string(c) == strconv.Itoa(**f)
	case **int64:
		if *f == nil {
			return string(c) == "null"
		}
		return string(c) == strconv.FormatInt(**f, 10)
	case *time.Time:
		if string(c) == "null" {
			return f.IsZero()
		}
		at, err := time.Parse(time.RFC3339Nano, strings.Trim(string(c), `"`))
		return err == nil && at.Equal(*f)
	case *json.RawMessage:
		return len(*f) == 0 && string(c) == "null" || bytes.Equal(c, *f) || sameJSON(json.RawMessage(c), *f)
	case *[]string:
		return c.isTexts(*f)
	}
	if empty := string(c) == "[]" || string(c) == "{}"; empty || v.Len() == 0 {
		return empty && v.Len() == 0
	}
	text, err := json.Marshal(field)
	return err == nil && sameJSON(json.RawMessage(c), text)
}

// isTexts reports whether the column is the JSON of a list of texts.
func (c column) isTexts(texts []string) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(c))
	if open, err := d.ReadToken(); err != nil || open.Kind() != '[' {
		return false
	}
	for _, text := range texts {
		if value, err := d.ReadValue(); err != nil || !column(value).isText(text) {
			return false
		}
	}
	end, err := d.ReadToken()
	return err == nil && end.Kind() == ']'
}

// isText reports whether the column is the JSON of a text.
func (c column) isText(s string) bool {
	if len(c) < 2 || c[0] != '"' {
		return false
	}
	if inner := c[1 : len(c)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == s
	}
	unquoted, err := jsontext.AppendUnquote(nil, c)
	return err == nil && string(unquoted) == s
}
