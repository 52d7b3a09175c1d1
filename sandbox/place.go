package sandbox

import (
	"context"
	"os"
)

// Places finds what none and docker work on: a user's workspace on this machine. Safe for concurrent use.
type Places interface {
	// Open makes the user's workspace where there is none yet, and keeps it in its place until the Place is closed: what is packed when
	// idle is brought back first. Errors carry a fault code.
	Open(ctx context.Context, user User) (*Place, error)
}

// Place is a user's workspace, held open.
type Place struct {
	Dir   *os.Root // what Root is; whoever changes something goes through it
	Path  string   // the same directory, for a command that starts in it
	Mount string   // the same directory as docker is told
	// UID and GID are whom new files are given to, so that commands may change them; -1: they stay with us.
	UID, GID int
	// Intact reports whether Dir is still what lies there: a workspace that was removed and made again has the same path.
	Intact func() bool
	// Close gives all of it up. Called once.
	Close func()
}

// ReadOnlyRoot is a directory beside Root that everybody may read and nobody may change.
type ReadOnlyRoot struct {
	Path  string // as sandboxes show it: /opt/skill-creator
	Dir   string // the directory on this machine
	Mount string // the same as docker is told
}
