package library

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"secbox/admission"
	"secbox/diskspace"
	"secbox/fault"
	"secbox/skills"
	"secbox/skills/archive"
	"secbox/skills/content"
	"secbox/skills/versions"
	"secbox/tree"
	"secbox/workspace"
)

// Owner is a user of an agent: whose workspace it is.
type Owner struct{ AgentID, UserID string }

// ProjectID is the id of the owner's workspace.
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

// Scope says whose version of a skill is meant.
type Scope string

// The scopes.
const (
	Baseline Scope = "baseline" // the agent's
	Overlay  Scope = "overlay"  // the user's own
)

// Config is what a Library works with.
type Config struct {
	Workspace *workspace.Workspace
	Versions  *versions.Store // of the same workspace
	Registry  skills.Registry
	Log       *slog.Logger     // nil: nobody reads it
	Now       func() time.Time // nil: time.Now
	Limits    archive.Limits   // of uploads and of what is promoted; the zero value: archive.DefaultLimits

	// What an upload must leave free on the workspace's disk.
	FreeMinBytes, FreeMinInodes uint64
}

// Library is safe for concurrent use. It holds nothing that must be closed.
type Library struct {
	Config
	locks admission.Locks
	files *content.Cache
	about aboutCache
	tools toolCache
}

// New makes a Library.
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
	if cfg.Limits == (archive.Limits{}) {
		cfg.Limits = archive.DefaultLimits()
	}
	return &Library{Config: cfg, files: content.NewCache(cfg.Now)}, nil
}

// checkIDs refuses ids that no owner and no skill can have, and the skill that is nobody's to change.
func checkIDs(o Owner, skillID string) error {
	if err := o.check(); err != nil {
		return err
	}
	return archive.CheckID(skillID)
}

// forReading is checkIDs where a skill that cannot be is one that is not there, and where the installation's own is.
func forReading(o Owner, skillID string) error {
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
	return fault.New(fault.UnknownSkill, "there is no skill %q: the list of skills has those that there are", skillID)
}

// failed gives an error of the file system its code. what is a noun: "the skill's copy".
func failed(err error, what string) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case tree.IsRefused(err):
		return fault.Wrap(fault.PathRefused, err,
			"%s is, or leads through, a link or something else that is no plain file or directory; it was not followed: remove it, or put a plain file there", what)
	case errors.Is(err, tree.ErrTooLarge):
		return fault.Wrap(fault.TreeTooLarge, err, "%s holds more files or bytes, or deeper directories, than are looked at: remove what is not needed", what)
	case errors.Is(err, tree.ErrChanged):
		return fault.Wrap(fault.SkillChanged, err, "%s was changed by somebody else meanwhile, and nothing was done: look at it and try again", what)
	case diskspace.IsFull(err):
		return fault.Wrap(fault.DiskFull, err, "the workspace's disk has no room: free some space or inodes")
	}
	return fault.Wrap(fault.Internal, err, "%s cannot be used; the server's log has the reason", what)
}

// mine opens the user's copy of a skill; nil when there is none, also when the workspace was never used.
func (l *Library) mine(o Owner, skillID string) (*tree.Tree, error) {
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

// skillPath is where a user's copy of a skill lies below work/.
func skillPath(skillID string) string { return skillsDir + "/" + skillID }

const skillsDir = "skills"

// work opens the user's work/; nil when there is none yet.
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
		return nil, fault.Wrap(fault.Internal, err, "the files of skill %q, version %.12s, are gone from the server: upload the skill again", skillID, digest)
	}
	return t, nil
}

// pointer gives the user's row of a skill, and pins the user to all baselines of the agent when there is none yet.
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

// open opens what the user has of a skill: the copy, else the version that the user is pinned to.
func (l *Library) open(ctx context.Context, o Owner, skillID string) (t *tree.Tree, isCopy bool, err error) {
	if t, err = l.mine(o, skillID); t != nil || err != nil {
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

// reading calls f with what the user has of a skill. Who reads holds no lock, and a copy that was replaced is removed bit by bit: when it
// is not the copy any more afterwards, f is called again.
func (l *Library) reading(ctx context.Context, o Owner, skillID string, f func(*tree.Tree) error) error {
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
	now, err := l.mine(o, skillID)
	if now == nil || err != nil {
		return false
	}
	defer now.Close()
	return now.Same(t)
}

// read reads and hashes a tree of at most as many bytes as an upload may have.
func (l *Library) read(ctx context.Context, t *tree.Tree) (content.Content, error) {
	return content.Read(ctx, t, l.Limits.Bytes)
}
