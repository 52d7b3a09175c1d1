package library

import (
	"fmt"
	"io/fs"
	"sync"

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
func (j toolState) from(files fs.FS) toolState {
	if j.skill != nil {
		j.skill = j.skill.WithFS(files)
	}
	return j
}

// weight estimates the memory that it takes, in bytes; the manifest is held several times. Compiled schemas do not count, as they are kept
// only while they are in use.
func (j toolState) weight() int {
	w := 500 + 300*len(j.problems)
	if j.skill != nil {
		w += 8*len(j.skill.Raw) + len(j.skill.Readme) + 300*len(j.skill.Files)
	}
	return w
}

// maxCached bounds the packages in the cache, and maxListed one list of a user's tools, in bytes of memory. A usual package takes about
// 20 KB.
const (
	maxCached = 64 << 20
	maxListed = 64 << 20
)

// toolCache remembers packages by id and digest, of all users.
type toolCache struct {
	mu     sync.Mutex
	known  map[[2]string]toolState
	weight int
}

func (c *toolCache) get(skillID, digest string) (toolState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j, ok := c.known[[2]string{skillID, digest}]
	return j, ok
}

// put adds a package, and drops others at random when there are too many.
func (c *toolCache) put(skillID, digest string, j toolState) {
	key := [2]string{skillID, digest}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[[2]string]toolState{}
	}
	if before, ok := c.known[key]; ok {
		c.weight -= before.weight()
	}
	c.known[key] = j
	c.weight += j.weight()
	for other, one := range c.known {
		if c.weight <= maxCached {
			return
		}
		if other != key {
			c.weight -= one.weight()
			delete(c.known, other)
		}
	}
}

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
