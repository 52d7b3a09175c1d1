package policy

import "reflect"

// CeilingHost is the source of a ceiling that the machine sets; the other sources are LayerDefault,
// LayerSettings and CeilingSession.
const CeilingHost = "host"

// The names of the layers, in the order in which they apply.
const (
	LayerDefault  = "default"
	LayerSettings = "settings"
	LayerManifest = "manifest"
	LayerRequest  = "request"
)

// LayerBackend is the source of a value that comes from the container in which a sandbox's command
// runs, and not from the policy.
const LayerBackend = "backend"

// Field says where one value of a snapshot came from.
type Field struct {
	Value any    `json:"value"`
	Layer string `json:"layer"` // one of the Layer… constants
	// Ceiling is the most that any layer may ask for: a number, a list of images or patterns, or
	// the only allowed word.
	Ceiling any `json:"ceiling"`
	// CeilingFrom is what set the ceiling: "settings", "default", "host" or "session".
	CeilingFrom string `json:"ceiling_from"`
	// ClampedFrom is the value of the default or settings layer when the host is too small for it,
	// else nil. Only the host clamps: a ceiling below the settings' own value is refused when the
	// settings are read.
	ClampedFrom any `json:"clamped_from,omitempty"`
}

// Snapshot is a complete policy with the provenance of every field. It is stored with the exec as
// it is, and with a sandbox's command as AsEnforced returns it.
type Snapshot struct {
	Values         Values           `json:"-"`
	Fields         map[string]Field `json:"fields"`                 // by public name
	NotEnforced    []string         `json:"not_enforced,omitempty"` // the names of fields that nothing enforces; they are not in Fields
	SettingsDigest string           `json:"settings_digest"`

	secrets map[string]SecretRule // only within Resolve
}

// Container is how the container of a sandbox was created.
type Container struct {
	ContainerLimits
	Image, Runtime string
}

// AsEnforced is the snapshot of a sandbox's command. In a container, the container's values replace
// the policy's in Fields; with nil, the command runs on a machine where only the fields of every
// command are enforced. Values stay the policy's.
func (s Snapshot) AsEnforced(in *Container) Snapshot {
	widest, values := anywhere, s.Values
	if in != nil {
		widest = container
		values.ContainerLimits, values.Image, values.Runtime = in.ContainerLimits, in.Image, in.Runtime
	}
	out := s
	out.Fields, out.NotEnforced = make(map[string]Field, len(fields)), nil
	for _, f := range fields {
		name := f.name()
		if f.bounds() > widest {
			out.NotEnforced = append(out.NotEnforced, name)
			continue
		}
		field := s.Fields[name]
		if value := f.get(&values); !reflect.DeepEqual(value, field.Value) {
			field.Value, field.Layer, field.ClampedFrom = value, LayerBackend, nil
		}
		out.Fields[name] = field
	}
	return out
}

// Host is the size of the engine's machine, which bounds the ceilings; zero: not known, no bound.
type Host struct {
	CPUs     int
	MemoryMB int64
}
