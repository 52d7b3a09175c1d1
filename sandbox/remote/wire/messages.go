package wire

import "time"

// Version is the version of the protocol. Both sides must have the same; the older one is told to
// update.
const Version = 1

// Paths and headers of the requests that a runner makes.
const (
	LinkPath     = "/ws"
	TransferPath = "/ws/transfers/"

	OffsetHeader  = "Secbox-Transfer-Offset" // bytes of the content that core-api has
	SizeTrailer   = "Secbox-Transfer-Size"
	DigestTrailer = "Secbox-Transfer-Sha256" // the digest, in hexadecimal
)

// Bounds, in bytes unless they say otherwise.
const (
	InlineBytes  = 4 << 20   // content in a message; more goes over HTTP (004)
	MaxMessage   = 8 << 20   // InlineBytes in base64, and the rest
	MaxHello     = 512 << 10 // MaxHeld ids, and the rest
	MaxOutput    = 64 << 10
	StdinWindow  = 256 << 10 // of stdin, and MaxSignals signals, that the runner has not acknowledged
	MaxSignals   = 16
	MaxID        = 64
	MaxInFlight  = 1024
	MaxHeld      = 4096 // entries of hello.held and welcome.expects
	KeptIDs      = 16384
	MaxWordBytes = 128 // version, os, arch, shell
)

// Status codes of a WebSocket's close frame.
const (
	StatusProtocol  = 4400 // an invalid message
	StatusRevoked   = 4401 // the runner's token was revoked
	StatusVersion   = 4406 // another version of the protocol
	StatusNameInUse = 4409 // another runner of this user has the name
	StatusReplaced  = 4410 // this session has dialled again
	StatusGoingAway = 1001 // core-api shuts down: dial again
)

// Type is the kind of a message.
type Type string

// The messages.
const (
	TypeHello   Type = "hello"
	TypeWelcome Type = "welcome"
	TypePing    Type = "ping"
	TypePong    Type = "pong"
	TypeCancel  Type = "cancel" // the request still gets its result
	TypeAck     Type = "ack"    // the result has arrived and can be forgotten
	TypeStdin   Type = "stdin"  // of a command with Exec.Input
	TypeSignal  Type = "signal" // the same

	TypeExec      Type = "exec"
	TypeReadFile  Type = "read_file"
	TypeWriteFile Type = "write_file"
	TypeStat      Type = "stat"
	TypeReadDir   Type = "read_dir"
	TypeMkdirAll  Type = "mkdir_all"
	TypeRemove    Type = "remove"
	TypeRemoveAll Type = "remove_all"

	TypeOutput      Type = "output"
	TypeInputAck    Type = "input_ack" // the command has taken stdin or signals
	TypeExecResult  Type = "exec_result"
	TypeFileContent Type = "file_content"
	TypeFileInfo    Type = "file_info"
	TypeDirEntries  Type = "dir_entries"
	TypeOK          Type = "ok"
	TypeError       Type = "error"
)

// Hello is a runner's first message on a link.
type Hello struct {
	Protocol int      `json:"protocol"`
	Session  string   `json:"session"` // 32 hexadecimal digits, of this process of the runner
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	OS       string   `json:"os"`
	Arch     string   `json:"arch"`
	Shell    string   `json:"shell"`          // for GetShell
	Allow    []string `json:"allow"`          // "exec", "write"; reading is always granted
	Held     []string `json:"held,omitempty"` // ids of requests without an acknowledged result
	Can      []string `json:"can,omitempty"`  // features beyond the first version: CanCompare, CanCreate, CanInput, CanGMAC
}

// CanCompare in Hello.Can means that the runner accepts Path.IfSHA256, and serializes its writes of
// one file.
const CanCompare = "if_sha256"

// CanCreate in Hello.Can means that the runner accepts Path.IfAbsent.
const CanCreate = "if_absent"

// CanInput in Hello.Can means that the runner accepts Exec.Input, stdin and signal.
const CanInput = "exec_input"

// CanGMAC in Hello.Can means that the runner accepts Path.Digest with DigestGMAC.
const CanGMAC = "gmac"

// Welcome is core-api's answer to a hello.
type Welcome struct {
	Protocol    int        `json:"protocol"`
	UserID      string     `json:"user_id"`
	Version     string     `json:"version"`
	HeartbeatMS int64      `json:"heartbeat_ms"` // between two pings; after three without a byte, a side closes the link
	Expects     []Expected `json:"expects,omitempty"`
}

// Expected is a request of an earlier link for which core-api still waits.
type Expected struct {
	ID     string `json:"id"`
	Stdout int64  `json:"stdout"` // bytes received
	Stderr int64  `json:"stderr"`
}

// Exec requests a command (sandbox.ExecSpec).
type Exec struct {
	Command   string   `json:"command"`
	Args      []string `json:"args"`
	Shell     bool     `json:"shell"`
	Dir       string   `json:"dir"`
	Env       []string `json:"env"`
	Stdin     string   `json:"stdin"`
	Encoding  string   `json:"encoding,omitempty"` // of stdin: "base64" if it is not UTF-8
	Timeout   float64  `json:"timeout"`            // seconds
	MaxStdout int64    `json:"max_stdout"`
	MaxStderr int64    `json:"max_stderr"`
	UserID    string   `json:"user_id"`
	Input     bool     `json:"input,omitempty"` // standard input comes in stdin messages instead of Stdin, and signal messages may come
}

