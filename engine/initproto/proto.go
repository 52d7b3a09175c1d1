// Package initproto is the protocol between core-api and the sandbox-init inside a container:
// frames over init's standard input and output. It must not know what runs in the container.
//
//	core-api -> init:  rehearse*  ([files* files-end]  job  stdin* stdin-end  network*  [kill] | serve …)
//	init -> core-api:  hello  ready*  ((stdout | stderr | credit | unlinked | usage | network)*  changes*  exit | …)
//
// Closing the stream ends the lease: everything dies.
//
// A frame is one byte of type, four bytes of payload length (big endian), and the payload. The
// first frame of init is always hello with the magic, so that output of an engine cannot be taken
// for frames. Both sides bound all sizes; the stream from a container is treated as hostile
// although only init holds its other end.
//
// Standard input has credit: core-api sends at most StdinWindow chunks more than init has passed
// on, so that init never stops reading frames (a kill must get through) and never holds more than
// the window.
//
// # Answers while waiting
//
// While init waits for its job it answers every rehearse but the first with ready. So core-api can
// detect a frozen container before it sends the job. The first rehearse has no answer because an
// older core-api, which sends only that one, takes any frame for the end of the container. An older
// init does not answer: core-api expects an answer only of an init that has answered before.
//
// # Files
//
// A container that mounts nothing of the project, such as a pod, gets the directories of its exec
// in files frames: the chunks of one stream, whose format is of engine/transfer, and its end. init
// unpacks it at once and answers nothing. If it cannot, the exit of the job says so as StartError,
// and the job does not run. With Job.Files, init sends what changed after every process of the job
// is dead: chunks of a stream in changes frames. The first frame is empty and comes at once: the
// job's time is over, and what follows takes as long as there is to send. There are none if the
// job did not run. All of it is for the one job of an exec; an init that serves many commands has
// no files.
//
// Only an init that was started with FilesArg takes files, and says so in its hello. An older one
// ignores the argument and says Magic.
//
// # A worker
//
// engine/worker serves jobs one after the other in the same frames, with its own magic:
//
//	-> worker:  (job  stdin* stdin-end  signal* [kill])*    closing the stream ends the job, and the worker
//	<- worker:  hello  ((stdout | stderr | credit)* exit)*
//
// The next job may be sent after the exit of the previous one was received. Frames that were sent
// before that belong to the ended job and are ignored.
//
// # Many at once
//
// sandbox-init --serve runs many commands at the same time; see serve.go. An init that waits for
// its job becomes one when it gets serve instead: its next frame is the hello of that protocol. An
// older init ends.
package initproto

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Type is the kind of a frame.
type Type byte

// The frames. Upper-case ones go to init, lower-case ones come from it.
const (
	TypeRehearse Type = 'R' // prepare for a job; no payload. Each but the first requests a ready. Ignored after the job
	TypeJob      Type = 'J' // JSON Job; exactly one, or a serve
	TypeServe    Type = 'S' // become an init that serves many commands; no payload. Afterwards, this type is TypeStart
	TypeFiles    Type = 'F' // a chunk of the stream of files, at most MaxChunk bytes, before the job
	TypeFilesEnd Type = 'D' // the stream of files ends here; no payload
	TypeStdin    Type = 'I' // a chunk of the job's standard input, at most MaxChunk bytes
	TypeStdinEnd Type = 'E' // the job's standard input ends here; no payload
	TypeKill     Type = 'K' // kill the job and report; no payload
	TypeNetwork  Type = 'W' // bytes of the job's connections, at most MaxChunk, to either side: see Wire
	TypeSignal   Type = 'N' // a signal for the process group of the main process: one byte, one of Signals; not for the init of an exec

	TypeHello  Type = 'h' // Magic; exactly one, first
	TypeReady  Type = 'r' // the answer to a rehearse, before the job; no payload
	TypeStdout Type = 'o' // a chunk of output, at most MaxChunk bytes
	TypeStderr Type = 'e' // the same for standard error
	TypeCredit Type = 'c' // one stdin chunk was passed on or dropped; no payload
	TypeExit   Type = 'x' // JSON Exit; exactly one, last

	// TypeChanges is a chunk of the stream of what changed, at most MaxChunk bytes. The first is
	// empty.
	TypeChanges Type = 'f'

	// TypeUnlinked is a JSON Unlinked, sent when it has changed and about once a second, if the job
	// requests it.
	TypeUnlinked Type = 'u'
	// TypeUsage is a JSON Usage, sent about twice a second, if the job requests it. An init that
	// serves many jobs sends it with the id 0 and at longer intervals, from the first such job on.
	TypeUsage Type = 'm'
)

