package library

import (
	"fmt"
	"io/fs"
	"sync"

	"secbox/skills"
)

// judged is what a package is as a tool: one that can be invoked, a broken one, or with neither field none at all.
type judged struct {
	skill    *skills.Skill
	problems []skills.Problem
}

func broken(format string, args ...any) judged {
	return judged{problems: []skills.Problem{{Reason: fmt.Sprintf(format, args...)}}}
}

// from says where the skill's files are read.
func (j judged) from(files fs.FS) judged {
	if j.skill != nil {
		j.skill = j.skill.WithFS(files)
	}
	return j
}

// weight is about how much memory it takes, in bytes; the manifest is held several times. Compiled schemas do not count: they are kept only
// while they are used.
func (j judged) weight() int {
	w := 500 + 300*len(j.problems)
	if j.skill != nil {
		w += 8*len(j.skill.Raw) + len(j.skill.Readme) + 300*len(j.skill.Files)
	}
	return w
}

// maxJudged bounds what is remembered of packages, and maxListed what one list of a user's tools holds, in bytes. A package with a usual
// manifest takes some 20 KB.
const (
	maxJudged = 64 << 20
	maxListed = 64 << 20
)

// toolCache remembers packages by id and digest. Whose they are does not matter: they are read again before they run.
type toolCache struct {
	mu     sync.Mutex
	known  map[[2]string]judged
	weight int
}

func (c *toolCache) get(skillID, digest string) (judged, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	j, ok := c.known[[2]string{skillID, digest}]
	return j, ok
}

// put remembers one. Any other makes room.
func (c *toolCache) put(skillID, digest string, j judged) {
	key := [2]string{skillID, digest}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[[2]string]judged{}
	}
	if before, ok := c.known[key]; ok {
		c.weight -= before.weight()
	}
	c.known[key] = j
	c.weight += j.weight()
	for other, one := range c.known {
		if c.weight <= maxJudged {
			return
		}
		if other != key {
			c.weight -= one.weight()
			delete(c.known, other)
		}
	}
}

// versionFiles reads a stored version, and opens it anew for each file: a skill holds no handle while nobody reads it.
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

// copyFiles reads the user's copy of a skill as it is at that moment.
type copyFiles struct {
	library *Library
	owner   Owner
	skillID string
}

// Open implements fs.FS.
func (f copyFiles) Open(name string) (fs.File, error) {
	t, err := f.library.mine(f.owner, f.skillID)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	defer t.Close()
	return t.FS().Open(name)
}
