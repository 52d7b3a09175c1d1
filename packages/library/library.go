package library

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/packages/archive"
	"secbox/packages/content"
	"secbox/packages/metadata"
	"secbox/packages/versions"
	"secbox/skills"
	"secbox/workspace"
	"secbox/workspace/diskspace"
	"secbox/workspace/tree"
)

// Owner is the owner of a workspace: a user of an agent.
type Owner struct{ AgentID, UserID string }

// ProjectID returns the id of the owner's workspace.
func (o Owner) ProjectID() string { return o.AgentID + "~" + o.UserID }

func (o Owner) check() error {
	if err := workspace.CheckPart("agent_id", o.AgentID); err != nil {
		return err
	}
	return workspace.CheckPart("user_id", o.UserID)
}

func (o Owner) key(skillID string) skills.PointerKey {
	return skills.PointerKey{AgentID: o.AgentID, UserID: o.UserID, SkillID: skillID}
}

func (o Owner) baseline(skillID string) skills.PointerKey {
	return skills.PointerKey{AgentID: o.AgentID, SkillID: skillID}
}

// Scope selects the agent's or the user's version of a skill.
type Scope string

// The scopes.
const (
	Baseline Scope = "baseline" // the agent's
	Overlay  Scope = "overlay"  // the user's own
)

// Config configures a Library.
type Config struct {
	Workspace *workspace.Workspace
	Versions  *versions.Store // of the same workspace
	Registry  skills.Registry
	Log       *slog.Logger     // nil: none
	Now       func() time.Time // nil: time.Now
	Limits    archive.Limits   // of uploads and promotions; the zero value: archive.DefaultLimits

	// Changed is called after each upload, edit, deletion, promotion and sync, whether or not it
	// succeeded; may be nil. Commands change skills without it.
	Changed func(Owner, Scope)

	// The space that an upload must leave free on the workspace's disk.
	FreeMinBytes, FreeMinInodes uint64
}

// Library is safe for concurrent use. It needs no Close.
type Library struct {
	Config
	locks admission.Locks
	files *content.Cache
	about *digestCache[metadata.About]
	tools *digestCache[toolState]
	names *digestCache[name] // see named

	moves  atomic.Uint64        // of pointers, by this Library
	placed *digestCache[placed] // by project and MaterialiseAll's toolDir

	viewing bool // this Library belongs to a View
}

// New returns a Library.
func New(cfg Config) (*Library, error) {
	if cfg.Workspace == nil || cfg.Registry == nil {
		return nil, fault.New(fault.Internal, "a library needs a workspace and a registry")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Changed == nil {
		cfg.Changed = func(Owner, Scope) {}
	}
	if cfg.Limits == (archive.Limits{}) {
		cfg.Limits = archive.DefaultLimits()
	}
	l := &Library{
		Config: cfg, files: content.NewCache(cfg.Now),
		about: newDigestCache(maxAbout, func(metadata.About) int { return 1 }), tools: newDigestCache(maxCached, toolState.weight),
		names:  newDigestCache(maxAbout, func(name) int { return 1 }),
		placed: newDigestCache(maxComplete, func(placed) int { return 1 }),
	}
	l.Registry = countedRegistry{cfg.Registry, &l.moves}
	return l, nil
}

// checkIDs refuses invalid ids, and the installation's own skill, which cannot be changed.
func checkIDs(o Owner, skillID string) error {
	if err := o.check(); err != nil {
		return err
	}
	return archive.CheckID(skillID)
}

// checkIDsForReading is checkIDs for reads: the installation's own skill is allowed, and other
// spellings of its name are unknown.
func checkIDsForReading(o Owner, skillID string) error {
	err := checkIDs(o, skillID)
	switch {
	case !fault.Is(err, fault.ReservedSkill):
		return err
	case isGlobal(skillID):
		return nil
	}
	return unknownSkill(skillID)
}

func unknownSkill(skillID string) error {
	return fault.New(fault.UnknownSkill, "there is no skill %q; list the skills to see which exist", skillID)
}

// failed gives file system errors a code. The argument what names the object, as in "the skill's
// copy".
func failed(err error, what string) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, tree.ErrNotDir):
		return fault.Wrap(fault.PathRefused, err, "%s: a link, a file or something special is in the place of a directory; links are "+
			"never followed: remove it, or use another path", what)
	case tree.IsRefused(err):
		return fault.Wrap(fault.PathRefused, err, "%s is a directory, a link or something special, and no plain file; links are never "+
			"followed: use another path, or remove it", what)
	case errors.Is(err, tree.ErrTooLarge):
		return fault.Wrap(fault.TreeTooLarge, err, "%s holds too many files or bytes, or too deep directories: remove unneeded ones", what)
	case errors.Is(err, tree.ErrChanged):
		return fault.Wrap(fault.SkillChanged, err,
			"%s was changed meanwhile by another request or a command, and nothing was done: check it and try again", what)
	case diskspace.IsFull(err):
		return fault.Wrap(fault.DiskFull, err, "the workspace's disk has no room: free some space or inodes")
	}
	return fault.Wrap(fault.Internal, err, "%s cannot be used; the server's log has the reason", what)
}

