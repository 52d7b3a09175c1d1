package skills

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"secbox/fault"
	"secbox/policy"
)

// settingSkillsDir is the settings' key of the operator's folder.
const settingSkillsDir = "sandbox.skills_dir"

// Config says where skills are.
type Config struct {
	Dir    string       // the operator's folder; empty: only the skills that are built in
	Logger *slog.Logger // one line for each skill that comes, changes, goes or breaks; nil: none
}

// Catalog is the skills there are now. It is safe for concurrent use.
//
// What is in the binary is read once. The operator's folder is looked at by Reload, which whoever must not miss a change calls itself, and
// which Watch calls from time to time. A look costs some system calls for each skill; only folders that look different are read.
type Catalog struct {
	log *slog.Logger
	dir string
	now atomic.Pointer[Snapshot]

	mu      sync.Mutex // one look at a time
	builtIn *source
	disk    *source // nil: no operator's folder
	gone    bool    // the operator's folder could not be read the last time

	listening sync.Mutex
	listeners []func(*Snapshot)
	pending   []*Snapshot   // not yet told to the listeners, in order
	changed   chan struct{} // holds one word when pending holds something
}

// settleTime is longer than the tick of any file system's clock: FAT counts in two seconds.
const settleTime = 3 * time.Second

// maxPending is how many changes are kept for listeners while nobody watches. Each snapshot is the whole truth, so older ones can go.
const maxPending = 16

// Open loads the skills. What is broken hides itself only; the error is fault.InvalidSettings and means that the operator's folder cannot
// be read at all.
func Open(cfg Config) (*Catalog, error) {
	c := &Catalog{log: cfg.Logger, changed: make(chan struct{}, 1)}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.builtIn = &source{name: BuiltIn, open: func() (place, error) { return embeddedPlace{embedded{builtIn}}, nil }}
	if err := c.builtIn.look(); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the skills in the binary cannot be read")
	}
	if cfg.Dir != "" {
		dir, err := filepath.Abs(cfg.Dir)
		if err != nil {
			return nil, badDir(cfg.Dir, err)
		}
		c.dir = dir
		c.disk = &source{name: SkillsDir, open: func() (place, error) { return openPlace(dir) }, settle: settleTime}
		if err := c.disk.look(); err != nil {
			return nil, badDir(dir, err)
		}
	}
	first := merge(c.sources())
	c.now.Store(first)
	c.log.Info("skills loaded", "skills", len(first.skills), "broken", len(first.broken), "dir", c.dir)
	for _, b := range first.broken {
		c.logBroken(b)
	}
	return c, nil
}

func badDir(dir string, err error) error {
	reason := reasonOf(err)
	if fi := (*fs.PathError)(nil); errors.As(err, &fi) && errors.Is(err, fs.ErrNotExist) {
		reason = "does not exist; make it, or remove the setting"
	}
	e := fault.Wrap(fault.InvalidSettings, err, "%s: %s %s", settingSkillsDir, dir, reason)
	e.Fields = []fault.Field{{Field: settingSkillsDir, Reason: reason}}
	return e
}

func (c *Catalog) sources() []*source {
	if c.disk == nil {
		return []*source{c.builtIn}
	}
	return []*source{c.builtIn, c.disk}
}

// Now is the catalog as it is; never nil.
func (c *Catalog) Now() *Snapshot { return c.now.Load() }

// Reload looks at the operator's folder and reports whether the catalog is another one now. When the folder cannot be read, the skills
// that were there stay.
func (c *Catalog) Reload() (changed bool) {
	if c.disk == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.disk.look()
	if gone := err != nil; gone != c.gone {
		c.gone = gone
		if gone {
			c.log.Warn("the folder of skills cannot be read; the skills that were there stay", "setting", settingSkillsDir, "dir", c.dir, "error", err)
		} else {
			c.log.Info("the folder of skills can be read again", "setting", settingSkillsDir, "dir", c.dir)
		}
	}
	if err != nil {
		return false
	}
	next, before := merge(c.sources()), c.now.Load()
	if next.version == before.version {
		return false
	}
	c.logChanges(before, next)
	c.now.Store(next)
	c.announce(next)
	return true
}

func (c *Catalog) logChanges(before, now *Snapshot) {
	for _, s := range now.skills {
		switch old := before.byID[s.ID()]; {
		case old == nil:
			c.log.Info("skill loaded", "skill_id", s.ID(), "digest", s.Digest)
		case old.Digest != s.Digest:
			c.log.Info("skill replaced", "skill_id", s.ID(), "digest", s.Digest, "before", old.Digest)
		}
	}
	for _, s := range before.skills {
		if now.byID[s.ID()] == nil {
			c.log.Info("skill removed", "skill_id", s.ID(), "digest", s.Digest)
		}
	}
	for _, b := range now.broken {
		same := func(old Broken) bool {
			return old.Source == b.Source && old.Folder == b.Folder && slices.Equal(old.Problems, b.Problems)
		}
		if !slices.ContainsFunc(before.broken, same) {
			c.logBroken(b)
		}
	}
}

func (c *Catalog) logBroken(b Broken) {
	first := b.Problems[0]
	c.log.Warn("skill broken", "folder", b.Folder, "source", b.Source, "file", first.File, "pointer", first.Pointer,
		"reason", first.Reason, "problems", len(b.Problems))
}

// Watch looks at the operator's folder every so often and tells the listeners what has changed, whoever noticed it, until ctx ends. It
// is to be called once.
func (c *Catalog) Watch(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.Reload()
		case <-c.changed:
			c.tell()
		}
	}
}

// OnChange has f called with each new snapshot, in order, by the goroutine that is in Watch. It is to be called before Watch.
func (c *Catalog) OnChange(f func(*Snapshot)) {
	c.listening.Lock()
	defer c.listening.Unlock()
	c.listeners = append(c.listeners, f)
}

func (c *Catalog) announce(s *Snapshot) {
	c.listening.Lock()
	defer c.listening.Unlock()
	if len(c.listeners) == 0 {
		return
	}
	if c.pending = append(c.pending, s); len(c.pending) > maxPending {
		c.pending = slices.Delete(c.pending, 0, 1)
	}
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Catalog) tell() {
	c.listening.Lock()
	pending, listeners := c.pending, c.listeners
	c.pending = nil
	c.listening.Unlock()
	for _, s := range pending {
		for _, f := range listeners {
			f(s)
		}
	}
}

// Layer is what a skill says about the policy; fault.UnknownSkill.
func (c *Catalog) Layer(id string) (policy.Layer, error) {
	s, err := c.Now().Get(id)
	if err != nil {
		return policy.Layer{}, err
	}
	return s.Manifest.Layer(), nil
}
