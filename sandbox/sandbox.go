package sandbox

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"time"
)

const (
	// Root is the user's workspace as every sandbox shows it.
	Root = "/workspace"

	// MaxFileBytes is the largest file that is read or written, in one piece or as a stream (design 5).
	MaxFileBytes = 500 << 20

	// MaxOutputBytes is how much of each of its streams a command gives back; it may write more, which is counted and dropped. It is the
	// policy's highest ceiling for output (design 3.2).
	MaxOutputBytes = 16 << 20

	// WorkspaceVariable is the environment variable that tells a command where Root lies as the command sees it.
	WorkspaceVariable = "SECBOX_WORKSPACE"
)

// The backends by name: what Sandbox.Name answers, what settings and choices say, what an audit row holds.
const (
	None   = "none"
	Docker = "docker"
	Remote = "remote"
)

// User is whose sandbox is meant: a user as one agent serves them. The agent decides which workspace it is on this side; a user's own
// machine has one for all agents.
type User struct {
	AgentID string // may be empty in CloseForUser only: all agents
	ID      string
	Runner  string // which of the user's machines; the router fills it in, and only remote reads it

	located string // the backend that a router's Locate has found them in; for that router alone
}

// ProjectID is the id of the user's workspace.
func (u User) ProjectID() string { return u.AgentID + "~" + u.ID }

// Holds reports whether one user's sandbox is among those that the user, as CloseForUser takes one, means.
func (u User) Holds(one User) bool {
	return u.ID == one.ID && (u.AgentID == "" || u.AgentID == one.AgentID)
}

// ExecSpec is one command.
type ExecSpec struct {
	Command string   // a program, which is looked up in PATH; with Shell, a line for the user's shell (GetShell)
	Args    []string // ignored with Shell
	Shell   bool
	Dir     string        // absolute, and must exist; empty: Root
	Env     []string      // NAME=value, over what the sandbox gives; a name that begins as HiddenPrefixes do is fault.InvalidRequest
	Stdin   string        // all that the command can read; may be binary
	Timeout time.Duration // from the command's start; 0 or less: DefaultTimeout. Recorded, bounded by the policy's ceiling
	User    User

	MaxStdout int64 // bytes to give back of each stream; 0 or more than MaxOutputBytes: MaxOutputBytes
	MaxStderr int64

	// ExecID is the id under which the command is on record; empty: it is on none, or not yet. Whoever records it fills it in, and remote
	// gives the command that id on the user's machine too.
	ExecID string

	// ImageID is the image that Locate has told, once that is on record. docker runs the command in a container of it, or not at all:
	// fault.SandboxBusy. Empty: in whichever there is.
	ImageID string
}

// DefaultTimeout is that of a command which names none: the policy's default (design 3.2).
const DefaultTimeout = time.Minute

// ExecResult is how a command ended. Whatever it left running is dead.
type ExecResult struct {
	Stdout, Stderr string // as written, may be binary; cut at the spec's bounds
	ExitCode       int    // 128+signal when a signal ended it, 127 or 126 when it could not be found or started, -1 on time-out
	TimedOut       bool
	StdoutBytes    int64 // all that was written, given back or not
	StderrBytes    int64
	Detail         string // a sentence on what ended the command, if that was not itself: out of memory, killed from outside
	OOMKilled      bool   // the command was killed for memory
	DiskLimit      bool   // it was killed for what it, or others, took of the disk; docker only
	Canceled       bool   // it was killed because nobody waited for it any more, and ExitCode is 137; remote only

	ExecID string // of the audit row; empty when the command is on no record
	Runner string // whose machine it ran on; remote only
}

// FileInfo describes a file as fs.FileInfo does. There is no Sys: what another machine's kernel says means nothing here.
type FileInfo struct {
	Name    string      // base name; of Root "workspace"
	Size    int64       // bytes
	Mode    fs.FileMode // with type bits
	ModTime time.Time
	IsDir   bool
}

// DirEntry is one name in a directory. It is described as itself, links are not followed.
type DirEntry struct {
	Name  string
	IsDir bool
	Size  int64 // bytes, of a regular file; 0 for what is none
	Mode  fs.FileMode
}