// Magic is the payload of hello: the protocol and its version. Workers and inits that serve many
// commands have other ones.
const (
	Magic       = "secbox-init/2"
	MagicWorker = "secbox-worker/1"
	MagicServe  = "secbox-serve/2"
	MagicFiles  = "secbox-init/2+files" // of an init that takes files

	// MagicServe1 is the hello of an init without signals: of an older one, and of a newer one
	// whose caller does not ask for ServeVersion.
	MagicServe1 = "secbox-serve/1"
	// ServeVersion is the argument after --serve that asks for MagicServe. An older init ignores
	// it.
	ServeVersion = "2"

	// FilesArg is the argument of an init that takes files.
	FilesArg = "--files"
)

// PodFlag is the first argument of a sandbox-init in a pod of a cluster, before its others. Such an
// init refuses all sockets but Unix ones. It waits for one byte before its hello, because a stream
// that is attached to a pod has only what comes after that, and ends if none comes in PodPatience.
const (
	PodFlag     = "--pod"
	PodPatience = 2 * time.Minute
)

// Bounds of payloads, in bytes.
const (
	MaxChunk    = 64 << 10 // output and stdin chunks: what a pipe holds by default
	MaxJob      = 16 << 20 // argv and environment: execve takes 2 MiB by default, JSON may escape each byte to six
	MaxExit     = 64 << 10
	MaxUnlinked = 256
	MaxUsage    = 256
	StdinWindow = 4 // chunks in flight to init
)

const headerLen = 5

// ErrProtocol is wrapped by the errors about a stream that violates the protocol, and not by I/O
// errors.
var ErrProtocol = errors.New("not the sandbox-init protocol")

// Job is the command that init runs.
type Job struct {
	Argv      []string `json:"argv"`               // Argv[0] is looked up in the image's PATH, not in the job's
	Env       []string `json:"env"`                // K=V, over the image's environment
	Cwd       string   `json:"cwd"`                // created when it does not exist
	TimeoutMS int64    `json:"timeout_ms"`         // 0: no deadline
	GraceMS   int64    `json:"grace_ms,omitempty"` // SIGTERM comes so long before the deadline; 0: none does. Older inits send none
	MaxStdout int64    `json:"max_stdout"`         // bytes to pass on; the rest is counted only
	MaxStderr int64    `json:"max_stderr"`

	// ReportUnlinked requests Unlinked frames. Older inits send none.
	ReportUnlinked bool `json:"report_unlinked,omitempty"`

	// ReportUsage requests Usage frames. Older inits send none.
	ReportUsage bool `json:"report_usage,omitempty"`

	// CodeFile is a file for Argv of the form PROGRAM -c CODE ARG…: CODE is written to it, and
	// PROGRAM CodeFile ARG… runs, with Cwd first in PYTHONPATH, where -c has it. Older inits run
	// Argv.
	CodeFile string `json:"code_file,omitempty"`

	// Files says that files came, and requests what changed. The init of an exec that was started
	// with FilesArg knows it; the others send nothing.
	Files *Files `json:"files,omitempty"`

	// Network requests a proxy on the container's loopback for the job's connections, which go to
	// core-api in network frames. The first one, empty, comes before the job's output and says that
	// there is one. Older inits run the job without.
	Network bool `json:"network,omitempty"`

	// Ports requests that nothing runs until a kill: core-api opens connections in the network
	// frames, each beginning with a port, two bytes, big endian. Init dials it on the container's
	// loopback, and answers with one byte, such as PortOpen; the connection follows that one. Only
	// the init that serves many commands knows it. Older ones run Argv.
	Ports bool `json:"ports,omitempty"`

	// NetworkCA is a certificate authority, in PEM, that the job's programs shall trust; see CAEnv.
	// Older inits ignore it.
	NetworkCA string `json:"network_ca,omitempty"`

	// CPUs is the number of processors for the variables that programs read it from; 0: none are
	// set. Older inits set none.
	CPUs int64 `json:"cpus,omitempty"`

	// For workers only; the init of an exec's container ignores them.
	CwdMustExist bool   `json:"cwd_must_exist,omitempty"` // it is not created; see Exit.NoDir
	OwnPath      bool   `json:"own_path,omitempty"`       // Argv[0] is looked up in the job's PATH
	PathTail     string `json:"path_tail,omitempty"`      // directories added at the end of PATH, unless Env sets that
}

