package skills

import (
	"encoding/json"
	"slices"

	"secbox/policy"
)

// The two files that make a folder a skill.
const (
	ManifestFile = "manifest.json"
	ReadmeFile   = "SKILL.md"
)

// Manifest is manifest.json, the contract of a tool.
type Manifest struct {
	SchemaVersion string `json:"schema_version"`
	ID            string `json:"id"` // equal to the folder's name: lower-case words joined by dots
	Name          string `json:"name"`
	Description   string `json:"description"`

	Interface   Interface     `json:"interface"`
	Runtime     Runtime       `json:"runtime"`
	Permissions Permissions   `json:"permissions"`
	Limits      policy.Limits `json:"limits"`
}

// Interface has the JSON Schemas of the inputs and outputs, which are objects.
type Interface struct {
	Inputs  json.RawMessage `json:"inputs"`
	Outputs json.RawMessage `json:"outputs"`
}

// Runtime describes the command.
type Runtime struct {
	Kind  string `json:"kind"`            // "docker"
	Image string `json:"image,omitempty"` // empty: the policy decides
	// Entrypoint is an argv. Elements that begin with "./" name files of the skill's folder.
	Entrypoint []string `json:"entrypoint"`
	Session    string   `json:"session,omitempty"` // SessionOptional, or empty: each invoke gets a container of its own
}

// SessionOptional is the Session of a skill that also runs in the container of a session, beside
// other execs.
const SessionOptional = "optional"

// Permissions are requested by the skill; a policy layer can only narrow them.
type Permissions struct {
	FS  FSPermissions  `json:"fs"`
	Net NetPermissions `json:"net"`
}

// FSPermissions are patterns as in package policy: whole directories of the project.
type FSPermissions struct {
	Read  []string `json:"read"`
	Write []string `json:"write"`
}

// NetPermissions are the network that the skill needs.
type NetPermissions struct {
	Mode  string   `json:"mode"`            // policy.NetNone or policy.NetAllowlist
	Allow []string `json:"allow,omitempty"` // hosts; none: the hosts of the settings

	Credentials []policy.Credential `json:"credentials,omitempty"`
}

// Layer returns the manifest as a layer of the policy of its execs.
func (m *Manifest) Layer() policy.Layer {
	l := policy.Layer{
		NetMode: &m.Permissions.Net.Mode, NetAllow: m.Permissions.Net.Allow, NetCredentials: m.Permissions.Net.Credentials,
		Limits: m.Limits,
		FSRead: append([]string{}, m.Permissions.FS.Read...), FSWrite: append([]string{}, m.Permissions.FS.Write...),
	}
	if m.Runtime.Image != "" {
		l.Image = &m.Runtime.Image
	}
	return l
}

// ReadOnly reports whether the skill may write nothing but its own artifacts, and so cannot change
// the project's files.
func (m *Manifest) ReadOnly() bool {
	return !slices.Contains(m.Permissions.FS.Write, policy.PatternWork)
}
