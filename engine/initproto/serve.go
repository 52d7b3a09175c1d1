package initproto

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// The protocol of sandbox-init --serve, the first process of a long-lived container that runs many
// commands at once:
//
//	core-api -> init:  (start | stdin | stdin-end | signal | kill | grant)*     closing the stream is the end of the lease: everything dies
//	init -> core-api:  hello  (stdout | stderr | credit | busy | exit | unlinked)*
//
// The frames are the frames of a single job, but every payload except hello's begins with four
// bytes, the command's id (big endian). core-api chooses the id, which belongs to the command from
// start until exit or busy. Frames with an id that belongs to no command are ignored: they were
// sent before its exit was received. Id 0 marks unlinked frames, which are about the whole
// container.
//
// Commands do not wait for each other: standard input has credit as with a single job, and so has
// output, in the other direction. init sends at most OutputWindow chunks of one command, of both
// streams together, more than core-api has granted; then only that command waits. So a slow reader
// slows one command, and a kill always gets through.
//
// Signals came with the second version: core-api asks for it with the argument ServeVersion, and
// init answers with MagicServe instead of MagicServe1. An older one of either side stays with the
// first version, without signals.

// Frames that a single job does not have.
const (
	TypeStart Type = 'S' // id, JSON Job
	TypeGrant Type = 'G' // id; one chunk of output was passed on: another may be sent
	TypeBusy  Type = 'b' // id; the command was not started: MaxCommands run already
)

const (
	// MaxCommands is how many commands run at once; further ones are busy.
	MaxCommands = 64
	// OutputWindow is how many chunks of one command's output may be in flight.
	OutputWindow = 4

	idLen = 4
)

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

// SplitID splits a payload into the id and the rest.
func SplitID(payload []byte) (id uint32, rest []byte, err error) {
	if len(payload) < idLen {
		return 0, nil, fmt.Errorf("%w: a frame without a command's id", ErrProtocol)
	}
	return binary.BigEndian.Uint32(payload), payload[idLen:], nil
}