// Files are the bounds of what comes back, which are transfer.Bounds.
type Files struct {
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
}

// The answers to the port of a connection.
const (
	PortOpen    byte = 'o'
	PortRefused byte = 'r' // nothing listens there, or it is a proxy of init itself
	PortFailed  byte = 'f' // a server listens, perhaps, and does not accept connections
)

// Exit is init's report. Every process of the job is dead when it is sent, unless Left is set.
type Exit struct {
	Code        int    `json:"code"`              // 128+signal when a signal ended the main process
	Signal      int    `json:"signal"`            // 0: it exited
	TimedOut    bool   `json:"timed_out"`         // killed at its deadline, or ended after its SIGTERM
	Killed      bool   `json:"killed"`            // by a kill frame
	StartError  string `json:"start_error"`       // why the command did not run
	NoDir       bool   `json:"no_dir,omitempty"`  // because its working directory does not exist
	NoRoom      bool   `json:"no_room,omitempty"` // because there may be no more processes
	Spent       bool   `json:"spent,omitempty"`   // and no other command will run in this container
	Outside     bool   `json:"outside,omitempty"` // another process killed the worker, and the command with it
	Left        bool   `json:"left,omitempty"`    // processes of it that became another user are alive; the worker may not kill them
	OOMKills    int64  `json:"oom_kills"`
	PIDsMax     int64  `json:"pids_max"` // refused forks
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	UserUS      int64  `json:"user_us"` // CPU time of all processes, microseconds
	SystemUS    int64  `json:"system_us"`
	MaxRSSKB    int64  `json:"max_rss_kb"` // of the largest process
}

// Unlinked is the disk space of files of the project that the container's processes use after their
// last name was removed.
type Unlinked struct {
	Bytes int64 `json:"bytes"` // on the disk, of the files that descriptors refer to; each file counts once
	// Hidden: there may be more. A process hides its descriptors from init, a file is only mapped
	// into memory or in flight through a socket, or there are too many descriptors.
	Hidden bool `json:"hidden,omitempty"`
}

// Usage is what all processes of the container use.
type Usage struct {
	CPUUS       int64 `json:"cpu_us"`       // CPU time since the job began, microseconds
	ElapsedUS   int64 `json:"elapsed_us"`   // since the job began
	MemoryBytes int64 `json:"memory_bytes"` // now, without cached files that are not in use
}

// Direction is the sender and the receiver of frames.
type Direction int

// The directions, two for each of the three conversations, and what a terminal reads.
const (
	ToInit Direction = iota
	FromInit
	ToWorker
	FromWorker
	ToServe
	FromServe
	ToTerminal
)

// limits are the largest payloads, in bytes, of the types of frames that each direction has.
var limits = [...]map[Type]int{
	ToInit: {
		TypeRehearse: 0, TypeJob: MaxJob, TypeServe: 0, TypeStdin: MaxChunk, TypeStdinEnd: 0, TypeKill: 0, TypeNetwork: MaxChunk,
		TypeFiles: MaxChunk, TypeFilesEnd: 0,
	},
	FromInit: {
		TypeHello: len(MagicFiles), TypeReady: 0, TypeStdout: MaxChunk, TypeStderr: MaxChunk, TypeCredit: 0, TypeExit: MaxExit,
		TypeUnlinked: MaxUnlinked, TypeUsage: MaxUsage, TypeNetwork: MaxChunk, TypeChanges: MaxChunk,
	},
	ToWorker:   {TypeJob: MaxJob, TypeStdin: MaxChunk, TypeStdinEnd: 0, TypeKill: 0, TypeSignal: 1},
	FromWorker: {TypeHello: len(MagicWorker), TypeStdout: MaxChunk, TypeStderr: MaxChunk, TypeCredit: 0, TypeExit: MaxExit},
	ToServe: {
		TypeStart: idLen + MaxJob, TypeStdin: idLen + MaxChunk, TypeStdinEnd: idLen, TypeKill: idLen, TypeGrant: idLen,
		TypeSignal: idLen + 1, TypeNetwork: idLen + MaxChunk,
	},
	FromServe: {
		TypeHello: len(MagicServe), TypeStdout: idLen + MaxChunk, TypeStderr: idLen + MaxChunk, TypeCredit: idLen, TypeBusy: idLen,
		TypeExit: idLen + MaxExit, TypeUnlinked: idLen + MaxUnlinked, TypeUsage: idLen + MaxUsage,
		TypeNetwork: idLen + MaxChunk,
	},
	ToTerminal: {TypeStdin: MaxChunk, TypeResize: resizeLen, TypeSignal: 1},
}

