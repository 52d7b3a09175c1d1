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

// settingSkillsDir is the key of the operator's folder in the settings.
const settingSkillsDir = "sandbox.skills_dir"

// Config configures a Catalog.
type Config struct {
	Dir    string       // the operator's folder; empty: only the built-in skills
	Logger *slog.Logger // gets one line for each skill that is added, replaced, removed or broken; nil: none
}

// Catalog holds the current skills. It is safe for concurrent use.
//
// The built-in skills are read once. Reload reads the operator's folder again; Watch calls it
// periodically, and callers that must see the latest change call it themselves. It takes a few
// system calls per skill: only folders that look different are read.
type Catalog struct {
	log *slog.Logger
	dir string
	now atomic.Pointer[Snapshot]

	mu      sync.Mutex // one reload at a time
	builtIn *source
	disk    *source // nil: no operator's folder
	gone    bool    // the operator's folder could not be read the last time

	listenerMu sync.Mutex
	listeners  []func(*Snapshot)
	pending    []*Snapshot   // for the listeners, in order
	changed    chan struct{} // holds an element when pending does
}

// settleTime is longer than the tick of any file system's clock: FAT has two seconds.
const settleTime = 3 * time.Second

// maxPending bounds the snapshots kept for listeners while Watch does not run. Each snapshot is
// complete, so the oldest is dropped.
const maxPending = 16

// Open loads the skills. A broken skill hides only itself; fault.InvalidSettings means that the
// operator's folder cannot be read at all.
func Open(cfg Config) (*Catalog, error) {
	c := &Catalog{log: cfg.Logger, changed: make(chan struct{}, 1)}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.builtIn = &source{name: BuiltIn, open: openBuiltIn}
	if err := c.builtIn.refresh(); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the skills in the binary cannot be read")
	}
	sources := []*source{c.builtIn}
	if cfg.Dir != "" {
		dir, err := filepath.Abs(cfg.Dir)
		if err != nil {
			return nil, badDir(cfg.Dir, err)
		}
		c.dir = dir
		c.disk = &source{name: SkillsDir, open: func() (sourceDir, error) { return openDisk(dir) }, settle: settleTime}
		if err := c.disk.refresh(); err != nil {
			return nil, badDir(dir, err)
		}
		sources = append(sources, c.disk)
	}
	first := merge(sources)
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

// Now returns the current snapshot; never nil.
func (c *Catalog) Now() *Snapshot { return c.now.Load() }

// Reload reads the operator's folder again and reports whether the catalog has changed. When the
// folder cannot be read, its skills stay.
func (c *Catalog) Reload() (changed bool) {
	if c.disk == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.disk.refresh()
	if gone := err != nil; gone != c.gone {
		c.gone = gone
		if gone {
			c.log.Warn("the folder of skills cannot be read; its skills stay as they were", "setting", settingSkillsDir, "dir", c.dir,
				"error", err)
		} else {
			c.log.Info("the folder of skills can be read again", "setting", settingSkillsDir, "dir", c.dir)
		}
	}
	if err != nil {
		return false
	}
	next, before := merge([]*source{c.builtIn, c.disk}), c.now.Load()
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

// Watch reloads the catalog at this interval, and calls the listeners after every change, including
// those that other calls of Reload found, until ctx ends. It must be called only once.
func (c *Catalog) Watch(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.Reload()
		case <-c.changed:
			c.callListeners()
		}
	}
}

// OnChange registers a function that Watch's goroutine calls with each new snapshot, in order. It
// must be called before Watch.
func (c *Catalog) OnChange(f func(*Snapshot)) {
	c.listenerMu.Lock()
	defer c.listenerMu.Unlock()
	c.listeners = append(c.listeners, f)
}

func (c *Catalog) announce(s *Snapshot) {
	c.listenerMu.Lock()
	defer c.listenerMu.Unlock()
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

func (c *Catalog) callListeners() {
	c.listenerMu.Lock()
	pending, listeners := c.pending, c.listeners
	c.pending = nil
	c.listenerMu.Unlock()
	for _, s := range pending {
		for _, f := range listeners {
			f(s)
		}
	}
}

// Layer returns a skill's layer of the policy; fault.UnknownSkill.
func (c *Catalog) Layer(id string) (policy.Layer, error) {
	s, err := c.Now().Get(id)
	if err != nil {
		return policy.Layer{}, err
	}
	return s.Manifest.Layer(), nil
}
