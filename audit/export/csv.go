package export

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"secbox/audit"
)

// Kinds of the CSV records that are not of execs.
const (
	csvNotLogged = "not_logged" // exec_id has the exec
	csvEnd       = "export_end" // detail has the end, as JSON
)

// micros is the format of times: UTC with microseconds.
const micros = "2006-01-02T15:04:05.000000Z"

// csvRecords writes CSV by RFC 4180 with a header. The columns are the fields of a record,
// unreadable, and request; lists and objects are JSON. Every record has the same number of fields.
//
// encoding/csv is not used: it writes CRLF, which RFC 4180 asks for, only if it may also change
// line breaks inside of fields.
type csvRecords struct{}

func (csvRecords) begin(b []byte) []byte {
	for i, c := range audit.Columns {
		b = append(separator(b, i), c.Name...)
	}
	return append(b, ",unreadable,request\r\n"...)
}

func (csvRecords) record(b []byte, r audit.Record) ([]byte, error) {
	r.Kind = kind(r)
	for i, c := range audit.Columns {
		b = separator(b, i)
		switch f := c.In(&r).(type) {
		case *string:
			b = appendCell(b, *f)
		case *int64:
			b = appendCell(b, strconv.FormatInt(*f, 10))
		case *bool:
			b = strconv.AppendBool(b, *f)
		case **int64:
			if *f != nil {
				b = appendCell(b, strconv.FormatInt(**f, 10))
			}
		case **int:
			if *f != nil {
				b = appendCell(b, strconv.Itoa(**f))
			}
		case *time.Time:
			if !f.IsZero() {
				b = f.UTC().AppendFormat(b, micros)
			}
		default: // lists and objects
			var err error
			if b, err = appendJSON(b, f); err != nil {
				return b, err
			}
		}
	}
	b, err := appendJSON(append(b, ','), r.Unreadable)
	return append(appendCell(append(b, ','), r.Request), "\r\n"...), err
}

func appendJSON(b []byte, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return appendCell(b, string(text)), err
}

func (csvRecords) notLogged(b []byte, execIDs []string) ([]byte, error) {
	for _, id := range execIDs {
		b = sparse(b, map[string]string{"exec_id": id, "kind": csvNotLogged})
	}
	return b, nil
}

func (csvRecords) end(b []byte, e end) ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return b, err
	}
	return sparse(b, map[string]string{"kind": csvEnd, "detail": string(text)}), nil
}

// sparse appends a record with some fields.
func sparse(b []byte, cells map[string]string) []byte {
	for i, c := range audit.Columns {
		b = appendCell(separator(b, i), cells[c.Name])
	}
	return append(b, ",,\r\n"...)
}

func separator(b []byte, i int) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return b
}

// dangerous are the characters that make a spreadsheet take a cell for a formula if it begins with
// one of them, and the apostrophe, so that the reader can remove the first apostrophe of every cell
// that begins with one.
const dangerous = "=+-@\t\r\n'＝＋－＠"

// appendCell appends a field.
func appendCell(b []byte, s string) []byte {
	quoted := strings.ContainsAny(s, "\",;\r\n\t ")
	if quoted {
		b = append(b, '"')
	}
	if strings.IndexAny(s, dangerous) == 0 {
		b = append(b, '\'')
	}
	if !quoted {
		return append(b, s...)
	}
	for {
		before, after, found := strings.Cut(s, `"`)
		b = append(b, before...)
		if !found {
			return append(b, '"')
		}
		b, s = append(b, `""`...), after
	}
}
