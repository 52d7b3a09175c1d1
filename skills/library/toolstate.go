package library

import (
	"fmt"
	"io/fs"

	"secbox/skills"
)

// toolState is a package as a tool: valid with a skill, broken with problems, or no tool with neither.
type toolState struct {
	skill    *skills.Skill
	problems []skills.Problem
}

func broken(format string, args ...any) toolState {
	return toolState{problems: []skills.Problem{{Reason: fmt.Sprintf(format, args...)}}}
}

// from sets the file system to read the skill's files from.
func (s toolState) from(files fs.FS) toolState {
	if s.skill != nil {
		s.skill = s.skill.WithFS(files)
	}
	return s
}

// weight estimates the memory that it takes, in bytes; the manifest is held several times. Compiled schemas do not count, as they are kept
// only while they are in use.
func (s toolState) weight() int {
	w := 500 + 300*len(s.problems)
	if s.skill != nil {
		w += 8*len(s.skill.Raw) + len(s.skill.Readme) + 300*len(s.skill.Files)
	}
	return w
}

// maxCached bounds the packages in the cache, and maxListed one list of a user's tools, in bytes of memory. A usual package takes about
// 20 KB.
const (
	maxCached = 64 << 20
	maxListed = 64 << 20
)

// versionFiles reads a stored version. It opens the version again for each file, so that skills hold no descriptors.
type versionFiles struct {
	library         *Library
	owner           Owner
	skillID, digest string
}

// Open implements fs.FS.
func (f versionFiles) Open(name string) (fs.File, error) {
	t, err := f.library.version(f.owner, f.skillID, f.digest)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.FS().Open(name)
}

// copyFiles reads the user's current copy of a skill.
type copyFiles struct {
	library *Library
	owner   Owner
	skillID string
}

// Open implements fs.FS.
func (f copyFiles) Open(name string) (fs.File, error) {
	t, err := f.library.openCopy(f.owner, f.skillID)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	defer t.Close()
	return t.FS().Open(name)
}
