package registry

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/packages/archive"
	"secbox/packages/catalog"
	"secbox/packages/versions"
	"secbox/sandbox"
)

// Sandboxes are the users' sandboxes, as far as a Registry uses them.
type Sandboxes interface {
	sandbox.Source
	sandbox.Target
	Remove(ctx context.Context, path string, user sandbox.User) error
	RemoveAll(ctx context.Context, path string, user sandbox.User) error
}

// Config configures a Registry. Fields without a default are required.
type Config struct {
	Store     Store
	Versions  *versions.Store
	Sandboxes Sandboxes
	NewID     func() string // returns a new UUIDv7

	// Global returns the names of the service's own skills or agents; nil: it has none.
	Global func(kind catalog.Kind) []string
	// Changed is called when a user's skills or agents have changed; nil: nothing to do.
	Changed func(user sandbox.User)
	// Room returns fault.DiskFull when the disk with the versions has no room; nil: it always has.
	Room func() error

	Log *slog.Logger     // nil: none
	Now func() time.Time // nil: time.Now
}

// Limits.
const (
	MaxPerAuthor = 1000             // entries
	MaxFiles     = 10_000           // of a skill, with its links and directories
	MaxBytes     = 512 << 20        // of a skill
	MaxAgent     = 1 << 20          // bytes of an agent's file
	copyTime     = 10 * time.Minute // for copying a skill
	maxDepth     = 16

	// InstallTimeout is the age from which on an unfinished installation is one whose process has
	// ended.
	InstallTimeout = 15 * time.Minute
)

// Publications, installations and uninstallations at once. Further ones wait in order of arrival.
const (
	atOnce         = 4
	queued         = 64
	atOncePerToken = 2
	queuedPerToken = 16
)

// Registry is safe for concurrent use, by any number of nodes on one workspace root and one
// database. It needs no Close.
type Registry struct {
	Config
	gate *admission.Gate
}

