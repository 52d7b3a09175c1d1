package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"secbox/fault"
)

// DefaultTimeout is the timeout of a command that sets none: the policy's default (design 3.2).
const DefaultTimeout = time.Minute

// ExecSpec is one command.
type ExecSpec struct {
	Command string   // a program, looked up in PATH; with Shell, a line for the user's shell (GetShell)
	Args    []string // ignored with Shell
	Shell   bool
	Dir     string        // absolute, and must exist; empty: Root
	Env     []string      // NAME=value, added to the sandbox's variables; a name with one of HiddenPrefixes is fault.InvalidRequest
	Stdin   string        // all of the command's standard input, unless there is StdinFrom; may be binary
	Timeout time.Duration // from the command's start; 0 or less: DefaultTimeout. A Recorder bounds it by the policy's ceiling
	User    User

	// StdinFrom is read for the command's standard input while the command runs; nil: Stdin. Its
	// end closes the command's standard input, and so does an error. Its content is not a part of
	// the audit row's digest. ExecTo does not wait for a Read under way when the command has ended:
	// the caller must make it return. fault.Unsupported when the runner on the user's machine is
	// too old; nothing was run then.
	StdinFrom io.Reader

	// Signals are sent to the command's processes while it runs: to the process group of its main
	// process, as a terminal does. CanSignal tells which; others are dropped. On Windows SIGINT is
	// Ctrl-Break, and the others end the command. May be nil. fault.Unsupported when the sandbox
	// image or the runner on the user's machine is too old; nothing was run then.
	Signals <-chan syscall.Signal

	// OnConnection carries the connections that the command's processes make to a proxy in the
	// container, see engine.Job; nil: the command has no network of this program. docker only.
	OnConnection func(ctx context.Context, conn net.Conn)

	MaxStdout int64 // bytes to give back of each stream; 0 or more than MaxOutputBytes: MaxOutputBytes
	MaxStderr int64

	// ExecID is the id of the command's audit row; empty: it has none, or none yet. A Recorder
	// fills it in, and remote uses it as the command's id on the user's machine too.
	ExecID string

	// ImageID is the image that Locate returned and that the audit row names. docker runs the
	// command in a container of it, or not at all: fault.SandboxBusy. Empty: any image.
	ImageID string
}

// Check refuses a command that no system can start, or that JSON cannot carry to a container, a
// worker or a machine. Stdin may be binary.
func (s ExecSpec) Check() error {
	if s.Command == "" {
		return fault.BadField("command", "is empty")
	}
	if reason := badText(s.Command); reason != "" {
		return fault.BadField("command", "%s", reason)
	}
	if !s.Shell {
		for _, arg := range s.Args {
			if reason := badText(arg); reason != "" {
				return fault.BadField("args", "%s", reason)
			}
		}
	}
	if slices.ContainsFunc(s.Env, func(kv string) bool { return !utf8.ValidString(kv) }) {
		return fault.BadField("env", "must be UTF-8")
	}
	if !utf8.ValidString(s.Dir) {
		return Invalid("exec", s.Dir)
	}
	return CheckEnv(s.Env)
}

// Input returns the command's standard input as a reader.
func (s ExecSpec) Input() io.Reader {
	if s.StdinFrom != nil {
		return s.StdinFrom
	}
	return strings.NewReader(s.Stdin)
}

// CanSignal reports whether a command may be sent a signal: SIGHUP, SIGINT, SIGTERM or SIGKILL.
func CanSignal(s syscall.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGKILL
}

func badText(s string) string {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return "must not contain a NUL"
	case !utf8.ValidString(s):
		return "must be UTF-8; pass other bytes on stdin, or in a file"
	}
	return ""
}

// TimeoutWithin returns the command's timeout, at most ceiling; a ceiling of 0 is none.
func (s ExecSpec) TimeoutWithin(ceiling time.Duration) time.Duration {
	timeout := cmp.Or(max(0, s.Timeout), DefaultTimeout)
	if ceiling > 0 {
		timeout = min(timeout, ceiling)
	}
	return timeout
}

// OutputBound returns how many bytes of a stream a command gives back when a spec asks for so many.
func OutputBound(asked int64) int64 {
	if asked <= 0 || asked > MaxOutputBytes {
		return MaxOutputBytes
	}
	return asked
}

// ExecResult is how a command ended. Every process that it started is dead.
type ExecResult struct {
	Stdout, Stderr string // as written, may be binary; cut at the spec's bounds
	ExitCode       int    // 128+signal when a signal ended it, 127 or 126 when it could not be found or started, -1 on timeout
	TimedOut       bool
	// with TimedOut: the exit code of a command that ended by itself after SIGTERM; nil if killed,
	// or not known, as of remote
	Ended       *int
	StdoutBytes int64 // bytes written, given back or not
	StderrBytes int64
	Detail      string // why the command ended, if not by itself: out of memory, killed from outside
	OOMKilled   bool   // killed for memory
	DiskLimit   bool   // killed because it, or others, used too much of the disk; docker only
	Canceled    bool   // killed because its caller no longer waited, and ExitCode is 137; remote only

	ExecID string // of the audit row; empty when the command has none
	Runner string // the machine it ran on; remote only
}

// Collect implements Exec with ExecTo: it keeps the output in memory.
func Collect(ctx context.Context, s Streamer, spec ExecSpec) (*ExecResult, error) {
	var stdout, stderr bytes.Buffer
	r, err := s.ExecTo(ctx, spec, &stdout, &stderr)
	if err != nil {
		return nil, err
	}
	r.Stdout, r.Stderr = stdout.String(), stderr.String()
	return r, nil
}

// Request is the part of an audit row that describes the request behind a command.
type Request struct {
	RequestedBy    string // the token's id, or Tokenless
	TaskID         string
	ConversationID string
	SkillID        string
}

// Tokenless is the RequestedBy of a request that needed no token.
const Tokenless = "loopback"

type requestKey struct{}

// WithRequest attaches the request behind the commands of a context: for the audit row, and for
// limits per token.
func WithRequest(ctx context.Context, req Request) context.Context {
	return context.WithValue(ctx, requestKey{}, req)
}

// RequestOf returns the request that WithRequest attached.
func RequestOf(ctx context.Context) Request {
	req, _ := ctx.Value(requestKey{}).(Request)
	return req
}