// openCopy opens the user's copy of a skill; nil when there is none.
func (l *Library) openCopy(o Owner, skillID string) (*tree.Tree, error) {
	if isGlobal(skillID) {
		return nil, nil
	}
	work, err := l.work(o)
	if work == nil || err != nil {
		return nil, err
	}
	defer work.Close()
	copied, err := work.Dir(skillPath(skillID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed(err, "skills/"+skillID+" in the workspace")
	}
	return copied, nil
}

// skillPath returns the path of a user's copy of a skill below work/.
func skillPath(skillID string) string { return skillsDir + "/" + skillID }

const skillsDir = "skills"

// work opens the user's work/; nil when it does not exist yet.
func (l *Library) work(o Owner) (*tree.Tree, error) {
	p, err := l.Workspace.Existing(o.ProjectID())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	work, err := p.Work()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return work, err
}

// version opens a stored version.
func (l *Library) version(o Owner, skillID, digest string) (*tree.Tree, error) {
	agent, err := l.Versions.Agent(o.AgentID)
	if err != nil {
		return nil, err
	}
	var t *tree.Tree
	for range tries {
		if t, err = agent.Version(skillID, digest); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		there, e := agent.Restore(skillID, digest) // a collection may have retired it: see Collect
		if e != nil {
			err = e
		}
		if !there {
			break
		}
	}
	if err != nil {
		return nil,
			fault.Wrap(fault.Internal, err, "the files of skill %q, version %.12s, are gone from the server: upload the skill again",
				skillID, digest)
	}
	return t, nil
}

// lock locks one skill of one user within the process.
func (l *Library) lock(ctx context.Context, o Owner, skillID string) (release func(), err error) {
	return l.locks.Take(ctx, o.ProjectID()+"/"+skillID)
}

// pointer returns the user's pointer to a skill. If there is none, it first pins the user to all
// baselines of the agent.
func (l *Library) pointer(ctx context.Context, o Owner, skillID string) (skills.Pointer, bool, error) {
	row, ok, err := l.Registry.Get(ctx, o.key(skillID))
	if ok || err != nil {
		return row, ok, err
	}
	if _, err := l.Registry.Pin(ctx, o.AgentID, o.UserID); err != nil {
		return skills.Pointer{}, false, err
	}
	return l.Registry.Get(ctx, o.key(skillID))
}

// open opens the user's skill: the copy, else the version that the user is pinned to.
func (l *Library) open(ctx context.Context, o Owner, skillID string) (t *tree.Tree, isCopy bool, err error) {
	if t, err = l.openCopy(o, skillID); t != nil || err != nil {
		return t, true, err
	}
	if isGlobal(skillID) {
		t, err = l.openGlobal()
		return t, false, err
	}
	row, ok, err := l.pointer(ctx, o, skillID)
	if err != nil {
		return nil, false, err
	}
	if !ok || row.Digest == "" {
		return nil, false, unknownSkill(skillID)
	}
	t, err = l.version(o, skillID, row.Digest)
	return t, false, err
}

// withSkill calls f with the user's skill. Readers hold no lock, and a replaced copy is removed
// file by file: if the tree is not the current copy any more afterwards, f is called again.
func (l *Library) withSkill(ctx context.Context, o Owner, skillID string, f func(*tree.Tree) error) error {
	for range tries {
		t, isCopy, err := l.open(ctx, o, skillID)
		if err != nil {
			return err
		}
		err = f(t)
		done := !isCopy || l.current(o, skillID, t)
		t.Close()
		if done || ctx.Err() != nil {
			return err
		}
	}
	return failed(tree.ErrChanged, "the skill "+skillID)
}

// current reports whether a tree is the user's copy of the skill now.
func (l *Library) current(o Owner, skillID string, t *tree.Tree) bool {
	now, err := l.openCopy(o, skillID)
	if now == nil || err != nil {
		return false
	}
	defer now.Close()
	return now.Same(t)
}

// read reads and hashes a tree, of at most as many bytes as an upload may have.
func (l *Library) read(ctx context.Context, t *tree.Tree) (content.Content, error) {
	return content.Read(ctx, t, l.Limits.Bytes)
}
