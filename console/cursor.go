package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/fault"
)

// timeCursor returns the cursor that visible.EncodeCursor made for the list with an address; nil
// for an empty text, which is the first page.
func timeCursor(text, list string) (*audit.Cursor, error) {
	if text == "" {
		return nil, nil
	}
	return visible.DecodeCursor(text, list)
}

// maxNameCursor bounds the text of a cursor by name, in bytes.
const maxNameCursor = 2 << 10

// nameCursor returns the name of the last row of a page as a cursor: the place where the next page
// of the list begins. list is the address of the list with its filters.
func nameCursor(last, list string) string {
	return base64.RawURLEncoding.EncodeToString(append(listHash(list), last...))
}

// parseNameCursor returns the name in a cursor of nameCursor for the same list: else
// fault.InvalidCursor. An empty cursor is the first page.
func parseNameCursor(cursor, list string) (last string, err error) {
	if cursor == "" {
		return "", nil
	}
	refused := fault.New(fault.InvalidCursor, "cursor: was not made by this server, or is of another list")
	text, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	sum := listHash(list)
	if err != nil || len(text) > maxNameCursor || len(text) <= len(sum) || !bytes.HasPrefix(text, sum) {
		return "", refused
	}
	return string(text[len(sum):]), nil
}

func listHash(list string) []byte {
	sum := sha256.Sum256([]byte(list))
	return sum[:8]
}
