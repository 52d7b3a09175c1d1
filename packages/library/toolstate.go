package library

import (
	"fmt"
	"io/fs"

	"secbox/skills"
	"secbox/workspace/tree"
)

// toolState is a package as a tool: valid with a skill, broken with problems, or no tool with
// neither.
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

// weight estimates the memory that it takes, in bytes; the manifest is held several times. Compiled
// schemas do not count, as they are kept only while they are in use.
func (s toolState) weight() int {
	w := 500 + 300*len(s.problems)
	if s.skill != nil {
		w += 8*len(s.skill.Raw) + len(s.skill.Readme) + 300*len(s.skill.Files)
	}
	return w
}

// maxCached bounds the packages in the cache, and maxListed one list of a user's tools, in bytes of
// memory. A usual package takes about 20 KB.
const (
	maxCached = 64 << 20
	maxListed = 64 << 20
)

// reopened opens a tree again for each file, so that skills hold no descriptors. It returns nil
// when there is no such tree.
type reopened func() (*tree.Tree, error)

// Open implements fs.FS.
func (open reopened) Open(name string) (fs.File, error) {
	t, err := open()
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	defer t.Close()
	return t.FS().Open(name)
}
