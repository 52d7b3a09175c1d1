// Package versions keeps the versions of agents' skills, agents/<agent_id>/skills/<skill_id>/<digest>/, and the installation's own tool skill,
// tools/skill-creator/<digest>/, below the workspace root. A version never changes under its name. The package knows directories and digests;
// which version is whose, and which one is in use, the skills library knows.
package versions

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"secbox/workspace"
)

const (
	stagingDir   = ".staging" // where a version is written before its rename, on the same file system
	staleStaging = time.Hour  // after this, what is in .staging is litter of a crash
)

// Store is the part of a workspace root that belongs to skills. It is safe for concurrent use.
type Store struct {
	workspace *workspace.Workspace

	creating sync.Mutex // held while an agent's directory is made: two names that differ by case must not pass each other

	mu          sync.Mutex
	agents      *os.Root // <root>/agents, once it was needed
	knownAgents map[string]*agentState

	tool atomic.Pointer[Tool] // nil until it is installed
}

// New returns the store below the root of a workspace, which must outlive it.
func New(w *workspace.Workspace) *Store {
	return &Store{workspace: w, knownAgents: map[string]*agentState{}}
}

// Close gives up its handles. Agents and the tool must not be used afterwards.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents != nil {
		s.agents.Close()
	}
	if tool := s.tool.Swap(nil); tool != nil {
		tool.dir.Close()
	}
	return nil
}

func (s *Store) options() workspace.Options { return s.workspace.Options() }

func (s *Store) now() time.Time { return s.options().Now() }