// Reader reads frames of one direction. It is not safe for concurrent use.
type Reader struct {
	r   io.Reader
	dir Direction
	buf []byte
}

// NewReader reads frames of the given direction from r, which should be buffered.
func NewReader(r io.Reader, dir Direction) *Reader { return &Reader{r: r, dir: dir} }

// Next returns the next frame; the payload is valid until the next call. At the end of the stream,
// between frames, it is io.EOF; within a frame io.ErrUnexpectedEOF; ErrProtocol for an unknown type
// or too long a payload, after which the stream is unusable.
func (r *Reader) Next() (Type, []byte, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r.r, header[:1]); err != nil {
		return 0, nil, err
	}
	if _, err := io.ReadFull(r.r, header[1:]); err != nil {
		return 0, nil, noEOF(err)
	}
	t, size := Type(header[0]), binary.BigEndian.Uint32(header[1:])
	limit, known := limits[r.dir][t]
	if !known {
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

// payload grows the buffer as bytes arrive, so that a header alone cannot cause a large allocation.
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

// Append appends one frame to b. The payload must be within the type's bound.
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

// DecodeJob decodes a job frame's payload and refuses a job that cannot run.
func DecodeJob(payload []byte) (Job, error) {
	var j Job
	if err := json.Unmarshal(payload, &j); err != nil {
		return Job{}, fmt.Errorf("%w: job: %w", ErrProtocol, err)
	}
	if len(j.Argv) == 0 || j.Argv[0] == "" {
		return Job{}, fmt.Errorf("%w: job without a command", ErrProtocol)
	}
	if j.CodeFile != "" && (len(j.Argv) < 3 || j.Argv[1] != "-c") {
		return Job{}, fmt.Errorf("%w: job with a file for code and without code", ErrProtocol)
	}
	if j.TimeoutMS < 0 || j.GraceMS < 0 || j.MaxStdout < 0 || j.MaxStderr < 0 || j.CPUs < 0 {
		return Job{}, fmt.Errorf("%w: job with a negative limit", ErrProtocol)
	}
	if j.Files != nil && (j.Files.Bytes < 0 || j.Files.Entries < 0) {
		return Job{}, fmt.Errorf("%w: job with a negative bound of its files", ErrProtocol)
	}
	return j, nil
}

// The most that a job can have used: their sums, and products with the units that callers need, do
// not overflow.
const (
	maxCPU = 1 << 49 // microseconds, some 17 years
	maxRSS = 1 << 40 // KiB, a PiB
)

// DecodeExit decodes an exit frame's payload and refuses impossible numbers.
func DecodeExit(payload []byte) (Exit, error) {
	var e Exit
	if err := json.Unmarshal(payload, &e); err != nil {
		return Exit{}, fmt.Errorf("%w: exit: %w", ErrProtocol, err)
	}
	if e.Code < 0 || e.Code > 255 || e.Signal < 0 || e.Signal > 127 || e.StdoutBytes < 0 || e.StderrBytes < 0 ||
		e.OOMKills < 0 || e.PIDsMax < 0 || e.UserUS < 0 || e.UserUS > maxCPU || e.SystemUS < 0 || e.SystemUS > maxCPU || e.MaxRSSKB < 0 ||
		e.MaxRSSKB > maxRSS {
		return Exit{}, fmt.Errorf("%w: exit with impossible numbers", ErrProtocol)
	}
	return e, nil
}

// DecodeUnlinked decodes an unlinked frame's payload.
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

// DecodeUsage decodes a usage frame's payload and refuses impossible numbers.
func DecodeUsage(payload []byte) (Usage, error) {
	var u Usage
	if err := json.Unmarshal(payload, &u); err != nil {
		return Usage{}, fmt.Errorf("%w: usage: %w", ErrProtocol, err)
	}
	if u.CPUUS < 0 || u.CPUUS > maxCPU || u.ElapsedUS < 0 || u.ElapsedUS > maxCPU || u.MemoryBytes < 0 {
		return Usage{}, fmt.Errorf("%w: usage with impossible numbers", ErrProtocol)
	}
	return u, nil
}
