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
	"secbox/workspace"
	"secbox/workspace/tree"
)

const (
	// retiredDir holds retired versions before their removal, as <skillId>/<digest>-<time>, in
	// nanoseconds since 1970. Until then they can be put back, and readers that have them open can
	// continue.
	retiredDir = ".unused"
	// quarantineDir holds invalid entries that a repair has moved away, as <time of the
	// repair>/<original path>.
	quarantineDir = ".quarantine"
)

// AgentIDs returns the names in agents/, sorted; they need not be valid ids.
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

// ExistingAgent returns an agent that has a directory; fs.ErrNotExist otherwise.
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
		return nil, tree.Failed(tree.ErrNotDir, "agents/%s is a link or no directory: remove it", id)
	}
	return s.Agent(id)
}

// Stored is a version on disk.
type Stored struct {
	SkillID string
	Digest  string
	At      time.Time // when it was stored
	// Retired is the time when the version was retired; zero: it is in its place.
	Retired time.Time
	name    string // below .unused
}

// Versions returns the versions of a skill that are in their place, and the other names in its
// directory, both sorted. A skill without a directory has none.
func (a *Agent) Versions(skillID string) (versions []Stored, others []string, err error) {
	return a.versions(skillsDir, skillID)
}

// RetiredVersions returns the retired versions of a skill.
func (a *Agent) RetiredVersions(skillID string) ([]Stored, error) {
	versions, _, err := a.versions(retiredDir, skillID)
	return versions, err
}

// RetiredSkills returns the skills with retired versions.
func (a *Agent) RetiredSkills() ([]string, error) {
	dir, err := a.descend(retiredDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tree.Failed(err, "the retired versions of agent %s cannot be read", a.id)
	}
	defer dir.Close()
	return sortedNames(dir)
}

func (a *Agent) versions(of, skillID string) (versions []Stored, others []string, err error) {
	if pathadapter.NameFault(skillID) != "" {
		return nil, nil, nil
	}
	var names []string
	dir, err := a.descend(of, skillID)
	if err == nil {
		defer dir.Close()
		names, err = sortedNames(dir)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrNotDir) { // perhaps removed just now, as it was empty
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

// descend opens a directory of the agent; fs.ErrNotExist when there is none.
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

// Retire makes a version unreachable by its digest; readers that have it open can continue. A
// missing version is not an error. The name of a retired version is unique, so that a decision
// about it cannot affect a later one.
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
	return tree.Failed(err, "the version %.12s of skill %s cannot be retired", v.Digest, v.SkillID)
}

// Restore puts a retired version back in its place. It reports whether the version is there now.
func (a *Agent) Restore(skillID, digest string) (bool, error) {
	if !tree.IsDigest(digest) {
		return false, nil
	}
	all, err := a.RetiredVersions(skillID)
	if err != nil {
		return false, err
	}
	for _, v := range slices.Backward(all) { // the latest one is not about to be removed
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
		case !errors.Is(err, fs.ErrNotExist): // another request has taken it
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

// into calls put with a directory of the agent, which it makes if it is missing. Empty directories
// are removed concurrently, so a directory that is removed before put has finished is made again.
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

// leadsTo reports whether the path leads to this directory.
func (a *Agent) leadsTo(dir *os.Root, steps ...string) bool {
	is, err := dir.Stat(".")
	if err != nil {
		return false
	}
	fi, err := a.lstat(steps...)
	return err == nil && os.SameFile(is, fi)
}

// Drop removes a retired version. It first renames it to a place from which it cannot be restored,
// so that Restore gets it complete or not at all.
func (a *Agent) Drop(ctx context.Context, v Stored) (dropped bool, err error) {
	from, err := a.descend(retiredDir, v.SkillID)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, tree.Failed(err, "the retired versions of skill %s cannot be read", v.SkillID)
	}
	defer from.Close()
	temp := a.store.workspace.TempName()
	err = a.into(func(staging *os.Root) error {
		if err := tree.RenameNew(from, v.name, staging, temp); err != nil {
			return err
		}
		_ = staging.Chtimes(temp, a.store.now(), a.store.now()) // it is not stale yet: concurrent removals would interfere
		_, err := tree.RemoveTree(ctx, staging, temp)           // leftovers are swept when they are stale
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

// Tidy removes a batch of stale entries in .staging, and the directories of these skills if they
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
				_ = dir.Remove(id) // fails unless it is empty
			}
		}
		dir.Close()
	}
	return nil
}

// OpenRetired opens a retired version.
func (a *Agent) OpenRetired(v Stored) (*tree.Tree, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return tree.New(root).Dir(retiredDir + "/" + v.SkillID + "/" + v.name)
}

// HasSkill reports whether a directory of versions has the name.
func (a *Agent) HasSkill(name string) bool {
	fi, err := a.lstat(skillsDir, name)
	return err == nil && fi.IsDir()
}

// Quarantine moves skills/<path>, of any type, to a directory named for this time, below which it
// keeps its path. It returns the new path below the agent's directory.
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

// Leftovers counts the stale entries in .staging, which Tidy removes.
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
