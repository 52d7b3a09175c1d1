package skills

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// source is one folder of skills and what was last seen in it. Its user sees to it that one goroutine uses it at a time.
type source struct {
	name  string // BuiltIn or SkillsDir
	open  func() (place, error)
	known map[string]*known // by folder
	reads int               // folders that were read and not only looked at; for tests

	// settle is how old the newest change in a folder must be for its signature to be believed: a second change within the same tick
	// of the file system's clock leaves no trace.
	settle time.Duration
}

// known is what one folder was when it was read.
type known struct {
	signature [sha256.Size]byte
	settled   bool // the signature can be believed
	skill     *Skill
	problems  []Problem
}

// look brings known up to what the folder holds now. Folders that look as before are not read again. An error means that the folder as
// a whole could not be read; known is as before then.
func (s *source) look() error {
	p, err := s.open()
	if err != nil {
		return err
	}
	defer p.Close()
	names, err := p.names()
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
	})
	next := make([]*known, len(names))
	var wait sync.WaitGroup
	work := make(chan int)
	for range min(runtime.GOMAXPROCS(0), len(names)) {
		wait.Go(func() {
			for n := range work {
				next[n] = s.examine(p, names[n], s.known[names[n]])
			}
		})
	}
	for n := range names {
		work <- n
	}
	close(work)
	wait.Wait()
	before := s.known
	s.known = make(map[string]*known, len(names))
	for n, name := range names {
		if next[n] == nil {
			continue
		}
		s.known[name] = next[n]
		if next[n] != before[name] {
			s.reads++
		}
	}
	return nil
}

// examine returns what a folder is: before, when nothing has changed; nil when it is not meant to be a skill.
func (s *source) examine(p place, name string, before *known) *known {
	t, err := p.tree(name)
	switch {
	case errors.Is(err, errNotFolder), errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unread(before, err)
	}
	defer t.Close()
	started := time.Now()
	if before == nil && !meantToBeSkill(t) {
		return nil // before anything is walked: it may be large, and is nobody's skill
	}
	seen, err := walk(t)
	if err != nil {
		return unread(before, err)
	}
	if before != nil && before.settled && before.signature == seen.signature {
		return before
	}
	if before != nil && !meantToBeSkill(t) {
		return nil
	}
	// A time in the future is that of another clock, or was set by hand: waiting would not help.
	now := &known{signature: seen.signature, settled: started.Sub(seen.newest).Abs() > s.settle}
	now.skill, now.problems, err = load(t, name, seen)
	if err != nil {
		return unread(before, err)
	}
	// All files are of one moment only when nothing has changed from the first to the last of them.
	if again, err := walk(t); err != nil || again.signature != seen.signature {
		return unread(before, errChanged)
	}
	if now.skill != nil {
		now.skill.Source, now.skill.fsys = s.name, p.fsys(name)
		if before != nil && before.skill != nil && before.skill.Digest == now.skill.Digest {
			now.skill = before.skill
		}
	}
	return now
}

// unread is for a folder that could not be read this time: what it was before stays when it is only being changed.
func unread(before *known, err error) *known {
	if before != nil && (errors.Is(err, errChanged) || errors.Is(err, fs.ErrNotExist)) {
		stale := *before
		stale.settled = false
		return &stale
	}
	return &known{problems: []Problem{{Reason: reasonOf(err)}}}
}

// hold returns what the source holds.
func (s *source) hold() (skills []*Skill, broken []Broken) {
	for name, k := range s.known {
		if k.skill != nil {
			skills = append(skills, k.skill)
			continue
		}
		broken = append(broken, Broken{Folder: clipName(name), Source: s.name, Problems: k.problems})
	}
	return skills, broken
}

// clipName is a folder's name as JSON can hold it.
func clipName(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// merge puts the sources together, the earlier before the later: of two skills with one id the later is broken.
func merge(sources []*source) *Snapshot {
	var all []*Skill
	var broken []Broken
	taken := map[string]string{}
	for _, s := range sources {
		skills, bad := s.hold()
		broken = append(broken, bad...)
		for _, skill := range skills {
			if by, ok := taken[skill.ID()]; ok {
				broken = append(broken, Broken{Folder: skill.ID(), Source: s.name, Problems: []Problem{idTaken(by)}})
				continue
			}
			all = append(all, skill)
		}
		for _, skill := range skills {
			taken[skill.ID()] = s.name
		}
	}
	return newSnapshot(all, broken)
}
