package versions

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/pathadapter"
	"secbox/tree"
	"secbox/workspace"
)

const (
	// retiredDir holds the versions that are out of reach, before they go: <skillId>/<digest>-<since>, in nanoseconds since 1970. As long
	// as one lies here it can be put back whole, and who was reading it goes on.
	retiredDir = ".unused"
	// quarantineDir holds what was taken away because it cannot be right: <time of the repair>/ and then the path that it had.
	quarantineDir = ".quarantine"
)

// AgentIDs are the names in agents/, in the order of their bytes: what agents there are, and whatever else lies there.
func (s *Store) AgentIDs() ([]string, error) {
	agents, err := s.openAgents()
	if err != nil {
		return nil, err
	}
	ids, err := sortedNames(agents)
	if err != nil {
		return nil, tree.Failed(err, "the directory agents cannot be read")
	}
	return ids, nil
}

func sortedNames(dir *os.Root) ([]string, error) {
	var names []string
	err := tree.EachName(dir, func(name string) error { names = append(names, name); return nil })
	slices.Sort(names)
	return names, err
}

// ExistingAgent gives an agent that has a directory, and makes none: fs.ErrNotExist.
func (s *Store) ExistingAgent(id string) (*Agent, error) {
	if err := workspace.CheckPart("agent_id", id); err != nil {
		return nil, err
	}
	agents, err := s.openAgents()
	if err != nil {
		return nil, err
	}
	if fi, err := agents.Lstat(id); err != nil {
		return nil, err
	} else if !fi.IsDir() {
		return nil, tree.Failed(tree.ErrNotDir, "agents/%s is a link or no directory: remove what is in its place", id)
	}
	return s.Agent(id)
}

// Stored is a version as the disk has it.
type Stored struct {
	SkillID string
	Digest  string
	At      time.Time // when it was stored
	// Retired is since when the version is out of reach; zero: it is in its place.
	Retired time.Time
	name    string // below .unused
}

// Versions lists the versions of a skill that are in their place, and other names that lie beside them, each in the order of their bytes.
// A skill that has no directory, or something else in its place, has none.
func (a *Agent) Versions(skillID string) (versions []Stored, others []string, err error) {
	return a.versions(skillsDir, skillID)
}

// RetiredVersions lists the versions of a skill that are out of reach.
func (a *Agent) RetiredVersions(skillID string) ([]Stored, error) {
	versions, _, err := a.versions(retiredDir, skillID)
	return versions, err
}

// RetiredSkills are the skills that have versions out of reach.
func (a *Agent) RetiredSkills() ([]string, error) {
	dir, err := a.descend(retiredDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tree.Failed(err, "what is out of use of agent %s cannot be read", a.id)
	}
	defer dir.Close()
	return sortedNames(dir)
}

func (a *Agent) versions(of, skillID string) (versions []Stored, others []string, err error) {
	if pathadapter.NameFault(skillID) != "" {
		return nil, nil, nil
	}
	dir, err := a.descend(of, skillID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrNotDir) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, tree.Failed(err, "the versions of skill %s of agent %s cannot be read", tree.CutName(skillID, 80), a.id)
	}
	defer dir.Close()
	names, err := sortedNames(dir)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile, as it was empty
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, tree.Failed(err, "the versions of skill %s of agent %s cannot be read", tree.CutName(skillID, 80), a.id)
	}
	for _, name := range names {
		v := Stored{SkillID: skillID, Digest: name}
		if of == retiredDir {
			v.name = name
			digest, since, _ := strings.Cut(name, "-")
			ns, err := strconv.ParseInt(since, 10, 64)
			if err != nil {
				continue
			}
			v.Digest, v.Retired = digest, time.Unix(0, ns)
		}
		fi, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !fi.IsDir() || !tree.IsDigest(v.Digest) {
			others = append(others, name)
			continue
		}
		v.At = fi.ModTime()
		versions = append(versions, v)
	}
	return versions, others, nil
}

