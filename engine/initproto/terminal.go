package initproto

import (
	"encoding/binary"
	"fmt"
)

// TerminalVerb is the first argument of a sandbox-init that runs a command in a pseudo-terminal:
//
//	sandbox-init terminal 80x24 COMMAND ARG…
//
// It is started as a job like any other. Its standard output is the terminal's, and its standard
// input has frames:
//
//	core-api -> terminal:  (stdin | resize | signal)*
//
// stdin is what is typed, and signal is for the terminal's foreground processes. It is a job's own
// process: other processes of the job can end it and write in its name.
const TerminalVerb = "terminal"

// TypeResize is the new size of the terminal: columns and rows, two bytes each (big endian).
const TypeResize Type = 'Z'

// MaxTerminal is the most columns and rows that a terminal has.
const MaxTerminal = 500

// Term is what the command of a terminal finds as TERM, unless the job or the image says otherwise.
const Term = "xterm-256color"

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Valid reports whether a terminal can have the size.
func (s TerminalSize) Valid() bool {
	return s.Cols >= 1 && s.Cols <= MaxTerminal && s.Rows >= 1 && s.Rows <= MaxTerminal
}

// String returns the size as ParseTerminalSize takes it, such as 80x24.
func (s TerminalSize) String() string { return fmt.Sprintf("%dx%d", s.Cols, s.Rows) }

// ParseTerminalSize reads what String wrote, and nothing else.
func ParseTerminalSize(text string) (s TerminalSize, ok bool) {
	_, err := fmt.Sscanf(text, "%dx%d", &s.Cols, &s.Rows)
	return s, err == nil && s.Valid() && s.String() == text
}

// AppendResize appends a resize frame to b.
func AppendResize(b []byte, s TerminalSize) []byte {
	payload := binary.BigEndian.AppendUint16(nil, uint16(s.Cols))
	return Append(b, TypeResize, binary.BigEndian.AppendUint16(payload, uint16(s.Rows)))
}

// DecodeResize decodes a resize frame's payload.
func DecodeResize(payload []byte) (TerminalSize, error) {
	var s TerminalSize
	if len(payload) == resizeLen {
		s = TerminalSize{int(binary.BigEndian.Uint16(payload)), int(binary.BigEndian.Uint16(payload[2:]))}
	}
	if !s.Valid() {
		return s, fmt.Errorf("%w: a size that no terminal can have", ErrProtocol)
	}
	return s, nil
}

const resizeLen = 4
