package sandbox

import (
	"context"
	"os"
)

// Directories opens the directories that none and docker work on: the users' workspaces on this
// machine. Safe for concurrent use.
type Directories interface {
	// Open makes the user's workspace if there is none. Errors carry a fault code.
	Open(ctx context.Context, user User) (*Directory, error)
}

// Directory is a user's workspace, held open.
type Directory struct {
	Root  *os.Root // the directory that is Root in the sandbox; every change goes through it
	Path  string   // its path, for a command that starts in it
	Mount string   // its path as docker is told
	// UID and GID own new files, so that commands may change them; -1: files stay with this
	// process's user.
	UID, GID int
	// LockEdits makes the caller the only one, among all who change files here except commands,
	// until release is called.
	LockEdits func(ctx context.Context) (release func(), err error)
	// Intact reports whether Path still names the directory: a workspace that was removed and made
	// again has the same path.
	Intact func() bool
	// Close releases the directory. Called once.
	Close func()
}

// ReadOnlyRoot is a directory beside Root that all users may read and none may change.
type ReadOnlyRoot struct {
	Path  string // in sandboxes: /opt/skill-creator
	Link  string // another path of it, below Root: a link, which commands may have changed; empty: none
	Dir   string // on this machine
	Mount string // as docker is told
}
