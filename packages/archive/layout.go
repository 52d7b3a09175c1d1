package archive

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"secbox/fault"
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

// Pick selects skills of an archive that holds several. The zero value takes an archive of one
// skill.
type Pick struct {
	Path string // the folder of the skill to take, as a several_skills error names it; "." takes everything as one skill
	All  bool   // take all
}

// maxSkills bounds the skills that are taken at once; each costs a pass over all entries, and
// descriptors while it is unpacked.
const maxSkills = 200

// layOut plans the trees from the table of contents alone.
func layOut(entries []*entry, filename string, pick Pick, lim Limits) ([]*plan, error) {
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

	top, strip := topFolder(kept, 0), 0
	if top != "" {
		for strip = 1; topFolder(kept, strip) == top; strip++ {
		}
	}
	folders, err := pick.folders(kept, top, strip)
	if err != nil {
		return nil, err
	}
	if folders == nil {
		one, err := planOne(kept, top, filename, strip, pick, lim)
		return []*plan{one}, err
	}
	plans := make([]*plan, len(folders))
	var total int64
	ids := map[string]string{} // the folders by their folded ids
	for i, folder := range folders {
		inside := slices.DeleteFunc(slices.Clone(kept), func(e *entry) bool { return !isBelow(e, strip, folder) })
		if plans[i], err = planOne(inside, path.Base(folder), filename, strip+1+strings.Count(folder, "/"), pick, lim); err != nil {
			return nil, err
		}
		fold := pathadapter.FoldName(plans[i].skill.ID)
		if other, taken := ids[fold]; taken {
			return nil, severalSkills([]string{other, folder},
				"the archive has skills with one name, %s: take one with ?path=, or rename their folders")
		}
		ids[fold] = folder
		if total += plans[i].skill.Bytes; total > lim.Bytes {
			return nil, tooLarge("the skills of the archive unpack to more than %s: take one with ?path=", inBytes(lim.Bytes))
		}
	}
	return plans, nil
}

// planOne plans the tree of a skill whose folder has so many names in its path.
func planOne(entries []*entry, folder, filename string, strip int, pick Pick, lim Limits) (*plan, error) {
	id, err := skillID(folder, filename)
	if err != nil {
		return nil, err
	}
	p := &plan{skill: Skill{ID: id, Flattened: strip > 1}}
	return p, p.place(entries, strip, pick, lim)
}

// isBelow reports whether an entry is in a folder, whose path begins below the top folder.
func isBelow(e *entry, strip int, folder string) bool {
	return len(e.parts) > strip && strings.HasPrefix(strings.Join(e.parts[strip:], "/")+"/", folder+"/")
}

// folders returns the folders of the skills to take; nil: the archive is one skill. All are below
// the top folder. An archive without a SKILL.md in its root that has some below is one of several
// skills, such as a repository or a plugin.
func (pick Pick) folders(entries []*entry, top string, strip int) ([]string, error) {
	if pick.All && pick.Path != "" {
		return nil, fault.BadField("path", "and all exclude each other: give one of them")
	}
	if pick.Path != "" {
		return pick.folder(entries, top, strip)
	}
	var found []string
	for _, e := range entries {
		last := len(e.parts) - 1
		if e.dir || last < strip || !slices.Contains(descriptions[:2], e.parts[last]) {
			continue
		}
		folder := strings.Join(e.parts[strip:last], "/")
		if folder == "" {
			return nil, nil
		}
		found = append(found, folder)
	}
	// A folder comes before those below it, which are parts of its skill.
	slices.SortFunc(found, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	var outer []string
	for _, folder := range found {
		if last := len(outer) - 1; last < 0 || !strings.HasPrefix(folder+"/", outer[last]+"/") {
			outer = append(outer, folder)
		}
	}
	switch {
	case pick.All && len(outer) > maxSkills:
		return nil, tooLarge("the archive has %d skills, more than the %d that can be taken at once: take one with ?path=", len(outer),
			maxSkills)
	case pick.All, len(outer) == 0:
		return outer, nil
	}
	return nil, severalSkills(outer, "the archive has no SKILL.md in its top folder, but skills below it: %s; take one with ?path=, all "+
		"with ?all=true, or the whole as one skill with ?path=.")
}

// folder returns the folder that the path names.
func (pick Pick) folder(entries []*entry, top string, strip int) ([]string, error) {
	clean := path.Clean(norm.NFC.String(pick.Path))
	if clean == "." {
		return nil, nil
	}
	for _, folder := range []string{clean, strings.TrimPrefix(clean, top+"/")} {
		for _, e := range entries {
			for n := strip + 1; n < len(e.parts) || e.dir && n == len(e.parts); n++ {
				if spelled := strings.Join(e.parts[strip:n], "/"); norm.NFC.String(spelled) == folder {
					return []string{spelled}, nil
				}
			}
		}
	}
	return nil, fault.BadField("path", "is no folder of the archive; without path, the answer lists its skills")
}

// severalSkills names skills in the message, and each as a field.
func severalSkills(folders []string, format string) error {
	const shown, listed = 250, 100 // bytes, and fields
	err := &fault.Error{Code: fault.SeveralSkills}
	text, left := "", 0
	for i, folder := range folders {
		if i < listed {
			err.Fields = append(err.Fields, fault.Field{Field: "path", Reason: folder})
		}
		switch {
		case i == 0:
			text = quoted(folder)
		case len(text) < shown:
			text += ", " + quoted(folder)
		default:
			left++
		}
	}
	if left > 0 {
		text += fmt.Sprintf(" and %d more", left)
	}
	err.Message = fmt.Sprintf(format, text)
	return err
}

// topFolder returns the folder that holds all entries, below the first skip names of their paths;
// empty if there is none.
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
func (p *plan) place(entries []*entry, strip int, pick Pick, lim Limits) error {
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
	if below != nil && pick.Path == "" && !slices.ContainsFunc(p.files, func(f file) bool { return f.description }) {
		return badEntry(below.label(), "is in a folder of the skill, but the root has none: rename it to SKILL.md, or add one to the root")
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

// nameTree detects names that some file system does not distinguish. Its keys are folded paths, so
// that collisions of folders are found even if the files in them have different names.
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
		return badEntry(e.label(), "differs from %s only by Unicode form, and some systems cannot hold both: rename one",
			quoted(other.path))
	case other.path != name:
		return badEntry(e.label(), "differs from %s only by case, and some systems cannot hold both: rename one", quoted(other.path))
	case dir != other.dir:
		return badEntry(e.label(), "needs %s to be a folder, but it is a file too: rename one", quoted(name))
	case !dir:
		return badEntry(e.label(), "is in the archive twice: pack it again")
	}
	return nil
}

// checkSizes checks the sizes in the table against the limits. Unpacking then checks every entry
// against its size.
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
