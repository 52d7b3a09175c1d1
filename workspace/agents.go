package workspace

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"

	"secbox/fault"
	"secbox/pathadapter"
)

const (
	agentsDir = "agents"
	skillsDir = "skills"
)

// CheckPart says whether s may be an agent's or a user's id, half of a workspace id; field is what errors name.
func CheckPart(field, s string) error {
	if !partForm.MatchString(s) {
		return fault.BadField(field, "must be a letter or digit, then up to 62 letters, digits, dots, underscores or dashes")
	}
	if reason := pathadapter.NameFault(s); reason != "" {
		return fault.BadField(field, "%s", reason)
	}
	return nil
}

// Agent is what belongs to an agent and no single user: agents/<agentId>/ with skills/<skillId>/<digest>/, the versions of its skills.
// Containers see none of it. It holds no handle and is safe for concurrent use.
type Agent struct {
	w     *Workspace
	id    string
	state *agentState
}

type agentState struct {
	mu    sync.Mutex
	swept bool
}

// agents opens <root>/agents once and makes it where it is missing.
func (w *Workspace) openAgents() (*os.Root, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.agents != nil {
		return w.agents, nil
	}
	top, err := os.OpenRoot(w.Root())
	if err != nil {
		return nil, failed(err, "the workspace root cannot be opened")
	}
	defer top.Close()
	if err := makeDir(top, agentsDir); err != nil {
		return nil, failed(err, "the directory agents cannot be made")
	}
	if w.opts.UID > 0 {
		keepPrivate(top, agentsDir)
	}
	if w.agents, _, err = openDir(top, agentsDir); err != nil {
		return nil, failed(err, "agents is a link or no directory: remove what is in its place")
	}
	return w.agents, nil
}

// Agent gives the agent with this id and makes its directory where it is missing. Errors: fault.InvalidRequest for the id,
// fault.ProjectNameConflict when it differs from another's only by case, fault.DiskFull.
func (w *Workspace) Agent(id string) (*Agent, error) {
	if err := CheckPart("agent_id", id); err != nil {
		return nil, err
	}
	agents, err := w.openAgents()
	if err != nil {
		return nil, err
	}
	if _, err := agents.Lstat(id); err != nil || w.caseBlind {
		if err := w.makeAgent(agents, id); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.knownAgents[id]
	if s == nil {
		s = &agentState{}
		w.knownAgents[id] = s
	}
	return &Agent{w: w, id: id, state: s}, nil
}

// makeAgent makes the directory first and looks for rivals then, so that two nodes that do this at once both see the other.
func (w *Workspace) makeAgent(agents *os.Root, id string) error {
	w.creating.Lock()
	defer w.creating.Unlock()
	err := agents.Mkdir(id, 0o755)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return failed(err, "the agent's directory cannot be made")
	}
	rival := ""
	err = eachName(agents, func(name string) error {
		if name != id && strings.EqualFold(name, id) {
			rival = name
		}
		return nil
	})
	if err == nil && rival == "" {
		err = open755(agents, id)
	}
	if (err != nil || rival != "") && made {
		_ = agents.Remove(id)
	}
	if err != nil {
		return failed(err, "the agent's directory cannot be made")
	}
	if rival == "" {
		return nil
	}
	conflict := fault.New(fault.ProjectNameConflict,
		"agent_id: there is an agent %q, and names that differ only by case are one on some systems: use that spelling or another name", rival)
	conflict.Fields = []fault.Field{{Field: "agent_id", Reason: "differs from an existing agent only by case"}}
	return conflict
}

func (a *Agent) open() (*os.Root, error) {
	agents, err := a.w.openAgents()
	if err != nil {
		return nil, err
	}
	root, _, err := openDir(agents, a.id)
	if err != nil {
		return nil, failed(err, "the directory of agent %s is a link or cannot be opened: remove what is in its place", a.id)
	}
	return root, nil
}

