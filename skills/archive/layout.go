package archive

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"secbox/pathadapter"
)

// descriptions are the files in a skill's root that describe it, as in package metadata.
var descriptions = []string{"SKILL.md", "skill.md", "README.md"}

// file is a regular file to be written.
type file struct {
	*entry
	path        string // below the skill's root
	description bool   // a description, which must not be blank
}

// plan is the tree to write.
type plan struct {
	skill Skill
	dirs  []string // parents first
	files []file   // in the order of their data in the archive
}

// layOut plans the tree from the table of contents alone.
func layOut(entries []*entry, filename string, lim Limits) (*plan, error) {
	kept := make([]*entry, 0, len(entries))
	files := 0
	for _, e := range entries {
		if e.leftOut() {
			continue
		}
		for _, part := range e.parts {
			if why := partFault(part); why != "" {
				return nil, badEntry(e.label(), "cannot be taken: the name %s %s; rename it", quoted(part), why)
			}
		}
		if n := len(e.label()); n > lim.PathBytes {
			return nil, badEntry(e.label(), "has a name of %d bytes, more than %d: use shorter names or fewer folders", n, lim.PathBytes)
		}
		if !e.dir {
			files++
		}
		kept = append(kept, e)
	}
	if files == 0 {
		return nil, errEmpty()
	}

	p := &plan{}
	top, strip := topFolder(kept, 0), 0
	id, err := skillID(top, filename)
	if err != nil {
		return nil, err
	}
	p.skill.ID = id
	if top != "" {
		for strip = 1; topFolder(kept, strip) == top; strip++ {
			p.skill.Flattened = true
		}
	}
	return p, p.place(kept, strip, lim)
}

// topFolder returns the folder that holds all entries, below the first skip names of their paths; empty if there is none.
func topFolder(entries []*entry, skip int) string {
	top := ""
	for _, e := range entries {
		switch {
		case e.dir && len(e.parts) <= skip: // a folder that was stripped
			continue
		case len(e.parts) <= skip+1 && !e.dir: // a file outside of the folder
			return ""
		case top == "":
			top = e.parts[skip]
		case top != e.parts[skip]:
			return ""
		}
	}
	return top
}

// place gives every entry its path in the skill and checks the tree.
func (p *plan) place(entries []*entry, strip int, lim Limits) error {
	t := nameTree{names: map[string]node{}, known: map[string]bool{}}
	var below *entry // the first SKILL.md that is not in the root
	for _, e := range entries {
		if len(e.parts) <= strip {
			continue
		}
		parts := e.parts[strip:]
		if len(parts) > lim.Depth {
			return badEntry(e.label(), "is %d folders deep; a skill may be %d deep: use fewer folders", len(parts)-1, lim.Depth-1)
		}
		if err := t.addAll(parts, e); err != nil {
			return err
		}
		if len(t.dirs) > lim.Files {
			return tooLarge("the archive has more than the %d folders that a skill may have: use fewer", lim.Files)
		}
		if e.dir {
			continue
		}
		f := file{entry: e, path: strings.Join(parts, "/")}
		if len(p.files) == lim.Files {
			return tooLarge("the archive has more than the %d files that a skill may have: leave out unneeded files", lim.Files)
		}
		if err := f.checkDescription(); err != nil {
			return err
		}
		if below == nil && isSkillMD(f.path) && !f.description {
			below = e
		}
		p.files = append(p.files, f)
	}
	if below != nil && !slices.ContainsFunc(p.files, func(f file) bool { return f.description }) {
		return badEntry(below.label(), "is in a folder of the skill, but the root has none: upload each skill as its own archive, with that file in its top folder")
	}
	p.dirs = t.dirs
	slices.Sort(p.dirs) // a folder's path is a prefix of those below it
	p.skill.Files = len(p.files)
	for _, f := range p.files {
		p.skill.Bytes += f.size
	}
	return nil
}

// checkDescription applies the rules for SKILL.md.
func (f *file) checkDescription() error {
	switch {
	case slices.Contains(descriptions, f.path):
		f.description = true
		if f.size == 0 {
			return errBlank(f.label())
		}
	case isSkillMD(f.path) && !strings.Contains(f.path, "/"):
		return badEntry(f.label(), "is ignored under that name: rename it to SKILL.md")
	}
	return nil
}

func isSkillMD(file string) bool { return pathadapter.FoldName(path.Base(file)) == "skill.md" }

func errBlank(name string) error {
	return badEntry(name, "is empty: describe the skill in it, and how to use it")
}

// node is the entry at a folded path.
type node struct {
	path string
	dir  bool
}

// nameTree detects names that some file system does not distinguish. Its keys are folded paths, so that collisions of folders are found even
// if the files in them have different names.
type nameTree struct {
	names map[string]node
	known map[string]bool // folders, by spelling
	dirs  []string        // the same, in the order of the archive
}

// addAll adds an entry and the folders above it.
func (t *nameTree) addAll(parts []string, e *entry) error {
	if n := len(parts) - 1; n > 0 && !t.known[strings.Join(parts[:n], "/")] {
		for n := 1; n < len(parts); n++ {
			if err := t.add(parts[:n], true, e); err != nil {
				return err
			}
		}
	}
	return t.add(parts, e.dir, e)
}

func (t *nameTree) add(parts []string, dir bool, e *entry) error {
	name := strings.Join(parts, "/")
	key := pathadapter.FoldName(name)
	other, taken := t.names[key]
	switch {
	case !taken:
		t.names[key] = node{name, dir}
		if dir {
			t.known[name] = true
			t.dirs = append(t.dirs, name)
		}
		return nil
	case other.path != name && norm.NFC.String(other.path) == norm.NFC.String(name):
		return badEntry(e.label(), "differs from %s only by Unicode form, and some systems cannot hold both: rename one", quoted(other.path))
	case other.path != name:
		return badEntry(e.label(), "differs from %s only by case, and some systems cannot hold both: rename one", quoted(other.path))
	case dir != other.dir:
		return badEntry(e.label(), "needs %s to be a folder, but it is a file too: rename one", quoted(name))
	case !dir:
		return badEntry(e.label(), "is in the archive twice: pack it again")
	}
	return nil
}

// checkSizes checks the sizes in the table against the limits. Unpacking then checks every entry against its size.
func (p *plan) checkSizes(archive int64, lim Limits) error {
	var packed, total int64
	for _, f := range p.files {
		if f.size > lim.FileBytes {
			return tooLarge("the archive's entry %s unpacks to %s, more than the %s that a file may have: leave it out or split it",
				quoted(f.label()), inBytes(f.size), inBytes(lim.FileBytes))
		}
		if total += f.size; total > lim.Bytes {
			return tooLarge("the archive unpacks to more than the %s that a skill may have: leave out unneeded files", inBytes(lim.Bytes))
		}
		packed += f.packed
		if isBomb(f.packed, f.size, lim) {
			return errBomb("the archive's entry "+quoted(f.label()), lim)
		}
	}
	if isBomb(min(packed, archive), total, lim) {
		return errBomb("the archive", lim)
	}
	return nil
}

func isBomb(packed, size int64, lim Limits) bool {
	return size > ratioFloor && size/int64(lim.Ratio) >= packed
}

func errBomb(what string, lim Limits) error {
	return tooLarge("%s unpacks to more than %d times its size, as a bomb does: leave out the filling", what, lim.Ratio)
}
