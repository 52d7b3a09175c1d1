package skills

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// source is one folder of skills and its last known state. It is not safe for concurrent use.
type source struct {
	name   string // BuiltIn or SkillsDir
	open   func() (sourceDir, error)
	states map[string]*folderState
	reads  int // folders that were read, not only walked; for tests

	// settle is the age of the newest change in a folder from which on its signature is trusted: a
	// second change within the same tick of the file system's clock cannot be seen.
	settle time.Duration
}

// folderState is the state of one folder when it was last read.
type folderState struct {
	signature [sha256.Size]byte
	settled   bool // the signature is trusted
	skill     *Skill
	problems  []Problem
}

// refresh updates the states. It does not read folders again whose signatures are unchanged. On an
// error the source's folder could not be read, and the states stay.
func (s *source) refresh() error {
	dir, err := s.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.names()
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
	})
	next := make([]*folderState, len(names))
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for n, name := range names {
		group.Go(func() error {
			next[n] = s.read(dir, name, s.states[name])
			return nil
		})
	}
	_ = group.Wait() // no function fails
	before := s.states
	s.states = make(map[string]*folderState, len(names))
	for n, name := range names {
		if next[n] == nil {
			continue
		}
		s.states[name] = next[n]
		if next[n] != before[name] {
			s.reads++
		}
	}
	return nil
}

// read returns the state of a folder: before, if nothing has changed; nil, if it does not look like
// a skill.
func (s *source) read(dir sourceDir, name string, before *folderState) *folderState {
	d, err := dir.skill(name)
	switch {
	case errors.Is(err, errNotFolder), errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unreadable(before, err)
	}
	defer d.Close()
	started := time.Now()
	if before == nil && !looksLikeSkill(d) {
		return nil // not even walked, as it may be large
	}
	walked, err := walkFolder(d)
	if err != nil {
		return unreadable(before, err)
	}
	if before != nil && before.settled && before.signature == walked.signature {
		return before
	}
	if before != nil && !looksLikeSkill(d) {
		return nil
	}
	// A time in the future was set by another clock or by hand: waiting would not help.
	now := &folderState{signature: walked.signature, settled: started.Sub(walked.newest).Abs() > s.settle}
	now.skill, now.problems, err = load(d, name, walked)
	if err != nil {
		return unreadable(before, err)
	}
	// The files belong together only if nothing has changed while they were read.
	if again, err := walkFolder(d); err != nil || again.signature != walked.signature {
		return unreadable(before, ErrChanged)
	}
	if now.skill != nil {
		now.skill.Source, now.skill.fsys = s.name, dir.fsys(name)
		if before != nil && before.skill != nil && before.skill.Digest == now.skill.Digest {
			now.skill = before.skill
		}
	}
	return now
}

// unreadable returns the state of a folder that could not be read. While the folder is being
// changed, the state before stays.
func unreadable(before *folderState, err error) *folderState {
	if before != nil && (errors.Is(err, ErrChanged) || errors.Is(err, fs.ErrNotExist)) {
		stale := *before
		stale.settled = false
		return &stale
	}
	return &folderState{problems: []Problem{{Reason: reasonOf(err)}}}
}

func (s *source) skills() (skills []*Skill, broken []Broken) {
	for name, state := range s.states {
		if state.skill != nil {
			skills = append(skills, state.skill)
			continue
		}
		broken = append(broken, Broken{Folder: validName(name), Source: s.name, Problems: state.problems})
	}
	return skills, broken
}

// validName makes a folder's name valid UTF-8, for JSON.
func validName(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// merge combines the sources. Of two skills with the same id, the one of the later source is
// broken.
func merge(sources []*source) *Snapshot {
	s := newSnapshot(nil, nil)
	for _, source := range sources {
		s = s.with(source.skills())
	}
	return s
}
