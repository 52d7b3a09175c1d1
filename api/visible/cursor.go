package visible

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"time"

	"secbox/api/decode"
	"secbox/audit"
	"secbox/fault"
)

// cursorText is a cursor as base64url-encoded JSON. It is opaque to clients, contains no secret and
// grants no access: a list is always the caller's own, wherever its cursor comes from.
type cursorText struct {
	CreatedAt string `json:"created_at"`
	ExecID    string `json:"exec_id"`
	List      string `json:"list,omitempty"` // identifies the parameters of the list that the cursor is a place in
}

// EncodeCursor returns a cursor as text. list is the text of the parameters of its list; empty for
// a list that takes any cursor.
func EncodeCursor(c audit.Cursor, list string) string {
	text, err := json.Marshal(cursorText{c.CreatedAt.UTC().Format(Micros), c.ExecID, digest(list)})
	if err != nil {
		panic(err) // three strings
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeCursor accepts only output of EncodeCursor for the same list: else fault.InvalidCursor.
func DecodeCursor(s, list string) (*audit.Cursor, error) {
	invalid := refusedCursor("was not made by this server")
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
	at, err := time.Parse(Micros, c.CreatedAt)
	if err != nil {
		return nil, invalid
	}
	id, ok := canonicalID(c.ExecID)
	if !ok || id != c.ExecID || at.Format(Micros) != c.CreatedAt {
		return nil, invalid
	}
	if c.List != digest(list) {
		return nil, refusedCursor("is of a list with other parameters")
	}
	return &audit.Cursor{CreatedAt: at, ExecID: id}, nil
}

func refusedCursor(reason string) error {
	e := fault.New(fault.InvalidCursor, "cursor: %s; pass next_cursor of the page before, unchanged, with the same parameters", reason)
	e.Fields = []fault.Field{{Field: "cursor", Reason: reason}}
	return e
}

func digest(list string) string {
	if list == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(list))
	return hex.EncodeToString(sum[:8])
}
