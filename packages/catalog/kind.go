// Package catalog lists the skills and agents of a user. The service has some, and the user's own
// workspace, wherever it is, has others. It must not know HTTP, SQL or the registry.
package catalog

import (
	"path"
	"strings"

	"secbox/sandbox"
)

// Kind is the kind of an entry of a catalog or of the registry.
type Kind string

// The kinds.
const (
	Skill Kind = "skill" // a directory, which a SKILL.md should describe
	Agent Kind = "agent" // a Markdown file
)

// Directories of a user's skills and agents in their sandbox, and the file that describes a skill.
const (
	SkillsDir = sandbox.Root + "/skills"
	AgentsDir = sandbox.Root + "/agents"
	SkillFile = "SKILL.md"
	AgentExt  = ".md"
)

// Holds reports whether a file in a user's sandbox is below SkillsDir or AgentsDir.
func Holds(file string) bool {
	file = path.Clean(file)
	return strings.HasPrefix(file, SkillsDir+"/") || strings.HasPrefix(file, AgentsDir+"/")
}

// Kinds are all kinds.
var Kinds = []Kind{Skill, Agent}

// Path returns where a user's skill or agent is in their sandbox: a directory for a skill, a file
// for an agent.
func (k Kind) Path(name string) string {
	if k == Agent {
		return AgentsDir + "/" + name + AgentExt
	}
	return SkillsDir + "/" + name
}

// File returns the file of a skill or an agent that is read first.
func (k Kind) File(name string) string {
	if k == Agent {
		return k.Path(name)
	}
	return k.Path(name) + "/" + SkillFile
}
