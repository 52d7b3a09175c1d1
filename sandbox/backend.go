package sandbox

import "secbox/audit"

// The backends by name, as Sandbox.Name, settings, choices and audit rows spell them.
const (
	None   = audit.BackendNone
	Docker = audit.BackendDocker
	Remote = audit.BackendRemote
)

// Traits are the facts about a backend that its callers decide by. The zero Traits describe a
// backend whose commands run in containers on this side, with the limits that Location.Limits
// reports.
type Traits struct {
	// Unconfined: only the machine bounds the commands, and they do not see the workspace at Root.
	Unconfined bool

	// UserMachine: files and commands are on a machine of the user's, which Choice.Runner names.
	// The workspace on this side is not used.
	UserMachine bool
}

var traits = map[string]Traits{
	None:   {Unconfined: true},
	Docker: {},
	Remote: {Unconfined: true, UserMachine: true},
}

// TraitsOf returns the traits of a backend by its name, whether or not it is switched on. An
// unknown name has the zero Traits.
func TraitsOf(name string) Traits { return traits[name] }

// Backend is a Sandbox with every optional interface; all of ours have them.
type Backend interface {
	Sandbox
	Streamer
	Replacer
	Locator
}
