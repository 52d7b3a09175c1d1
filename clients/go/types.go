package client

import (
	"encoding/json"
	"io"
	"time"
)

// Request is one command to run once. Of Project and SessionID one must be set.
type Request struct {
	Project        string   `json:"project_id,omitempty"`
	ConversationID string   `json:"conversation_id,omitempty"`
	UserID         string   `json:"user_id,omitempty"`
	SessionID      string   `json:"session_id,omitempty"`
	Background     bool     `json:"background,omitempty"`
	SkillID        string   `json:"skill_id,omitempty"`
	Command        Command  `json:"exec"`
	Image          string   `json:"image,omitempty"`
	Inputs         []Input  `json:"inputs,omitempty"`
	CallbackURL    string   `json:"callback_url,omitempty"`
	Policy         *Policy  `json:"policy_overrides,omitempty"`
	Priority       string   `json:"priority,omitempty"`         // of asynchronous requests: low, normal, high
	QueueTimeoutMS int64    `json:"queue_timeout_ms,omitempty"` // of asynchronous requests
	Task           *TaskRef `json:"task_ref,omitempty"`
	Stream         bool     `json:"stream,omitempty"` // set by Stream

	Key string `json:"-"` // the Idempotency-Key; empty: a new one

	// Stdin is the standard input, of any size, which Stream sends while the command runs; nil:
	// none. A Read that blocks may outlive the exec.
	Stdin io.Reader `json:"-"`
}

// Command is what a request runs: a Script for bash, Code for Python, or a program with arguments.
type Command struct {
	Script  string            `json:"script,omitempty"`
	Code    string            `json:"code,omitempty"`
	Kind    string            `json:"kind,omitempty"`
	Program string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Context string            `json:"context,omitempty"` // in a session: the interpreter that keeps its state
	Stdin   string            `json:"stdin,omitempty"`
	Stream  bool              `json:"stdin_stream,omitempty"` // set by Stream for Request.Stdin
	TTY     *TerminalSize     `json:"tty,omitempty"`
	Record  string            `json:"tty_record,omitempty"`
}

// Argv returns the command that runs a program with its arguments. No shell interprets them.
func Argv(argv ...string) Command {
	if len(argv) == 0 {
		return Command{}
	}
	switch script := len(argv) > 2; {
	case script && argv[0] == "bash" && (argv[1] == "-c" || argv[1] == "-lc"):
		return Command{Kind: "shell", Program: "bash", Args: argv[1:]}
	case script && (argv[0] == "python" || argv[0] == "python3") && argv[1] == "-c":
		return Command{Kind: "python", Program: "python", Args: argv[1:]}
	}
	return Command{Kind: "shell", Program: "bash", Args: append([]string{"-c", `exec -- "$0" "$@"`}, argv...)}
}

// TerminalSize is the size of a terminal, in characters.
type TerminalSize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Input is a file for /workspace/inputs.
type Input struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty"` // base64, or empty: utf-8
	Mode     string `json:"mode,omitempty"`     // 0755 for a program
}

// Policy are limits that a request asks for. Zero values ask for nothing.
type Policy struct {
	TimeoutMS         int64        `json:"timeout_ms,omitempty"`
	KillGraceMS       int64        `json:"kill_grace_ms,omitempty"`
	MaxStdoutBytes    int64        `json:"max_stdout_bytes,omitempty"`
	MaxStderrBytes    int64        `json:"max_stderr_bytes,omitempty"`
	ArtifactsBytes    int64        `json:"max_artifacts_bytes_total,omitempty"`
	MemoryMB          int64        `json:"memory_mb,omitempty"`
	CPUCores          float64      `json:"cpu_cores,omitempty"`
	PIDs              int64        `json:"pids,omitempty"`
	TmpMB             int64        `json:"tmp_mb,omitempty"`
	ShmMB             int64        `json:"shm_mb,omitempty"`
	Image             string       `json:"image,omitempty"`
	NetMode           string       `json:"net.mode,omitempty"`
	NetAllow          []string     `json:"net.allow,omitempty"`
	NetCredentials    []Credential `json:"net.credentials,omitempty"`
	NetMaxBytes       int64        `json:"net.max_bytes,omitempty"`
	NetConnections    int64        `json:"net.connections,omitempty"`
	NetMaxConnections int64        `json:"net.max_connections,omitempty"`
	NetIdleMS         int64        `json:"net.idle_ms,omitempty"`
	FSRead            []string     `json:"fs.read,omitempty"`
	FSWrite           []string     `json:"fs.write,omitempty"`
}

