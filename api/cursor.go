package api

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"secbox/audit"
	"secbox/fault"
)

// cursorText is a cursor as it stands in next_cursor: base64url of this JSON. It is opaque to clients, holds nothing secret, and grants
// nothing: a list with somebody else's cursor is still the caller's own list.
type cursorText struct {
	CreatedAt string `json:"created_at"`
	ExecID    string `json:"exec_id"`
}

func encodeCursor(c audit.Cursor) string {
	text, err := json.Marshal(cursorText{c.CreatedAt.UTC().Format(micros), c.ExecID})
	if err != nil {
		panic(err) // two strings
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// decodeCursor takes only what encodeCursor makes.
func decodeCursor(s string) (*audit.Cursor, error) {
	garbage := fault.New(fault.InvalidCursor, "cursor: is not one of this server's; take next_cursor of the page before, unchanged")
	garbage.Fields = []fault.Field{{Field: "cursor", Reason: "is not one of this server's"}}
	if len(s) > 512 {
		return nil, garbage
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, garbage
	}
	var c cursorText
	if err := decodeStrict(text, &c); err != nil {
		return nil, garbage
	}
	at, err := time.Parse(micros, c.CreatedAt)
	if err != nil {
		return nil, garbage
	}
	id, ok := canonicalID(c.ExecID)
	if !ok || id != c.ExecID || at.Format(micros) != c.CreatedAt {
		return nil, garbage
	}
	return &audit.Cursor{CreatedAt: at, ExecID: id}, nil
}

// canonicalID is an exec id in the one form in which ids are kept; false for anything else.
func canonicalID(s string) (string, bool) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		return "", false
	}
	return id.String(), true
}
