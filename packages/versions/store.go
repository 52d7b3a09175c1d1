// Package versions keeps the versions of agents' skills,
// agents/<agent_id>/skills/<skill_id>/<digest>/, and the installation's own skill,
// tools/skill-creator/<digest>/, below the workspace root. A version is immutable. The package
// knows directories and digests; it must not know users, pointers or the registry.
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
	staleStaging = time.Hour  // the age at which files in .staging are leftovers of a crash
)

// Store is the part of a workspace root with the versions of skills. It is safe for concurrent use.
type Store struct {
	workspace *workspace.Workspace

	creating sync.Mutex // serialises making agents' directories: two names that differ by case must not miss each other

	mu          sync.Mutex
	tops        map[string]*os.Root // <root>/agents and <root>/registry, opened when needed
	knownAgents map[string]*agentState

	tool atomic.Pointer[Tool] // nil until it is installed
}

// New returns the store below the root of a workspace, which must outlive it.
func New(w *workspace.Workspace) *Store {
	return &Store{workspace: w, tops: map[string]*os.Root{}, knownAgents: map[string]*agentState{}}
}

// Close closes the descriptors. Agents and the tool must not be used afterwards.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range s.tops {
		dir.Close()
	}
	if tool := s.tool.Swap(nil); tool != nil {
		tool.dir.Close()
	}
	return nil
}

func (s *Store) options() workspace.Options { return s.workspace.Options() }

func (s *Store) now() time.Time { return s.options().Now() }