// descend opens a directory of the agent's; fs.ErrNotExist when it is not there.
func (a *Agent) descend(steps ...string) (*os.Root, error) {
	dir, err := a.open()
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		next, _, err := tree.OpenDir(dir, step)
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// Retire puts a version out of reach: nobody who looks for it by its name finds it, and who has it open goes on reading. What is not
// there is no error. The name that it gets belongs to this one time: what was decided about it holds for no other.
func (a *Agent) Retire(v Stored, now time.Time) error {
	from, err := a.descend(skillsDir, v.SkillID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return tree.Failed(err, "the versions of skill %s cannot be read", v.SkillID)
	}
	defer from.Close()
	err = a.into(func(to *os.Root) error {
		return tree.RenameNew(from, v.Digest, to, v.Digest+"-"+strconv.FormatInt(now.UnixNano(), 10))
	},
		retiredDir, v.SkillID)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return tree.Failed(err, "the version %.12s of skill %s cannot be put out of reach", v.Digest, v.SkillID)
}

// Restore puts a version that is out of reach back into its place. It reports whether the version is there now.
func (a *Agent) Restore(skillID, digest string) (bool, error) {
	if !tree.IsDigest(digest) {
		return false, nil
	}
	all, err := a.RetiredVersions(skillID)
	if err != nil {
		return false, err
	}
	for _, v := range slices.Backward(all) { // the youngest will not be taken away from under us
		if v.Digest != digest {
			continue
		}
		from, err := a.descend(retiredDir, skillID)
		if err != nil {
			continue
		}
		err = a.into(func(to *os.Root) error {
			if err := tree.RenameNew(from, v.name, to, digest); err != nil {
				return err
			}
			return tree.SyncDir(to)
		}, skillsDir, skillID)
		from.Close()
		switch {
		case err == nil, errors.Is(err, fs.ErrExist):
			return true, nil
		case !errors.Is(err, fs.ErrNotExist): // somebody else has taken it
			return false, tree.Failed(err, "the version %.12s of skill %s cannot be put back", digest, skillID)
		}
	}
	fi, err := a.lstat(skillsDir, skillID, digest)
	return err == nil && fi.IsDir(), nil
}

func (a *Agent) lstat(steps ...string) (fs.FileInfo, error) {
	last := len(steps) - 1
	dir, err := a.descend(steps[:last]...)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Lstat(steps[last])
}

// into calls put with a directory of the agent's, which is made where it is missing. Directories that have become empty are removed
// meanwhile, and one that was removed between the making and the putting is made again.
func (a *Agent) into(put func(*os.Root) error, steps ...string) (err error) {
	for range 8 {
		root, e := a.open()
		if e != nil {
			return e
		}
		dir, e := tree.MakeDown(root, steps...)
		root.Close()
		if err = e; e == nil {
			err = put(dir)
			gone := errors.Is(err, fs.ErrNotExist) && !a.leadsTo(dir, steps...)
			dir.Close()
			if !gone {
				return err
			}
		} else if !errors.Is(e, fs.ErrNotExist) {
			return e
		}
	}
	return err
}

// leadsTo reports whether the steps lead to this directory.
func (a *Agent) leadsTo(dir *os.Root, steps ...string) bool {
	is, err := dir.Stat(".")
	if err != nil {
		return false
	}
	fi, err := a.lstat(steps...)
	return err == nil && os.SameFile(is, fi)
}

// Drop removes a version that is out of reach, if it still is: it first goes where nobody can put it back from, so that whoever wants it
// back gets it whole or not at all.
func (a *Agent) Drop(ctx context.Context, v Stored) (dropped bool, err error) {
	from, err := a.descend(retiredDir, v.SkillID)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, tree.Failed(err, "what is out of use of skill %s cannot be read", v.SkillID)
	}
	defer from.Close()
	temp := a.store.workspace.TempName()
	err = a.into(func(staging *os.Root) error {
		if err := tree.RenameNew(from, v.name, staging, temp); err != nil {
			return err
		}
		_ = staging.Chtimes(temp, a.store.now(), a.store.now()) // no litter yet: two who remove it get into each other's way
		_, err := tree.RemoveTree(ctx, staging, temp)           // what is left is swept when it is litter
		return err
	}, stagingDir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, tree.Failed(err, "the version %.12s of skill %s cannot be removed", v.Digest, v.SkillID)
	}
	return true, nil
}

// Tidy removes what has lain in .staging for longer than anybody works there, at most a batch of it, and the skill's directories if they
// are empty.
func (a *Agent) Tidy(skillIDs []string) error {
	root, err := a.open()
	if err != nil {
		return err
	}
	defer root.Close()
	if staging, _, err := tree.OpenDir(root, stagingDir); err == nil {
		tree.RemoveOlder(staging, a.store.now().Add(-staleStaging))
		staging.Close()
	}
	for _, of := range []string{skillsDir, retiredDir} {
		dir, _, err := tree.OpenDir(root, of)
		if err != nil {
			continue
		}
		for _, id := range skillIDs {
			if fi, err := dir.Lstat(id); err == nil && fi.IsDir() {
				_ = dir.Remove(id) // fails when something is in it
			}
		}
		dir.Close()
	}
	return nil
}

// OpenRetired opens a version that is out of reach.
func (a *Agent) OpenRetired(v Stored) (*tree.Tree, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return tree.New(root).Dir(retiredDir + "/" + v.SkillID + "/" + v.name)
}

// HasSkill reports whether the name is that of a directory of versions.
func (a *Agent) HasSkill(name string) bool {
	fi, err := a.lstat(skillsDir, name)
	return err == nil && fi.IsDir()
}

// Quarantine moves skills/<path> away, whatever it is, to where nobody looks: below a directory that is named for this time, with the
// same path. It returns where that is, below the agent's directory.
func (a *Agent) Quarantine(now time.Time, path ...string) (to string, err error) {
	steps := append([]string{skillsDir}, path...)
	last := len(steps) - 1
	from, err := a.descend(steps[:last]...)
	if err != nil {
		return "", tree.Failed(err, "%s cannot be put into quarantine", strings.Join(steps, "/"))
	}
	defer from.Close()
	above := append([]string{quarantineDir, now.UTC().Format("20060102T150405.000000000Z")}, steps[:last]...)
	err = a.into(func(dir *os.Root) error {
		if err := tree.RenameNew(from, steps[last], dir, steps[last]); err != nil {
			return err
		}
		return errors.Join(tree.SyncDir(dir), tree.SyncDir(from))
	}, above...)
	if err != nil {
		return "", tree.Failed(err, "%s cannot be put into quarantine", strings.Join(steps, "/"))
	}
	return strings.Join(append(above, steps[last]), "/"), nil
}

// Leftovers counts what has lain in .staging for longer than anybody works there: what Tidy removes.
func (a *Agent) Leftovers() int {
	staging, err := a.descend(stagingDir)
	if err != nil {
		return 0
	}
	defer staging.Close()
	limit := a.store.now().Add(-staleStaging)
	n := 0
	_ = tree.EachName(staging, func(name string) error {
		if fi, err := staging.Lstat(name); err == nil && fi.ModTime().Before(limit) {
			n++
		}
		return nil
	})
	return n
}