// Credential is a secret of the operator that core-api adds to requests of the command to a host.
// One of Header, Basic and Query is set.
type Credential struct {
	Secret string `json:"secret"`
	Host   string `json:"host"`
	Header string `json:"header,omitempty"` // such as "Authorization: Bearer"
	Basic  string `json:"basic,omitempty"`  // the user
	Query  string `json:"query,omitempty"`  // the parameter
}

// TaskRef is the caller's own reference to an exec.
type TaskRef struct {
	TaskID         string `json:"task_id,omitempty"`
	ConversationID string `json:"conversation_id,omitempty"`
}

// State is what is known of an exec: by events, and as a part of Result and Record.
type State struct {
	ExecID      string    `json:"exec_id"`
	Project     string    `json:"project_id"`
	Status      string    `json:"status"`       // queued, running, succeeded, failed, timeout, oom_killed, canceled, error, lost, rejected
	ExitCode    *int      `json:"exit_code"`    // nil: it did not exit by itself
	ErrorReason string    `json:"error_reason"` // empty: it succeeded, or still runs
	Detail      string    `json:"detail"`
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	DurationMS  int64     `json:"duration_ms"`
	StdoutBytes int64     `json:"stdout_bytes"` // that the command wrote
	StderrBytes int64     `json:"stderr_bytes"`
	StdoutCut   bool      `json:"stdout_truncated"` // the command wrote more than max_stdout_bytes, which is all that is kept
	StderrCut   bool      `json:"stderr_truncated"`

	Artifacts    []Artifact      `json:"artifacts"`
	Omitted      []Omitted       `json:"omitted"` // the first of the files that are no artifacts
	OmittedCount int64           `json:"omitted_count"`
	Results      json.RawMessage `json:"results"` // of code in a session's context
	Outputs      json.RawMessage `json:"outputs"` // of a skill that streams
	Problem      *Error          `json:"problem"` // why a stream lacks output
}

// Ended reports whether the exec has ended.
func (s State) Ended() bool { return s.Status != "" && s.Status != "queued" && s.Status != "running" }

// Result is the outcome of an exec.
type Result struct {
	State
	Stdout          string `json:"stdout"` // the first 64 KiB
	Stderr          string `json:"stderr"`
	StdoutInlineCut bool   `json:"stdout_inline_truncated"` // Output has the rest
	StderrInlineCut bool   `json:"stderr_inline_truncated"`
	Warm            bool   `json:"warm"` // the container waited for it
	Replayed        bool   `json:"-"`    // an earlier request with the same key has run it
}

// Artifact is a file that an exec left in /workspace/artifacts.
type Artifact struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Omitted is a file in /workspace/artifacts that is no artifact.
type Omitted struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Record is the audit record of an exec, without the fields that only auditors need: Raw has all.
type Record struct {
	State
	TaskID      string          `json:"task_id"`
	UserID      string          `json:"user_id"`
	SessionID   string          `json:"session_id"`
	SkillID     string          `json:"skill_id"`
	Image       string          `json:"image"`
	Cmd         string          `json:"cmd"`
	Args        []string        `json:"args"`
	CreatedAt   time.Time       `json:"created_at"`
	RequestedBy string          `json:"requested_by"`
	Token       string          `json:"requested_by_name"`
	Policy      json.RawMessage `json:"policy_snapshot"`
	Raw         json.RawMessage `json:"-"`
}

// UnmarshalJSON keeps the whole record.
func (r *Record) UnmarshalJSON(text []byte) error {
	type plain Record
	if err := json.Unmarshal(text, (*plain)(r)); err != nil {
		return err
	}
	r.Raw = append(json.RawMessage(nil), text...)
	return nil
}