// Sandbox is one place where users' files are and commands run. Implementations are safe for concurrent use, and pass the suite in
// sandbox/sandboxtest. After Close every method returns an error with fault.ShuttingDown, but for Name, Close and IsExporting.
type Sandbox interface {
	// Exec runs a command to its end. An exit code that is not 0 is no error, nor is a time-out: both are results. When it returns, no
	// process of the command is alive, those that made themselves sessions or daemons included. When ctx ends first, the command is killed
	// and the error wraps ctx's. A Dir that is not there is fs.ErrNotExist. A command that an error came for was never started, or is
	// fault.OutcomeUnknown, or was killed.
	Exec(ctx context.Context, spec ExecSpec) (*ExecResult, error)

	// ReadFile reads a regular file; a directory or something special is fs.ErrInvalid, and is not waited for. More than MaxFileBytes:
	// fault.FileTooLarge.
	ReadFile(ctx context.Context, path string, user User) ([]byte, error)

	// WriteFile makes a file's content data, wholly or, on an error, not at all: whoever reads it meanwhile sees the one or the other. A new
	// file has the permission bits of perm; one that is there keeps its own. The directory must be there: fs.ErrNotExist.
	WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user User) error

	// Stat follows links, as all but ReadDir, Remove and RemoveAll do.
	Stat(ctx context.Context, path string, user User) (*FileInfo, error)

	// ReadDir lists a directory in the order of the bytes of the names; at most MaxDirEntries, beyond that fault.TreeTooLarge.
	ReadDir(ctx context.Context, path string, user User) ([]DirEntry, error)

	// MkdirAll makes a directory and what is missing above it. One that is there is no error; something else there is fs.ErrExist.
	MkdirAll(ctx context.Context, path string, perm fs.FileMode, user User) error

	// Remove removes a file, a link or an empty directory. One that is not empty is fs.ErrExist, Root fs.ErrPermission.
	Remove(ctx context.Context, path string, user User) error

	// RemoveAll removes a tree, however deep. What is not there is no error. Root is fs.ErrPermission: remove what is in it.
	RemoveAll(ctx context.Context, path string, user User) error

	// GetShell is the program that runs the line of a spec with Shell, as it is called where the command runs: /bin/bash.
	GetShell(ctx context.Context, user User) (string, error)

	// Name is the backend's: None, Docker, Remote; the router's own name is "router".
	Name() string

	// Close ends what the sandbox started for all users and waits for it. Safe to call twice.
	Close() error

	// CloseForUser ends what runs for one user and gives back what was held for them; the next call begins anew. Files stay.
	CloseForUser(user User) error

	// IsExporting reports whether the user's sandbox is being moved to a new image: calls for them wait meanwhile.
	IsExporting(user User) bool

	// ExportAndImport moves the user's sandbox to the image that is now set, with what they installed in their home. Only docker can.
	// Others: fault.Unsupported.
	ExportAndImport(ctx context.Context, user User) error
}

// Streamer is what a Sandbox also does when it can take large content, or a long command, piece by piece. All of ours do.
type Streamer interface {
	// ExecTo is Exec whose output goes to the writers while the command runs, each called by one goroutine at a time and never after the
	// return; Stdout and Stderr of the result are empty. A nil writer drops its stream. A slow writer slows the command's output, not its
	// death; one that fails gets nothing more.
	ExecTo(ctx context.Context, spec ExecSpec, stdout, stderr io.Writer) (*ExecResult, error)

	// ReadFileTo writes a file's content to w and returns its length. When it returns nil, that is the whole content, as it was hashed
	// where the file is. On an error w may have got a part of it.
	ReadFileTo(ctx context.Context, path string, w io.Writer, user User) (int64, error)

	// WriteFileFrom is WriteFile of all that r gives; more than MaxFileBytes is fault.FileTooLarge. The error of r ends it, with the file as
	// it was.
	WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user User) (int64, error)
}

// Replacer is implemented by a Sandbox that can write a file on the condition that it is unchanged. All of ours do.
type Replacer interface {
	// ReplaceFile makes a file's content data, as WriteFile does, if its SHA-256 is was, in hexadecimal. A file that has another content,
	// or is gone, stays as it is: fault.FileChanged. Calls of WriteFile and ReplaceFile for one file follow each other. fault.Unsupported,
	// with nothing done, when the user's machine has a runner that cannot compare.
	ReplaceFile(ctx context.Context, path string, data []byte, was string, user User) error
}

// Collect is Exec by way of ExecTo: it keeps what goes to the writers.
func Collect(ctx context.Context, s Streamer, spec ExecSpec) (*ExecResult, error) {
	var stdout, stderr bytes.Buffer
	r, err := s.ExecTo(ctx, spec, &stdout, &stderr)
	if err != nil {
		return nil, err
	}
	r.Stdout, r.Stderr = stdout.String(), stderr.String()
	return r, nil
}

// Locator is what a Sandbox also does when it can say where a command of a user would run now, for the audit row that is opened before it
// does. All of ours do. What it answers holds for the call of Exec that follows with Location.User, or that fails.
type Locator interface {
	// Locate makes ready what Exec needs, and starts no command. fault.RunnerOffline, fault.EngineUnavailable, fault.ImageMissing.
	Locate(ctx context.Context, user User) (Location, error)
}

// Location is where a user's commands run.
type Location struct {
	Backend string
	User    User    // with the Runner that was chosen; to be put into the spec
	Image   string  // docker only: as the policy names it
	ImageID string  // docker only: sha256:…
	Limits  *Limits // docker only; nil: nothing but the machine bounds the commands
}

// Limits are those of the container in which a user's commands run, all of them together.
type Limits struct {
	MemoryMB int64
	CPUCores float64
	PIDs     int64 // of threads, those of the processes that run the commands among them
	TmpMB    int64
	Runtime  string // the OCI runtime by the engine's name for it; empty: the engine's default
}

// MaxDirEntries is how many names a directory may hold to be listed.
const MaxDirEntries = 100_000
