// Package registry publishes skills and agents of one user for all others, and installs them into
// the others' workspaces. Content is kept on this side, in versions named by their digest; users'
// files are reached through their sandbox. The package must not know HTTP or SQL.
package registry

import (
	"context"
	"time"

	"secbox/packages/catalog"
)

// Owner is a user of an agent: the author of an entry, or a user who installs one.
type Owner struct{ AgentID, UserID string }

// Entry is the current version of a published skill or agent.
type Entry struct {
	Kind        catalog.Kind
	Name        string // 1 to 200 bytes; see CheckName
	Version     int    // from 1, one more at each publication of other content
	Digest      string // of the content, as in package versions
	Description string // one line
	Files       int
	Bytes       int64
	Author      Owner
	RequestedBy string // the id of the token that published it

	FirstPublishedAt time.Time // microseconds, UTC
	PublishedAt      time.Time
}

// Query selects entries of one kind.
type Query struct {
	Kind  catalog.Kind
	Words []string // all must occur in the name or the description; case does not count.
	By    Owner    // of this author; the zero Owner: of all
}

// State is the state of an installation.
type State string

// The states of an installation.
const (
	Installing State = "installing" // files are being written; older than InstallTimeout: a process ended meanwhile
	Installed  State = "installed"
	Failed     State = "failed"   // nothing, or a part without SKILL.md, is in place
	Removing   State = "removing" // files are being removed, or a process ended meanwhile
	Removed    State = "removed"
)

// Install is the last installation of an entry by a user.
type Install struct {
	Owner     Owner
	Kind      catalog.Kind
	Name      string
	ID        string // of this installation or removal, a UUIDv7
	State     State
	Version   int
	Digest    string
	ChangedAt time.Time
}

// Action is the kind of an event.
type Action string

// The actions. An installation is recorded before its first file is written, and again at its end.
const (
	Published      Action = "published"
	Withdrawn      Action = "withdrawn"
	InstallBegun   Action = "install_begun"
	InstallDone    Action = "installed"
	InstallFailed  Action = "install_failed"
	UninstallBegun Action = "uninstall_begun"
	UninstallDone  Action = "uninstalled"
)

// Ends reports whether the action ends what another began, which must not be refused.
func (a Action) Ends() bool { return a == InstallDone || a == InstallFailed || a == UninstallDone }

// Event is a record of a change of the registry, or of a user's installation. Events never change.
type Event struct {
	ID          string // a UUIDv7
	Kind        catalog.Kind
	Name        string
	Version     int
	Digest      string
	Action      Action
	By          Owner
	RequestedBy string // the id of the token
	At          time.Time
}

// Cursor is the last event of a page.
type Cursor struct {
	At time.Time
	ID string
}

// Store is the database of a registry; store/sqlite and store/postgres implement it and pass
// store/storetest. All methods are safe for concurrent use, by any number of nodes. Each is one
// transaction, durable when it returns nil: a change is stored with its event or not at all. When
// the database does not answer, the error is fault.DatabaseUnavailable. A token that makes too many
// changes gets fault.TooManyChanges; see admin.Limits.
type Store interface {
	// Entry returns the entry of a name, or of one that some systems do not distinguish from it.
	Entry(ctx context.Context, kind catalog.Kind, name string) (Entry, bool, error)

	// Entries returns at most limit entries after a name (empty: from the first one), by the bytes
	// of their names; never nil.
	Entries(ctx context.Context, q Query, after string, limit int) ([]Entry, error)

	// Count returns the number of entries of an author.
	Count(ctx context.Context, author Owner) (int, error)

	// Publish stores an entry in place of version saw, or with 0 as the first version of a name.
	// False: the current version is another one, and nothing has changed.
	Publish(ctx context.Context, saw int, e Entry, record Event) (bool, error)

	// Withdraw removes an entry if saw is its version; false otherwise.
	Withdraw(ctx context.Context, kind catalog.Kind, name string, saw int, record Event) (bool, error)

	// Install returns the last installation of an entry by a user.
	Install(ctx context.Context, o Owner, kind catalog.Kind, name string) (Install, bool, error)

	// SetInstall stores want in place of saw, or of no installation if saw is nil. It compares the
	// ID and State of saw with the stored installation. If they differ, it returns false and
	// changes nothing.
	SetInstall(ctx context.Context, saw *Install, want Install, record Event) (bool, error)

	// Events returns at most limit events about a name, newest first, after the cursor (nil: from
	// the newest); never nil.
	Events(ctx context.Context, kind catalog.Kind, name string, after *Cursor, limit int) ([]Event, error)
}
