package api

import (
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"secbox/api/decode"
	"secbox/audit"
	"secbox/fault"
)

// cursorText is a cursor as base64url-encoded JSON. It is opaque to clients, contains no secret and grants no access: a list is always the
// caller's own, wherever its cursor comes from.
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

// decodeCursor accepts only output of encodeCursor.
func decodeCursor(s string) (*audit.Cursor, error) {
	invalid := fault.New(fault.InvalidCursor, "cursor: was not made by this server; pass next_cursor of the page before, unchanged")
	invalid.Fields = []fault.Field{{Field: "cursor", Reason: "was not made by this server"}}
	if len(s) > 512 {
		return nil, invalid
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return nil, invalid
	}
	var c cursorText
	if err := decode.Strict(text, &c); err != nil {
		return nil, invalid
	}
	at, err := time.Parse(micros, c.CreatedAt)
	if err != nil {
		return nil, invalid
	}
	id, ok := canonicalID(c.ExecID)
	if !ok || id != c.ExecID || at.Format(micros) != c.CreatedAt {
		return nil, invalid
	}
	return &audit.Cursor{CreatedAt: at, ExecID: id}, nil
}

// canonicalID returns an exec id in the form that records have, or false if s is not an exec id.
func canonicalID(s string) (string, bool) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		return "", false
	}
	return id.String(), true
}
