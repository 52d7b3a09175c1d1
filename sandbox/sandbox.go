package sandbox

import (
	"context"
	"io"
	"io/fs"
	"time"

	"secbox/policy"
)

const (
	// Root is the user's workspace as every sandbox shows it.
	Root = "/workspace"

	// MaxFileBytes is the largest file that can be read or written, in one piece or as a stream
	// (design 5).
	MaxFileBytes = 500 << 20

	// MaxOutputBytes is how much of each of its streams a command gives back; the rest is counted
	// and dropped. It is the policy's highest ceiling for output (design 3.2).
	MaxOutputBytes = 16 << 20

	// MaxDirEntries is how many names a directory may have to be listed.
	MaxDirEntries = 100_000

	// WorkspaceVariable is the environment variable that tells a command the path of Root as the
	// command sees it.
	WorkspaceVariable = "SECBOX_WORKSPACE"
)

// User names the sandbox of one user of one agent. The agent selects the workspace on this side; a
// user's own machine has one workspace for all agents.
type User struct {
	AgentID string // may be empty in CloseForUser only: all agents
	ID      string
	Runner  string // which of the user's machines; the router fills it in, and only remote reads it

	located string // the backend that a router's Locate has found; for that router alone
}

// ProjectID returns the id of the user's workspace.
func (u User) ProjectID() string { return u.AgentID + "~" + u.ID }

// Holds reports whether u, as CloseForUser takes it, includes one user's sandbox.
func (u User) Holds(one User) bool {
	return u.ID == one.ID && (u.AgentID == "" || u.AgentID == one.AgentID)
}

// FileInfo describes a file as fs.FileInfo does, without Sys, which means nothing on another
// machine.
type FileInfo struct {
	Name    string      // base name; of Root "workspace"
	Size    int64       // bytes
	Mode    fs.FileMode // with type bits; without permissions on Windows
	ModTime time.Time
	IsDir   bool
}

// DirEntry is one name in a directory. Links are not followed.
type DirEntry struct {
	Name  string
	IsDir bool
	Size  int64 // bytes, of a regular file; else 0
	Mode  fs.FileMode

	ModTime time.Time // zero: not known
}

// Sandbox is a place where users' files are and commands run. Implementations are safe for
// concurrent use, and pass the suite in sandbox/sandboxtest. After Close every method but Name and
// Close returns an error with fault.ShuttingDown.
type Sandbox interface {
	// Exec runs a command to its end. A nonzero exit code is a result, and so is a timeout. When
	// Exec returns, no process of the command is alive, including sessions and daemons. When ctx
	// ends first, the command is killed and the error wraps ctx's. A missing Dir is fs.ErrNotExist.
	// After an error, the command was never started, or was killed, or the error is
	// fault.OutcomeUnknown.
	Exec(ctx context.Context, spec ExecSpec) (*ExecResult, error)

	// ReadFile reads a regular file. Anything else is fs.ErrInvalid, without waiting. More than
	// MaxFileBytes: fault.FileTooLarge.
	ReadFile(ctx context.Context, path string, user User) ([]byte, error)

	// WriteFile replaces a file's content with data atomically: readers see the old content or the
	// new one, and after an error the old one stays. A new file has the permission bits of perm; an
	// existing one keeps its own. The directory must exist: fs.ErrNotExist.
	WriteFile(ctx context.Context, path string, data []byte, perm fs.FileMode, user User) error

	// Stat follows links, as all methods but ReadDir, Remove and RemoveAll do.
	Stat(ctx context.Context, path string, user User) (*FileInfo, error)

	// ReadDir lists a directory, sorted by the bytes of the names; more than MaxDirEntries is
	// fault.TreeTooLarge.
	ReadDir(ctx context.Context, path string, user User) ([]DirEntry, error)

	// MkdirAll makes a directory and its missing parents. An existing directory is not an error;
	// anything else there is fs.ErrExist.
	MkdirAll(ctx context.Context, path string, perm fs.FileMode, user User) error

	// Remove removes a file, a link or an empty directory. A directory that is not empty is
	// fs.ErrExist, Root fs.ErrPermission.
	Remove(ctx context.Context, path string, user User) error

	// RemoveAll removes a tree, however deep. A missing path is not an error. Root is
	// fs.ErrPermission: remove its entries.
	RemoveAll(ctx context.Context, path string, user User) error

	// GetShell returns the program that runs the line of a spec with Shell, as it is called where
	// the command runs: /bin/bash.
	GetShell(ctx context.Context, user User) (string, error)

	// Name returns the backend's name: None, Docker, Remote, or RouterName.
	Name() string

	// Close ends all commands and waits for them. Safe to call twice.
	Close() error

	// CloseForUser ends the user's commands and frees the user's resources; the next call starts
	// new ones. Files stay.
	CloseForUser(user User) error
}