// New returns a Registry.
func New(cfg Config) (*Registry, error) {
	if cfg.Store == nil || cfg.Versions == nil || cfg.Sandboxes == nil || cfg.NewID == nil {
		return nil, fault.New(fault.Internal, "a registry needs a store, versions, sandboxes and ids")
	}
	if cfg.Global == nil {
		cfg.Global = func(catalog.Kind) []string { return nil }
	}
	if cfg.Changed == nil {
		cfg.Changed = func(sandbox.User) {}
	}
	if cfg.Room == nil {
		cfg.Room = func() error { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	now := cfg.Now
	cfg.Now = func() time.Time { return now().UTC().Truncate(time.Microsecond) } // as both databases keep it
	return &Registry{Config: cfg, gate: admission.NewShared(atOnce, queued,
		admission.Share{AtOnce: atOncePerToken, Queue: queuedPerToken})}, nil
}

// Request is an action of a user on an entry.
type Request struct {
	Owner       Owner
	Kind        catalog.Kind
	Name        string
	RequestedBy string
}

func (r Request) user() sandbox.User {
	return sandbox.User{AgentID: r.Owner.AgentID, ID: r.Owner.UserID}
}

// path and file are catalog.Kind's.
func (r Request) path() string { return r.Kind.Path(r.Name) }
func (r Request) file() string { return r.Kind.File(r.Name) }

// event returns a record of an action.
func (r *Registry) event(req Request, version int, digest string, action Action) Event {
	return Event{
		ID: r.NewID(), Kind: req.Kind, Name: req.Name, Version: version, Digest: digest, Action: action, By: req.Owner,
		RequestedBy: req.RequestedBy,
		At:          r.Now(),
	}
}

// enter waits for a turn. The caller must call leave.
func (r *Registry) enter(ctx context.Context, token string) (leave func(), err error) {
	t, overShare := r.gate.EnterAs(token)
	if t == nil {
		e := fault.New(fault.SkillsBusy, "server limit reached: too many skills are being published or installed; try again later")
		if overShare {
			e = fault.New(fault.SkillsBusy,
				"token limit reached: too many skills are being published or installed with this token; try again later")
		}
		e.RetryAfter = 5 * time.Second
		return nil, e
	}
	if err := t.Wait(ctx); err != nil {
		t.Leave()
		return nil, err
	}
	return t.Leave, nil
}

// CheckName refuses names that a skill or an agent cannot have on all systems:
// fault.InvalidRequest, fault.ReservedSkill.
func CheckName(kind catalog.Kind, name string) error {
	if err := checkKind(kind); err != nil {
		return err
	}
	if why := catalog.NameFault(name); why != "" {
		return fault.BadField("name", "%s", why)
	}
	err := archive.CheckID(name)
	if e := fault.From(err); fault.Is(err, fault.InvalidRequest) && len(e.Fields) == 1 {
		return fault.BadField("name", "%s", e.Fields[0].Reason)
	}
	return err
}

func checkKind(kind catalog.Kind) error {
	if kind != catalog.Skill && kind != catalog.Agent {
		return fault.BadField("kind", "must be %ss or %ss", catalog.Skill, catalog.Agent)
	}
	return nil
}

// Installed returns the installation of an entry in a user's workspace; false if there is none, or
// the user has removed it. The user may have changed its files since.
func (r *Registry) Installed(ctx context.Context, o Owner, kind catalog.Kind, name string) (Install, bool, error) {
	if CheckName(kind, name) != nil {
		return Install{}, false, nil
	}
	i, ok, err := r.Store.Install(ctx, o, kind, name)
	return i, ok && i.State == Installed, err
}

// Partial reports whether a user's skill is being installed or removed, or such a change failed:
// its directory may have some of its files, and then no SKILL.md.
func (r *Registry) Partial(ctx context.Context, user sandbox.User, name string) (bool, error) {
	if CheckName(catalog.Skill, name) != nil {
		return false, nil
	}
	i, ok, err := r.Store.Install(ctx, Owner{AgentID: user.AgentID, UserID: user.ID}, catalog.Skill, name)
	return ok && i.State != Installed && i.State != Removed, err
}

// Entry returns an entry; fault.UnknownEntry.
func (r *Registry) Entry(ctx context.Context, kind catalog.Kind, name string) (Entry, error) {
	if err := CheckName(kind, name); err != nil {
		return Entry{}, err
	}
	e, ok, err := r.Store.Entry(ctx, kind, name)
	if err == nil && (!ok || e.Name != name) {
		err = fault.New(fault.UnknownEntry, "%s %q not found in the registry; search it to see which exist", kind, name)
	}
	return e, err
}

// MaxWords bounds the words of a search, each of at most maxWordBytes bytes.
const (
	MaxWords     = 8
	maxWordBytes = 100
)

// Search returns a page of entries by name whose names or descriptions hold all words of a text; an
// empty text: all entries. after is the last name of the page before, empty for the first page.
// Fewer than limit entries are the last page.
func (r *Registry) Search(ctx context.Context, kind catalog.Kind, text string, by Owner, after string, limit int) ([]Entry, error) {
	if err := checkKind(kind); err != nil {
		return nil, err
	}
	words := strings.Fields(norm.NFC.String(text))
	if len(words) > MaxWords {
		return nil, fault.BadField("query", "has more than %d words", MaxWords)
	}
	for _, word := range words {
		if len(word) > maxWordBytes {
			return nil, fault.BadField("query", "has a word of more than %d bytes", maxWordBytes)
		}
	}
	return r.Store.Entries(ctx, Query{Kind: kind, Words: words, By: by}, after, limit)
}

// Events returns a page of the record of a name, newest first.
func (r *Registry) Events(ctx context.Context, kind catalog.Kind, name string, after *Cursor, limit int) ([]Event, error) {
	if err := CheckName(kind, name); err != nil {
		return nil, err
	}
	return r.Store.Events(ctx, kind, name, after, limit)
}

// Withdraw removes an entry of the author. Installations stay. fault.UnknownEntry, and
// fault.NameTaken for the entry of another author.
func (r *Registry) Withdraw(ctx context.Context, req Request) error {
	for {
		e, err := r.Entry(ctx, req.Kind, req.Name)
		if err != nil {
			return err
		}
		if e.Author != req.Owner {
			return taken(e)
		}
		ok, err := r.Store.Withdraw(ctx, req.Kind, req.Name, e.Version, r.event(req, e.Version, e.Digest, Withdrawn))
		if ok || err != nil {
			return err
		}
	}
}

func taken(e Entry) error {
	return fault.New(fault.NameTaken,
		"%s %q belongs to the user %s of the agent %s, who published it first: use another name, or ask its author",
		e.Kind, e.Name, e.Author.UserID, e.Author.AgentID)
}
