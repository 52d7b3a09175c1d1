// Package initproto is the language between core-api and the sandbox-init inside a container: frames over init's standard input and
// output.
//
//	core-api -> init:  rehearse*  job  stdin* stdin-end  [kill]   closing the stream is the end of the lease: everything dies
//	init -> core-api:  hello  ready*  (stdout | stderr | credit | unlinked)*  exit
//
// A frame is one byte of type, four bytes of payload length (big endian), and the payload. The first frame of init is always hello
// with the magic words, so that nothing an engine prints can pass for one. Both sides bound what they accept; the stream from a
// container is read as hostile although only init holds its other end.
//
// Standard input flows by credit: core-api sends at most StdinWindow chunks ahead of what init has passed on, so that init never
// has to stop reading frames (a kill must get through) and never holds more than the window.
//
// # Is it there?
//
// While init waits for its job it answers every rehearse but the first with ready. So core-api can tell a container that is frozen from one
// that waits before it sends the job. The first rehearse has no answer because an older core-api, which sends only that one, takes any
// frame for the end of the container. An older init gives no answers: core-api expects one only of an init that has given one before.
//
// # A worker
//
// engine/worker serves jobs one after the other in the same frames, after a hello of its own:
//
//	-> worker:  (job  stdin* stdin-end  [kill])*            closing the stream ends the job, and the worker
//	<- worker:  hello  ((stdout | stderr | credit)* exit)*
//
// The next job may be sent once the exit of the one before has come. What crosses an exit on its way is for the job that it ended, and is
// thrown away.
//
// # Many at once
//
// sandbox-init --serve runs many commands at the same time; see serve.go.
package initproto

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Type is the kind of a frame.
type Type byte

// The frames. Upper-case ones go to init, lower-case ones come from it.
const (
	TypeRehearse Type = 'R' // the job is yet to come: make ready for it; no payload. Each but the first asks for a ready. Ignored once there is a job
	TypeJob      Type = 'J' // JSON Job; exactly one
	TypeStdin    Type = 'I' // a chunk of the job's standard input, at most MaxChunk bytes
	TypeStdinEnd Type = 'E' // the job's standard input ends here; no payload
	TypeKill     Type = 'K' // kill the job and report; no payload

	TypeHello  Type = 'h' // Magic; exactly one, first
	TypeReady  Type = 'r' // the answer to a rehearse, before the job; no payload
	TypeStdout Type = 'o' // a chunk of output, at most MaxChunk bytes
	TypeStderr Type = 'e' // the same for standard error
	TypeCredit Type = 'c' // one stdin chunk was passed on or thrown away; no payload
	TypeExit   Type = 'x' // JSON Exit; exactly one, last

	// TypeUnlinked is a JSON Unlinked, sent when it has changed and about once a second, to a core-api whose job asked for it.
	TypeUnlinked Type = 'u'
)

// Magic is hello's payload: it names the protocol and its version. A worker and an init that serves many commands have words of their own.
const (
	Magic       = "secbox-init/2"
	MagicWorker = "secbox-worker/1"
	MagicServe  = "secbox-serve/1"
)

// Bounds of what either side accepts, in bytes.
const (
	MaxChunk    = 64 << 10 // output and stdin chunks: what a pipe holds by default
	MaxJob      = 16 << 20 // argv and environment: execve takes 2 MiB by default, JSON may escape each byte to six
	MaxExit     = 64 << 10
	MaxUnlinked = 256
	StdinWindow = 4 // chunks under way to init
)

const headerLen = 5

// ErrProtocol is what a stream that does not follow the protocol gives; errors.Is tells it from an I/O error.
var ErrProtocol = errors.New("not the sandbox-init protocol")