// Streamer is implemented by a Sandbox that takes large content, and output of a long command,
// piece by piece.
type Streamer interface {
	// ExecTo is Exec whose output goes to the writers while the command runs, each called by one
	// goroutine at a time and never after the return; Stdout and Stderr of the result are empty. A
	// nil writer drops its stream. A slow writer slows the command's output, not its death, and
	// gets what the command wrote before it was killed. A writer that fails is not called again.
	ExecTo(ctx context.Context, spec ExecSpec, stdout, stderr io.Writer) (*ExecResult, error)

	// ReadFileTo writes a file's content to w and returns its length. A nil error means that w has
	// the whole content, checked by its hash. After an error w may have got a part of it.
	ReadFileTo(ctx context.Context, path string, w io.Writer, user User) (int64, error)

	// WriteFileFrom is WriteFile with the content of r; more than MaxFileBytes is
	// fault.FileTooLarge. An error of r leaves the file as it was.
	WriteFileFrom(ctx context.Context, path string, r io.Reader, perm fs.FileMode, user User) (int64, error)
}

// Replacer is implemented by a Sandbox that can write a file on the condition that it is unchanged.
type Replacer interface {
	// ReplaceFile replaces a file's content with r's, as WriteFileFrom does, if the SHA-256 of the
	// present content is was, in hexadecimal. If was is Absent, it makes the file, with the
	// permissions 0644. A file with other content, or that is missing, or that should be absent,
	// stays as it is: fault.FileChanged. Calls of WriteFile and ReplaceFile for one file are
	// serialized. fault.Unsupported, with nothing done, when the runner on the user's machine
	// cannot compare.
	ReplaceFile(ctx context.Context, path string, r io.Reader, was string, user User) (int64, error)
}

// Absent stands for the content of a file that does not exist.
const Absent = "absent"

// Changer is implemented by a Sandbox that puts changes of files on record.
type Changer interface {
	// Change calls do once if the record of the change is open, with where the user's files are. do
	// must name the Location's User to the sandbox. Digests that it returns replace c's, also with
	// an error. Change returns the id of the record and the error of do.
	Change(ctx context.Context, c Change, do func(context.Context, Location) (Digests, error)) (execID string, err error)
}

// Change is a change of one file, or a transfer to another service.
type Change struct {
	User User
	In   Place  // zero: the sandbox of User
	Tool string // the name of the tool or, over HTTP, of the operation
	Path string
	Args []string // of a transfer: where the content comes from, or goes to

	Digests // as far as they are known, or expected, before the change
}

// Place is a project or a session on this side, whose files are changed.
type Place struct{ ProjectID, SessionID, ConversationID, TaskID string }

// Digests are the SHA-256 of a file's content before and after a change, in hexadecimal. Empty: not
// known. Before may be Absent. Before of an upload is the digest of the Sent bytes. A failed upload
// may have sent fewer bytes than the file has.
type Digests struct {
	Before, After string
	Size          int64 // of the content with the digest After, in bytes; -1: not known
	Sent          int64 // bytes that left for another service
}

// Locator is implemented by a Sandbox that can tell where a user's command would run now, for the
// audit row that is opened before the command starts. The answer holds for the following call of
// Exec with Location.User, or that call fails.
type Locator interface {
	// Locate prepares for Exec without starting a command. fault.RunnerOffline,
	// fault.EngineUnavailable, fault.ImageMissing.
	Locate(ctx context.Context, user User) (Location, error)
}

// Location is where a user's commands run.
type Location struct {
	Backend string
	User    User                    // with the chosen Runner; to be used in the spec
	Image   string                  // docker only: as the policy names it
	ImageID string                  // docker only: sha256:…
	Limits  *policy.ContainerLimits // docker only: of all the user's commands together; nil: only the machine bounds them
	Runtime string                  // docker only: the OCI runtime by the engine's name for it; empty: the engine's default
}
