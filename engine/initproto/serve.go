package initproto

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// The conversation with sandbox-init --serve, the first process of a container that lives for long and runs many commands at once:
//
//	core-api -> init:  (start | stdin | stdin-end | kill | grant)*     closing the stream is the end of the lease: everything dies
//	init -> core-api:  hello  (stdout | stderr | credit | busy | exit | unlinked)*
//
// The frames are those of a single job, but every payload but hello's begins with the four bytes of the command's id (big endian), which
// core-api makes up: it is its own from start until exit or busy. Frames about an id that is not, or no longer, a command are thrown away:
// they crossed its exit on their way. No command has the id 0: unlinked frames bear it, which are about the whole container.
//
// Nobody waits for anybody: standard input flows by credit as with a single job, and so does output, in the other direction. init sends at
// most OutputWindow chunks of one command, of both streams together, ahead of what core-api has granted; the command waits then, and no
// other. So a reader that is slow slows one command, and a kill gets through whatever else is under way.

// The frames that a single job does not have.
const (
	TypeStart Type = 'S' // id, JSON Job
	TypeGrant Type = 'G' // id; one chunk of output was passed on: another may come
	TypeBusy  Type = 'b' // id; the command was not started: MaxCommands run already
)

const (
	// MaxCommands is how many commands run at once; what is started beyond it is busy.
	MaxCommands = 64
	// OutputWindow is how many chunks of one command's output are under way at most.
	OutputWindow = 4

	idLen = 4
)

func (d Direction) serveLimit(t Type) int {
	switch d {
	case ToServe:
		switch t {
		case TypeStart:
			return idLen + MaxJob
		case TypeStdin:
			return idLen + MaxChunk
		case TypeStdinEnd, TypeKill, TypeGrant:
			return idLen
		}
	case FromServe:
		switch t {
		case TypeHello:
			return len(MagicServe)
		case TypeStdout, TypeStderr:
			return idLen + MaxChunk
		case TypeCredit, TypeBusy:
			return idLen
		case TypeExit:
			return idLen + MaxExit
		case TypeUnlinked:
			return idLen + MaxUnlinked
		}
	}
	return -1
}

// AppendID appends one frame about a command to b. The payload must be within the type's bound.
func AppendID(b []byte, t Type, id uint32, payload []byte) []byte {
	b = append(b, byte(t))
	b = binary.BigEndian.AppendUint32(b, uint32(idLen+len(payload)))
	b = binary.BigEndian.AppendUint32(b, id)
	return append(b, payload...)
}

// AppendIDJSON appends one frame about a command whose payload is v as JSON.
func AppendIDJSON(b []byte, t Type, id uint32, v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return AppendID(b, t, id, payload), nil
}

// SplitID takes the id off a payload.
func SplitID(payload []byte) (id uint32, rest []byte, err error) {
	if len(payload) < idLen {
		return 0, nil, fmt.Errorf("%w: a frame without a command's id", ErrProtocol)
	}
	return binary.BigEndian.Uint32(payload), payload[idLen:], nil
}