// Job is what init is to run.
type Job struct {
	Argv      []string `json:"argv"`       // Argv[0] is looked up in the image's PATH, not in the job's
	Env       []string `json:"env"`        // K=V, over the image's environment
	Cwd       string   `json:"cwd"`        // made when it does not exist
	TimeoutMS int64    `json:"timeout_ms"` // 0: no deadline
	MaxStdout int64    `json:"max_stdout"` // bytes passed on; the rest is counted only
	MaxStderr int64    `json:"max_stderr"`

	// ReportUnlinked asks for Unlinked frames. An init that does not know them sends none.
	ReportUnlinked bool `json:"report_unlinked,omitempty"`

	// What follows is for workers; the init of an exec's container takes no notice of it.
	CwdMustExist bool   `json:"cwd_must_exist,omitempty"` // it is not made; see Exit.NoDir
	OwnPath      bool   `json:"own_path,omitempty"`       // Argv[0] is looked up in the PATH that the job is given
	PathTail     string `json:"path_tail,omitempty"`      // directories added at the end of PATH, unless Env sets that
}

// Exit is init's report: every process of the job is dead when it is sent, but what Left says.
type Exit struct {
	Code        int    `json:"code"`   // 128+signal when a signal ended the main process
	Signal      int    `json:"signal"` // 0: it exited
	TimedOut    bool   `json:"timed_out"`
	Killed      bool   `json:"killed"`            // by a kill frame
	StartError  string `json:"start_error"`       // the command never ran
	NoDir       bool   `json:"no_dir,omitempty"`  // and that is because its working directory is not there
	NoRoom      bool   `json:"no_room,omitempty"` // and that is because there may be no more processes
	Spent       bool   `json:"spent,omitempty"`   // and that no other will either: an init that serves many commands is of no use any more
	Outside     bool   `json:"outside,omitempty"` // whoever ran the command was killed by somebody else, and the command with it
	Left        bool   `json:"left,omitempty"`    // something of it is alive: it runs as another user, and the worker may not kill it
	OOMKills    int64  `json:"oom_kills"`
	PIDsMax     int64  `json:"pids_max"` // refused forks
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	UserUS      int64  `json:"user_us"` // CPU time of all processes, microseconds
	SystemUS    int64  `json:"system_us"`
	MaxRSSKB    int64  `json:"max_rss_kb"` // of the largest process
}

// Unlinked is disk space of the project that no name leads to: files that the container's processes still use after the last name was
// removed.
type Unlinked struct {
	Bytes int64 `json:"bytes"` // on the disk, of the files that descriptors refer to; each file counts once
	// Hidden: there may be more. A process does not let init look at its descriptors, a file is only mapped into memory or on its way through
	// a socket, or there are too many descriptors.
	Hidden bool `json:"hidden,omitempty"`
}

// limit is the largest payload that a frame of this type may have; -1 for a type that the direction does not know.
func (d Direction) limit(t Type) int {
	switch d {
	case ToInit:
		switch t {
		case TypeJob:
			return MaxJob
		case TypeStdin:
			return MaxChunk
		case TypeStdinEnd, TypeKill, TypeRehearse:
			return 0
		}
	case ToWorker:
		if t == TypeRehearse {
			return -1
		}
		return ToInit.limit(t)
	case FromWorker:
		switch t {
		case TypeHello:
			return len(MagicWorker)
		case TypeReady, TypeUnlinked:
			return -1
		}
		return FromInit.limit(t)
	case ToServe, FromServe:
		return d.serveLimit(t)
	case FromInit:
		switch t {
		case TypeHello:
			return len(Magic)
		case TypeStdout, TypeStderr:
			return MaxChunk
		case TypeCredit, TypeReady:
			return 0
		case TypeExit:
			return MaxExit
		case TypeUnlinked:
			return MaxUnlinked
		}
	}
	return -1
}

// Direction says whose frames a Reader accepts.
type Direction int

// The directions, two for each of the three conversations.
const (
	ToInit Direction = iota
	FromInit
	ToWorker
	FromWorker
	ToServe
	FromServe
)

// Reader reads frames of one direction. It is not safe for concurrent use.
type Reader struct {
	r   io.Reader
	dir Direction
	buf []byte
}

// NewReader reads frames of the given direction from r, which should be buffered.
func NewReader(r io.Reader, dir Direction) *Reader { return &Reader{r: r, dir: dir} }