// Stdin is a piece of a command's standard input.
type Stdin struct {
	Offset int64  `json:"offset"`        // of its first byte
	Data   []byte `json:"data"`          // base64, at most MaxOutput bytes
	End    bool   `json:"end,omitempty"` // standard input ends after Data
}

// Signal is a signal for the process group of a command.
type Signal struct {
	Number int64  `json:"number"` // 1 for the command's first signal
	Signal string `json:"signal"` // one of SignalNames
}

// InputAck acknowledges all stdin and signals up to these.
type InputAck struct {
	Stdin   int64 `json:"stdin"`   // bytes that were passed on to the command
	Signals int64 `json:"signals"` // number of the last signal
}

// Path requests read_file, stat, read_dir, remove, remove_all; with Perm mkdir_all; with Data or
// Transfer write_file.
type Path struct {
	Path     string `json:"path"`
	UserID   string `json:"user_id"`
	Perm     uint32 `json:"perm,omitempty"`
	Data     []byte `json:"data,omitzero"`       // base64; of write_file, not nil without Transfer
	IfSHA256 string `json:"if_sha256,omitempty"` // hexadecimal; of write_file: the digest of the content to replace, else CodeChanged
	IfAbsent bool   `json:"if_absent,omitempty"` // of write_file: there is no such file, else CodeChanged
	Transfer string `json:"transfer,omitempty"`  // 32 hexadecimal digits; of read_file: for content larger than InlineBytes
	Digest   string `json:"digest,omitempty"`    // of the transfer's content: DigestGMAC; empty: SHA-256
}

// Output is a piece of a command's output.
type Output struct {
	Stream string `json:"stream"` // "stdout" or "stderr"
	Offset int64  `json:"offset"`
	Data   []byte `json:"data"` // base64, at most MaxOutput bytes
}

// ExecResult is the result of a command. Stdout and Stderr are the output after the last output
// message.
type ExecResult struct {
	Stdout      string `json:"stdout"`
	Stderr      string `json:"stderr"`
	Encoding    string `json:"encoding,omitempty"` // of both: "base64" if one is not UTF-8
	StdoutAt    int64  `json:"stdout_at"`          // offsets of their first bytes
	StderrAt    int64  `json:"stderr_at"`
	ExitCode    int    `json:"exit_code"`
	TimedOut    bool   `json:"timed_out"`
	Canceled    bool   `json:"canceled,omitempty"` // killed because of a cancel, or because core-api no longer expected it
	StdoutBytes int64  `json:"stdout_bytes"`       // bytes written; 0 or missing: as many as are given back
	StderrBytes int64  `json:"stderr_bytes"`
	Detail      string `json:"detail,omitempty"`
	OOMKilled   bool   `json:"oom_killed,omitempty"`
}

// FileContent is a file's content, or the digest of content that went over HTTP.
type FileContent struct {
	Data   []byte `json:"data"`             // base64
	Size   int64  `json:"size"`             // 0 or missing: the size of Data
	SHA256 string `json:"sha256,omitempty"` // with a transfer: the digest of the whole content, 64 hexadecimal digits
}

// FileInfo describes a file (sandbox.FileInfo).
type FileInfo struct {
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"` // bits as in fs.FileMode; IsDir adds the directory bit
	ModTime time.Time `json:"mod_time"`
	IsDir   bool      `json:"is_dir"`
}

// DirEntries lists a directory. A list that is too long for one message comes in several, all but
// the last with More.
type DirEntries struct {
	Entries []DirEntry `json:"entries"`
	More    bool       `json:"more,omitempty"`
}

// DirEntry is one entry (sandbox.DirEntry).
type DirEntry struct {
	Name  string `json:"name"`
	IsDir bool   `json:"is_dir"`
	Size  int64  `json:"size"`
	Mode  uint32 `json:"mode"`
}

// Error is why a request failed.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"` // for the user; at most 1,000 bytes are used
}

// The codes of Error. Codes for errors of files are the system's names.
const (
	CodeNotExist   = "ENOENT"
	CodePermission = "EACCES"
	CodeExist      = "EEXIST"
	CodeInvalid    = "EINVAL"
	CodeTooLarge   = "EFBIG"
	CodeTooMany    = "E2BIG" // entries of a directory
	CodeNoSpace    = "ENOSPC"
	CodeChanged    = "changed"     // the file does not have the content of if_sha256, or if_absent is set and it exists
	CodeNotAllowed = "not_allowed" // the runner was started without the necessary --allow
	CodeBusy       = "busy"
	CodeIDReused   = "id_reused"
	CodeCanceled   = "canceled"
	CodeTransfer   = "transfer" // large content did not arrive whole
	CodeFailed     = "failed"
)
