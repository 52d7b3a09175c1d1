package visible

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"secbox/api/decode"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/fault"
)

// EventParams are the parameters of ParseEvents.
var EventParams = []string{"kind", "actor", "subject", "since", "until", "cursor"}

// EventQuery is a page of the administrative events. Auditors and admins may read all events.
type EventQuery struct {
	Filter admin.Filter
	After  *admin.Cursor // nil: the first page
	list   string        // identifies the filters
}

// ParseEvents returns the page that parameters describe. get returns a parameter by its name, empty
// if it is absent. Wrong ones go to bad, whose error it returns. A cursor of a list with other
// filters is fault.InvalidCursor.
func ParseEvents(get func(name string) string, now time.Time, bad *fault.Fields) (EventQuery, error) {
	text := func(field string) string {
		s := get(field)
		if len(s) > admin.MaxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			bad.Add(field, "must be at most %d bytes of UTF-8 without control characters", admin.MaxText)
		}
		return s
	}
	q := EventQuery{Filter: admin.Filter{
		Kind: admin.Kind(get("kind")), Actor: text("actor"), Subject: text("subject"),
		Since: audit.ParseTime("since", get("since"), now, bad), Until: audit.ParseTime("until", get("until"), now, bad),
	}}
	if q.Filter.Kind != "" && !q.Filter.Kind.Valid() {
		var kinds []string
		for _, k := range admin.Kinds() {
			kinds = append(kinds, string(k))
		}
		bad.Add("kind", "must be one of %s", strings.Join(kinds, ", "))
	}
	if err := bad.Err(); err != nil {
		return EventQuery{}, err
	}
	// A relative time is the same filter on each page, although its meaning moves.
	filters, _ := json.Marshal([]string{get("kind"), get("actor"), get("subject"), get("since"), get("until")})
	sum := sha256.Sum256(filters)
	q.list = hex.EncodeToString(sum[:8])
	cursor := get("cursor")
	if cursor == "" {
		return q, nil
	}
	var err error
	q.After, err = q.decodeCursor(cursor)
	return q, err
}

// eventCursor is a cursor as base64url-encoded JSON.
type eventCursor struct {
	At     string `json:"at"`
	ID     int64  `json:"id"`
	Filter string `json:"filter"`
}

// Cursor returns the cursor of the page after this event, for the same filters.
func (q EventQuery) Cursor(last admin.Event) string {
	text, _ := json.Marshal(eventCursor{last.At.UTC().Format(Micros), last.Seq, q.list})
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeCursor accepts only output of Cursor for the same filters.
func (q EventQuery) decodeCursor(s string) (*admin.Cursor, error) {
	var c eventCursor
	text, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if len(s) > 512 || err != nil || decode.Strict(text, &c) != nil {
		return nil, refusedCursor("was not made by this server")
	}
	at, err := time.Parse(Micros, c.At)
	if err != nil || at.Format(Micros) != c.At || c.ID < 1 {
		return nil, refusedCursor("was not made by this server")
	}
	if c.Filter != q.list {
		return nil, refusedCursor("is of a list with other parameters")
	}
	return &admin.Cursor{At: at, Seq: c.ID}, nil
}