// Next returns the next frame; the payload is valid until the next call. At the end of the stream, between frames, it is io.EOF;
// within a frame io.ErrUnexpectedEOF; ErrProtocol for an unknown type or too long a payload, after which the stream is of no use.
func (r *Reader) Next() (Type, []byte, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r.r, header[:1]); err != nil {
		return 0, nil, err
	}
	if _, err := io.ReadFull(r.r, header[1:]); err != nil {
		return 0, nil, noEOF(err)
	}
	t, size := Type(header[0]), binary.BigEndian.Uint32(header[1:])
	limit := r.dir.limit(t)
	if limit < 0 {
		return 0, nil, fmt.Errorf("%w: unknown frame type 0x%02x", ErrProtocol, byte(t))
	}
	if int64(size) > int64(limit) {
		return 0, nil, fmt.Errorf("%w: a frame of type %q with %d bytes, at most %d are allowed", ErrProtocol, byte(t), size, limit)
	}
	payload, err := r.payload(int(size))
	if err != nil {
		return 0, nil, err
	}
	return t, payload, nil
}

// payload grows the buffer as bytes arrive, so that a header alone cannot make us allocate what it announces.
func (r *Reader) payload(size int) ([]byte, error) {
	const step = 256 << 10
	for have := 0; have < size; {
		next := min(size, have+step)
		if cap(r.buf) < next {
			grown := make([]byte, next, max(next, min(size, 2*cap(r.buf))))
			copy(grown, r.buf[:have])
			r.buf = grown
		}
		r.buf = r.buf[:next]
		n, err := io.ReadFull(r.r, r.buf[have:next])
		if err != nil {
			return nil, noEOF(err)
		}
		have += n
	}
	return r.buf[:size], nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Append appends one frame to b. The payload must be within the type's bound; the sender's own code guarantees that.
func Append(b []byte, t Type, payload []byte) []byte {
	b = append(b, byte(t))
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(b, payload...)
}

// AppendJSON appends one frame whose payload is v as JSON.
func AppendJSON(b []byte, t Type, v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return Append(b, t, payload), nil
}

// DecodeJob reads a job frame's payload and refuses one that could not be run.
func DecodeJob(payload []byte) (Job, error) {
	var j Job
	if err := json.Unmarshal(payload, &j); err != nil {
		return Job{}, fmt.Errorf("%w: job: %w", ErrProtocol, err)
	}
	if len(j.Argv) == 0 || j.Argv[0] == "" {
		return Job{}, fmt.Errorf("%w: job without a command", ErrProtocol)
	}
	if j.TimeoutMS < 0 || j.MaxStdout < 0 || j.MaxStderr < 0 {
		return Job{}, fmt.Errorf("%w: job with a negative limit", ErrProtocol)
	}
	return j, nil
}

// DecodeExit reads an exit frame's payload and refuses numbers that no process can have.
func DecodeExit(payload []byte) (Exit, error) {
	var e Exit
	if err := json.Unmarshal(payload, &e); err != nil {
		return Exit{}, fmt.Errorf("%w: exit: %w", ErrProtocol, err)
	}
	if e.Code < 0 || e.Code > 255 || e.Signal < 0 || e.Signal > 127 || e.StdoutBytes < 0 || e.StderrBytes < 0 ||
		e.OOMKills < 0 || e.PIDsMax < 0 || e.UserUS < 0 || e.SystemUS < 0 || e.MaxRSSKB < 0 {
		return Exit{}, fmt.Errorf("%w: exit with impossible numbers", ErrProtocol)
	}
	return e, nil
}

// DecodeUnlinked reads an unlinked frame's payload.
func DecodeUnlinked(payload []byte) (Unlinked, error) {
	var u Unlinked
	if err := json.Unmarshal(payload, &u); err != nil {
		return Unlinked{}, fmt.Errorf("%w: unlinked: %w", ErrProtocol, err)
	}
	if u.Bytes < 0 {
		return Unlinked{}, fmt.Errorf("%w: unlinked files of a negative size", ErrProtocol)
	}
	return u, nil
}
