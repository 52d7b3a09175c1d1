package skills

import (
	"encoding/json"
	"slices"

	"secbox/policy"
)

// ManifestFile and ReadmeFile are what makes a folder a skill.
const (
	ManifestFile = "manifest.json"
	ReadmeFile   = "SKILL.md"
)

// Manifest is manifest.json: a tool's contract, in five groups. Schema is what it is validated by.
type Manifest struct {
	// Identity.
	SchemaVersion string `json:"schema_version"`
	ID            string `json:"id"` // the folder's name: lower-case words joined by dots
	Name          string `json:"name"`
	Description   string `json:"description"`

	Interface   Interface   `json:"interface"`
	Runtime     Runtime     `json:"runtime"`
	Permissions Permissions `json:"permissions"`
	Limits      Limits      `json:"limits"`
}

// Interface is what goes in and what comes out: two JSON Schemas of objects.
type Interface struct {
	Inputs  json.RawMessage `json:"inputs"`
	Outputs json.RawMessage `json:"outputs"`
}

// Runtime is what runs.
type Runtime struct {
	Kind  string `json:"kind"`            // "docker"
	Image string `json:"image,omitempty"` // empty: the policy's
	// Entrypoint is an argv. An element that begins with "./" names a file of the skill's folder.
	Entrypoint []string `json:"entrypoint"`
}

// Permissions are what the skill asks for; a policy layer can only narrow them.
type Permissions struct {
	FS  FSPermissions  `json:"fs"`
	Net NetPermissions `json:"net"`
}

// FSPermissions are patterns of policy: whole directories of the project.
type FSPermissions struct {
	Read  []string `json:"read"`
	Write []string `json:"write"`
}

// NetPermissions has one word only, for now: "none".
type NetPermissions struct {
	Mode string `json:"mode"`
}

// Limits are those of the policy, by its names; what is nil is left to the other layers.
type Limits struct {
	TimeoutMS              *int64   `json:"timeout_ms,omitempty"`
	MaxStdoutBytes         *int64   `json:"max_stdout_bytes,omitempty"`
	MaxStderrBytes         *int64   `json:"max_stderr_bytes,omitempty"`
	MaxArtifactsBytesTotal *int64   `json:"max_artifacts_bytes_total,omitempty"`
	MemoryMB               *int64   `json:"memory_mb,omitempty"`
	CPUCores               *float64 `json:"cpu_cores,omitempty"`
	PIDs                   *int64   `json:"pids,omitempty"`
	TmpMB                  *int64   `json:"tmp_mb,omitempty"`
}

// Layer is what the manifest says about the policy of its execs.
func (m *Manifest) Layer() policy.Layer {
	l := policy.Layer{
		NetMode:   &m.Permissions.Net.Mode,
		TimeoutMS: m.Limits.TimeoutMS, MaxStdoutBytes: m.Limits.MaxStdoutBytes, MaxStderrBytes: m.Limits.MaxStderrBytes,
		MaxArtifactsBytesTotal: m.Limits.MaxArtifactsBytesTotal, MemoryMB: m.Limits.MemoryMB, CPUCores: m.Limits.CPUCores,
		PIDs: m.Limits.PIDs, TmpMB: m.Limits.TmpMB,
		FSRead: append([]string{}, m.Permissions.FS.Read...), FSWrite: append([]string{}, m.Permissions.FS.Write...),
	}
	if m.Runtime.Image != "" {
		l.Image = &m.Runtime.Image
	}
	return l
}

// ReadOnly reports whether the skill leaves the project's files as they are: it may write nothing but its own artifacts.
func (m *Manifest) ReadOnly() bool {
	return !slices.Contains(m.Permissions.FS.Write, policy.PatternWork)
}

// Destructive reports whether the skill may change or remove files of the project that it was not given as its own.
func (m *Manifest) Destructive() bool { return !m.ReadOnly() }