// Stage makes an empty directory for a version.
func (a *Agent) Stage() (*Staged, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s, err := a.stage(root)
	if err != nil {
		return nil, failed(err, "the agent %s has no room to work in", a.id)
	}
	return s, nil
}

func (a *Agent) stage(root *os.Root) (*Staged, error) {
	if err := root.Mkdir(stagingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	staging, _, err := openDir(root, stagingDir)
	if err != nil {
		return nil, err
	}
	a.state.mu.Lock()
	if !a.state.swept {
		a.state.swept = true
		a.w.removeOlder(staging, staleStaging)
	}
	a.state.mu.Unlock()
	s, err := newStaged(staging, a.w.fresh())
	if err != nil {
		staging.Close()
	}
	return s, err
}

// Commit makes what was staged a version of a skill: skills/<skillId>/<digest>/. Before it has that name, all of it is on the disk: a
// pointer to it will be in the database, which outlives a loss of power, and a version that is not whole would be taken for the one that
// its digest names for ever, also by whoever uploads the same content again. Its name, in turn, is on the disk when Commit returns, or
// the pointer could outlive it. When there is such a version already, intact says whether it is what its name says; then it stays.
func (a *Agent) Commit(s *Staged, skillID, digest string, intact func(*Tree) bool) error {
	if !isDigest(digest) || pathadapter.NameFault(skillID) != "" {
		return fault.New(fault.Internal, "%q of %q is no name of a version", cutName(digest, 80), cutName(skillID, 80))
	}
	var err error
	for range 8 { // garbage collection may remove the skill's directory, while it is empty, from under us
		if err = a.commit(s, skillID, digest, intact); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return failed(err, "the version cannot be put in its place")
	}
	return nil
}

func (a *Agent) commit(s *Staged, skillID, digest string, intact func(*Tree) bool) error {
	root, err := a.open()
	if err != nil {
		return err
	}
	defer root.Close()
	versions, err := makeDown(root, skillsDir, skillID)
	if err != nil {
		return err
	}
	defer versions.Close()
	if there, _, err := openDir(versions, digest); err == nil {
		t := &Tree{root: there}
		ok := intact(t)
		t.Close()
		if ok {
			return nil
		}
	}
	if err := flush(s.Root); err != nil {
		return err
	}
	err = renameNew(s.parent, s.name, versions, digest)
	if errors.Is(err, fs.ErrExist) { // damaged, or put there in this moment: ours is as good
		s.swap = a.w.fresh()
		if err = renameInto(versions, digest, s.parent, s.swap); err == nil {
			err = renameNew(s.parent, s.name, versions, digest)
		}
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return syncDir(versions)
}

// makeDown opens a directory below root and makes what is missing of the way, for good.
func makeDown(root *os.Root, steps ...string) (*os.Root, error) {
	dir, err := root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		_, err := dir.Lstat(step)
		if errors.Is(err, fs.ErrNotExist) {
			if err = makeDir(dir, step); err == nil {
				err = syncDir(dir)
			}
		}
		var next *os.Root
		if err == nil {
			next, _, err = openDir(dir, step)
		}
		dir.Close()
		if err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// Version opens a version for reading; fs.ErrNotExist when it is not there.
func (a *Agent) Version(skillID, digest string) (*Tree, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if !isDigest(digest) || pathadapter.NameFault(skillID) != "" {
		return nil, fs.ErrNotExist
	}
	return (&Tree{root: root}).Dir(skillsDir + "/" + skillID + "/" + digest)
}

// SkillNames are the skills of which the agent has versions, used or not, in no order.
func (a *Agent) SkillNames() ([]string, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, _, err := openDir(root, skillsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed(err, "skills of agent %s is a link or no directory: remove what is in its place", a.id)
	}
	defer dir.Close()
	var names []string
	err = eachName(dir, func(name string) error { names = append(names, name); return nil })
	return names, err
}
