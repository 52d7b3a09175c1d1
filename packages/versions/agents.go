package versions

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"secbox/fault"
	"secbox/pathadapter"
	"secbox/workspace"
	"secbox/workspace/tree"
)

const (
	agentsDir   = "agents"
	skillsDir   = "skills"
	registryDir = "registry"
)

// Agent is the directory of an agent, agents/<agentId>/, with the versions of its skills,
// skills/<skillId>/<digest>/. Containers do not see it. Agent holds no descriptor and is safe for
// concurrent use.
type Agent struct {
	store *Store
	top   string // agentsDir or registryDir
	id    string
	state *agentState
}

type agentState struct {
	mu    sync.Mutex
	swept bool
}

// openAgents is openTop for <root>/agents.
func (s *Store) openAgents() (*os.Root, error) { return s.openTop(agentsDir) }

// openTop opens a directory of the workspace root once, and makes it if it is missing.
func (s *Store) openTop(name string) (*os.Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.tops[name]; known != nil {
		return known, nil
	}
	top, err := os.OpenRoot(s.workspace.Root())
	if err != nil {
		return nil, tree.Failed(err, "the workspace root cannot be opened")
	}
	defer top.Close()
	if err := tree.MakeDir(top, name); err != nil {
		return nil, tree.Failed(err, "the directory %s cannot be made", name)
	}
	if s.options().UID > 0 {
		tree.KeepPrivate(top, name)
	}
	dir, _, err := tree.OpenDir(top, name)
	if err != nil {
		return nil, tree.Failed(err, "%s is a link or no directory: remove it", name)
	}
	s.tops[name] = dir
	return dir, nil
}

// Agent returns the agent with this id, and makes its directory if it is missing. Errors:
// fault.InvalidRequest for the id, fault.ProjectNameConflict when it differs from another's only by
// case, fault.DiskFull.
func (s *Store) Agent(id string) (*Agent, error) {
	if err := workspace.CheckPart("agent_id", id); err != nil {
		return nil, err
	}
	agents, err := s.openAgents()
	if err != nil {
		return nil, err
	}
	if _, err := agents.Lstat(id); err != nil || s.workspace.CaseBlind() {
		s.creating.Lock()
		err := workspace.MakeNamed(agents, id, "agent_id", "an agent", s.workspace.CaseBlind())
		s.creating.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return s.agent(agentsDir, id), nil
}

// Registry returns the place of the versions that users have published, registry/<kind>/. It works
// like the place of an agent.
func (s *Store) Registry(kind string) (*Agent, error) {
	top, err := s.openTop(registryDir)
	if err != nil {
		return nil, err
	}
	if err := tree.MakeDir(top, kind); err != nil {
		return nil, tree.Failed(err, "the directory %s/%s cannot be made", registryDir, kind)
	}
	return s.agent(registryDir, kind), nil
}

func (s *Store) agent(top, id string) *Agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := top + "/" + id
	state := s.knownAgents[key]
	if state == nil {
		state = &agentState{}
		s.knownAgents[key] = state
	}
	return &Agent{store: s, top: top, id: id, state: state}
}

// ID returns the agent's id.
func (a *Agent) ID() string { return a.id }

func (a *Agent) open() (*os.Root, error) {
	top, err := a.store.openTop(a.top)
	if err != nil {
		return nil, err
	}
	root, _, err := tree.OpenDir(top, a.id)
	if err != nil {
		return nil, tree.Failed(err, "the directory of agent %s is a link or cannot be opened: remove it", a.id)
	}
	return root, nil
}

// Stage makes an empty directory for a version.
func (a *Agent) Stage() (*tree.Staged, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	s, err := a.stage(root)
	if err != nil {
		return nil, tree.Failed(err, "the staging directory of agent %s cannot be used", a.id)
	}
	return s, nil
}

func (a *Agent) stage(root *os.Root) (*tree.Staged, error) {
	if err := root.Mkdir(stagingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	staging, _, err := tree.OpenDir(root, stagingDir)
	if err != nil {
		return nil, err
	}
	a.state.mu.Lock()
	if !a.state.swept {
		a.state.swept = true
		tree.RemoveOlder(staging, a.store.now().Add(-staleStaging))
	}
	a.state.mu.Unlock()
	s, err := tree.NewStaged(staging, a.store.workspace.TempName(), tree.Owner{})
	if err != nil {
		staging.Close()
	}
	return s, err
}

// Commit makes a staged tree the version skills/<skillId>/<digest>/. All its files are on disk
// before the rename, and the name is on disk when Commit returns: the pointer in the database
// survives a power failure, and an incomplete version would be taken for the complete one, also by
// later uploads of the same content. If the version exists already, intact reports whether it has
// its digest; then it stays.
func (a *Agent) Commit(s *tree.Staged, skillID, digest string, intact func(*tree.Tree) bool) error {
	if !tree.IsDigest(digest) || pathadapter.NameFault(skillID) != "" {
		return fault.New(fault.Internal, "%q of %q is no valid name of a version", tree.CutName(digest, 80), tree.CutName(skillID, 80))
	}
	var err error
	for range 8 { // garbage collection may remove the skill's empty directory meanwhile
		if err = a.commit(s, skillID, digest, intact); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return tree.Failed(err, "the version cannot be put in its place")
	}
	return nil
}

func (a *Agent) commit(s *tree.Staged, skillID, digest string, intact func(*tree.Tree) bool) error {
	root, err := a.open()
	if err != nil {
		return err
	}
	defer root.Close()
	versions, err := tree.MakeDown(root, skillsDir, skillID)
	if err != nil {
		return err
	}
	defer versions.Close()
	if there, _, err := tree.OpenDir(versions, digest); err == nil {
		t := tree.New(there)
		ok := intact(t)
		t.Close()
		if ok {
			return nil
		}
	}
	return s.Install(versions, digest, a.store.workspace.TempName())
}

// Version opens a version for reading; fs.ErrNotExist when there is none.
func (a *Agent) Version(skillID, digest string) (*tree.Tree, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if !tree.IsDigest(digest) || pathadapter.NameFault(skillID) != "" {
		return nil, fs.ErrNotExist
	}
	return tree.New(root).Dir(skillsDir + "/" + skillID + "/" + digest)
}

// SkillNames returns the names of the skills with versions, used or not, in no order.
func (a *Agent) SkillNames() ([]string, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, _, err := tree.OpenDir(root, skillsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, tree.Failed(err, "skills of agent %s is a link or no directory: remove it", a.id)
	}
	defer dir.Close()
	var names []string
	err = tree.EachName(dir, func(name string) error { names = append(names, name); return nil })
	return names, err
}
