// Package policy merges the layers of an exec's limits and permissions into one complete snapshot that says which layer set each
// field, and refuses what passes a ceiling.
//
//	system default <- settings <- skill manifest <- request overrides
//
// A Layer is partial, a Snapshot is complete. For numbers a later layer replaces an earlier one, up to the ceiling; for fs a later
// layer only narrows. The package is pure: it reads no files, starts nothing and knows neither Docker nor HTTP.
package policy

// CeilingHost is the source of a ceiling that the machine sets; the other sources are LayerDefault and LayerSettings.
const CeilingHost = "host"

// The names of the layers, in the order in which they apply.
const (
	LayerDefault  = "default"
	LayerSettings = "settings"
	LayerManifest = "manifest"
	LayerRequest  = "request"
)

// LayerBackend is the source of a value that is not the policy's but that of what a command runs in.
const LayerBackend = "backend"

// Layer is what one source says about the policy; a nil field says nothing. The JSON names are the public names of the fields. The
// runtime is not among them: only Config sets it.
type Layer struct {
	NetMode                *string  `json:"net.mode,omitempty"`
	TimeoutMS              *int64   `json:"timeout_ms,omitempty"`
	MaxStdoutBytes         *int64   `json:"max_stdout_bytes,omitempty"`
	MaxStderrBytes         *int64   `json:"max_stderr_bytes,omitempty"`
	MaxArtifactsBytesTotal *int64   `json:"max_artifacts_bytes_total,omitempty"`
	MemoryMB               *int64   `json:"memory_mb,omitempty"`
	CPUCores               *float64 `json:"cpu_cores,omitempty"`
	PIDs                   *int64   `json:"pids,omitempty"`
	TmpMB                  *int64   `json:"tmp_mb,omitempty"`
	Image                  *string  `json:"image,omitempty"`
	FSRead                 []string `json:"fs.read,omitzero"`  // nil: says nothing; empty: nothing may be read
	FSWrite                []string `json:"fs.write,omitzero"` // nil: says nothing; empty: nothing may be written
}

// Values is the effective policy: every field has a value.
type Values struct {
	NetMode                string   `json:"net.mode"`
	TimeoutMS              int64    `json:"timeout_ms"`
	MaxStdoutBytes         int64    `json:"max_stdout_bytes"`
	MaxStderrBytes         int64    `json:"max_stderr_bytes"`
	MaxArtifactsBytesTotal int64    `json:"max_artifacts_bytes_total"`
	MemoryMB               int64    `json:"memory_mb"` // MiB of RAM; swap is equal to it, so none
	CPUCores               float64  `json:"cpu_cores"`
	PIDs                   int64    `json:"pids"`
	TmpMB                  int64    `json:"tmp_mb"` // MiB of the tmpfs at /tmp, counted into memory_mb by the kernel
	Image                  string   `json:"image"`
	FSRead                 []string `json:"fs.read"`
	FSWrite                []string `json:"fs.write"`
	Runtime                string   `json:"runtime"` // the OCI runtime by the engine's name for it; empty: the engine's default
}

// Field says where one value of a snapshot came from.
type Field struct {
	Value any    `json:"value"`
	Layer string `json:"layer"` // one of the Layer… constants
	// Ceiling is the most that any layer may ask for: a number, a list of images or patterns, or the only allowed word.
	Ceiling any `json:"ceiling"`
	// CeilingFrom is "settings", "default" or "host": what set the ceiling.
	CeilingFrom string `json:"ceiling_from"`
	// ClampedFrom is what the default or settings layer said when the host is too small for it; nil when nothing was cut. Only
	// the host cuts: a ceiling below the settings' own value is refused when the settings are read.
	ClampedFrom any `json:"clamped_from,omitempty"`
}

// Snapshot is a complete policy with the provenance of every field. It is stored with the exec as it stands, and with a sandbox's command as
// AsEnforced gives it.
type Snapshot struct {
	Values         Values           `json:"-"`
	Fields         map[string]Field `json:"fields"`                 // by public name
	NotEnforced    []string         `json:"not_enforced,omitempty"` // the names of fields that nothing enforces; they are not in Fields
	SettingsDigest string           `json:"settings_digest"`
}

// AsEnforced is the snapshot of a command that runs where only these fields are enforced: with the policy's value where by has nil, else
// with that of what the command runs in. Values stay the policy's.
func (s Snapshot) AsEnforced(by map[string]any) Snapshot {
	out := s
	out.Fields, out.NotEnforced = make(map[string]Field, len(by)), nil
	for _, f := range fields {
		name := f.name()
		value, ok := by[name]
		if !ok {
			out.NotEnforced = append(out.NotEnforced, name)
			continue
		}
		field := s.Fields[name]
		if value != nil && value != field.Value {
			field.Value, field.Layer, field.ClampedFrom = value, LayerBackend, nil
		}
		out.Fields[name] = field
	}
	return out
}

// Host bounds the ceilings by what the engine's machine has; zero means "not known, no bound".
type Host struct {
	CPUs     int
	MemoryMB int64
}
