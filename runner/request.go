package runner

import (
	"secbox/audit"
	"secbox/policy"
	"secbox/workspace"
)

// Kinds of commands, and the one command that each allows.
const (
	KindShell  = "shell"  // command "bash"
	KindPython = "python" // command "python"
	// KindArgv is for callers within this process that have checked the command by rules of their own. No request may say it.
	KindArgv = "argv"
)

// Request is one exec as its caller asked for it: decoded, its caller known and allowed to use the project, and nothing else checked.
type Request struct {
	ProjectID      string // empty: ConversationID serves
	ConversationID string
	AgentID        string
	UserID         string
	SkillID        string
	SkillDigest    string // for the record: the files of SkillID, if nothing can change them while the command runs; Skill brings its own
	TaskID         string
	Command        Command
	Image          string // empty: the policy's
	Inputs         []Input
	Overrides      policy.Layer
	Skill          *Skill // not nil for the invoke of a skill; SkillID names it

	// OnOpen is told the exec's id once its row is open, before it runs. Nil: not called.
	OnOpen func(execID string)

	RequestedBy    string // the token's id, or "loopback"
	IdempotencyKey string
	Digest         string // sha256 of the request as it was sent: what "the same request" means to IdempotencyKey
}

// Command is what the container is to run.
type Command struct {
	Kind  string
	Name  string // "bash" or "python", by Kind
	Args  []string
	Cwd   string // empty: /workspace/work
	Env   map[string]string
	Stdin []byte
}

// Tokenless is the RequestedBy of a request that needed no token; package sandbox has it, too.
const Tokenless = "loopback"

// MaxInputs is how many inputs a request may bring.
const MaxInputs = workspace.MaxInputs

// Input is one file for inputs/, decoded.
type Input struct {
	Path    string
	Content []byte
}

// Result is the answer to a Request: the closed record and what a caller wants to see at once.
type Result struct {
	Record    audit.Record
	Spooled   bool   // the database refused the closing; the record waits in the state dir and is written as soon as it can be
	Replayed  bool   // an earlier exec with the same Idempotency-Key answered
	Stdout    []byte // the first InlineBytes, valid UTF-8
	Stderr    []byte
	StdoutCut bool // more was kept than Stdout holds
	StderrCut bool
	Artifacts []Artifact
	Output    []byte // of a skill: what its Accept made of the output file; nil when there is none that is valid
}

// InlineBytes is how much of each stream an answer carries.
const InlineBytes = 64 << 10

// Artifact is one regular file that an exec left.
type Artifact struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// ArtifactList is what an exec left, by its manifest.
type ArtifactList struct {
	Items      []Artifact
	TotalBytes int64
	Truncated  bool
}
