package runner

import (
	"secbox/audit"
	"secbox/internal/traces"
	"secbox/policy"
	"secbox/runner/output"
	"secbox/runner/session"
	"secbox/runner/terminal"
	"secbox/workspace"
)

// Kinds of commands and the command that each allows.
const (
	KindShell  = "shell"  // command "bash"
	KindPython = "python" // command "python"
	// KindArgv is for callers within this process, which have checked the command themselves.
	// Requests must not have it.
	KindArgv = "argv"
)

// Request is one exec as a client asks for it. It is decoded, and its token may use the project;
// nothing else was checked.
type Request struct {
	ProjectID      string // empty: ConversationID is the project
	ConversationID string
	AgentID        string
	UserID         string
	SkillID        string
	SkillDigest    string // of the files of SkillID, for the record, if they cannot change while the command runs; Skill has its own
	TaskID         string
	Command        Command
	Image          string // empty: the policy's
	Inputs         []Input
	Overrides      policy.Layer
	Skill          *Skill    // not nil for the invoke of the skill SkillID
	Queue          *Queueing // not nil for an asynchronous exec

	// OnOpen is called with the exec's id when its row is open, before it runs. May be nil.
	OnOpen func(execID string)

	// OnReplay is called with the id of the exec whose Idempotency-Key the request repeats, before
	// the wait for its end. May be nil.
	OnReplay func(execID string)

	ImageID  string // sha256:…, to run another image than the policy's name refers to now; empty: that image
	ReplayOf string // the exec that this one runs again
	HMACSalt string // of the record's keyed digests; empty: a new one

	// Trace is the span that the exec's record and its job name. Run and Refuse set it, by their
	// context.
	Trace traces.ID

	// SessionID is the session in whose container the exec runs; empty: it gets a fresh one. Its
	// project and image are the session's.
	SessionID string
	// Background lets an exec in a session run as long as the session.
	Background bool

	CallbackURL string // told when the exec has ended; empty: none. Config.Callbacks has accepted it.

	RequestedBy    string // the token's id, or "loopback"
	IdempotencyKey string
	Digest         string // sha256 of the request as it was sent: requests under one IdempotencyKey must have the same

	session *holding // not nil for the exec that is a session; StartSession sets it
}

// fresh reports whether the exec needs a fresh container for a job.
func (r Request) fresh() bool { return r.SessionID == "" && r.session == nil }

// CodeFile is the first argument of a KindPython command whose code, the second one, runs as a file
// of that name: multiprocessing, inspect and tracebacks need one. No module can be imported by its
// name, which would hide one of the project.
const CodeFile = "/tmp/exec-code.py"

// Command is the command that the container runs.
type Command struct {
	Kind  string
	Name  string // "bash" or "python", by Kind
	Args  []string
	Cwd   string // empty: /workspace/work
	Env   map[string]string
	Stdin []byte

	// StdinStream lets a client send the standard input while the command runs; see Runner.Stdin.
	StdinStream bool

	// Context is the name of the interpreter of the session in which the code of a KindPython or
	// KindShell command runs, with the state that earlier execs have left; empty: none.
	Context string

	// Terminal is the terminal that the command runs in; nil: none.
	Terminal *Terminal

	// CodeInFile makes a KindArgv command with CodeFile and code as Args run as the KindPython
	// command that it repeats.
	CodeInFile bool
}

// Terminal is a terminal that a request asks for.
type Terminal struct {
	terminal.Size
	Record string // audit.RecordAll or audit.RecordOutput; empty: RecordAll
}

// interpreter is the interpreter that the command names.
func (c Command) interpreter() session.Context {
	if c.Context == "" {
		return session.Context{}
	}
	return session.Context{Kind: c.Kind, Name: c.Context}
}

// Tokenless is the RequestedBy of a request that needed no token, as in package sandbox.
const Tokenless = "loopback"

// MaxInputs is how many inputs a request may have.
const MaxInputs = workspace.MaxInputs

// Input is one file for inputs/, decoded.
type Input = workspace.Input

// Result is the answer to a Request: the closed record and the beginning of the output; of an
// asynchronous one only the record, as it waits.
type Result struct {
	Record    audit.Record
	Spooled   bool   // the database did not take the end; the record waits in the spool
	Replayed  bool   // the result of an earlier exec with the same Idempotency-Key
	Stdout    []byte // the first InlineBytes, valid UTF-8
	Stderr    []byte
	StdoutCut bool // Stdout is not all that was kept
	StderrCut bool
	Artifacts []Artifact
	LeftOut          // what is not among Artifacts
	Output    []byte // of a skill: as its Accept returned it; nil when there is none or it is invalid
	Results   []byte // of a command with a Context: the list in session.ResultsFile as JSON; nil when there is none
}

// InlineBytes is how much of each stream an answer carries.
const InlineBytes = output.InlineBytes

// Artifact is one regular file among the artifacts of an exec.
type Artifact struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// ArtifactList is the artifacts of an exec, by its manifest.
type ArtifactList struct {
	Items      []Artifact
	TotalBytes int64
	Truncated  bool

	LeftOut
}
