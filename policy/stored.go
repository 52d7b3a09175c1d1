package policy

import (
	"encoding/json"
	"fmt"
	"slices"
)

// rawField is a Field as it was stored, before its types are known.
type rawField struct {
	Value       json.RawMessage `json:"value"`
	Layer       string          `json:"layer"`
	Ceiling     json.RawMessage `json:"ceiling"`
	CeilingFrom string          `json:"ceiling_from"`
	ClampedFrom json.RawMessage `json:"clamped_from"`
}

// ParseSnapshot reads a snapshot as it was stored with an exec, with Values restored from its fields. A snapshot that lacks a field,
// or has one that this version does not know, is an error: half a policy must not be taken for a whole one. Only what NotEnforced names may
// be missing, and is zero in Values, and the runtime, as it is in what was stored before it could be chosen.
func ParseSnapshot(data []byte) (Snapshot, error) {
	var s Snapshot
	err := json.Unmarshal(data, &s)
	return s, err
}

// UnmarshalJSON is ParseSnapshot for whoever decodes a snapshot inside something else.
func (s *Snapshot) UnmarshalJSON(data []byte) error {
	var raw struct {
		Fields         map[string]rawField `json:"fields"`
		NotEnforced    []string            `json:"not_enforced"`
		SettingsDigest string              `json:"settings_digest"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("policy snapshot: %w", err)
	}
	out := Snapshot{Fields: make(map[string]Field, len(fields)), SettingsDigest: raw.SettingsDigest}
	if len(raw.NotEnforced) > 0 {
		out.NotEnforced = raw.NotEnforced
	}
	for _, f := range fields {
		stored, ok := raw.Fields[f.name()]
		if !ok && slices.Contains(raw.NotEnforced, f.name()) {
			continue
		}
		if !ok && f.name() == FieldRuntime { // it ran under the engine's default
			f.base(&Resolver{}, Host{}, &out)
			continue
		}
		if !ok {
			return fmt.Errorf("policy snapshot: there is no field %s", f.name())
		}
		restored, err := f.restore(&stored, &out.Values)
		if err != nil {
			return fmt.Errorf("policy snapshot: field %s: %w", f.name(), err)
		}
		out.Fields[f.name()] = restored
	}
	if len(out.Fields)+len(raw.NotEnforced) != len(fields) {
		return fmt.Errorf("policy snapshot: not_enforced does not name the fields that are missing, each once")
	}
	for name := range raw.Fields {
		if _, ok := out.Fields[name]; !ok {
			return fmt.Errorf("policy snapshot: field %s is not known to this version", name)
		}
	}
	*s = out
	return nil
}

func (n number[T]) restore(f *rawField, v *Values) (Field, error) {
	out, err := typed[T, T](f)
	if err == nil {
		*n.out(v) = out.Value.(T)
	}
	return out, err
}

func (netMode) restore(f *rawField, v *Values) (Field, error) {
	out, err := typed[string, string](f)
	if err == nil {
		v.NetMode = out.Value.(string)
	}
	return out, err
}

func (image) restore(f *rawField, v *Values) (Field, error) {
	out, err := typed[string, []string](f)
	if err == nil {
		v.Image = out.Value.(string)
	}
	return out, err
}

func (f fsList) restore(raw *rawField, v *Values) (Field, error) {
	out, err := typed[[]string, []string](raw)
	if err == nil {
		*f.out(v) = slices.Clone(out.Value.([]string))
	}
	return out, err
}

// typed decodes a stored field whose value is a V and whose ceiling is a C.
func typed[V, C any](f *rawField) (Field, error) {
	out := Field{Layer: f.Layer, CeilingFrom: f.CeilingFrom}
	var (
		value   *V
		ceiling *C
		clamped *V
	)
	for _, part := range []struct {
		name string
		data json.RawMessage
		into any
	}{{"value", f.Value, &value}, {"ceiling", f.Ceiling, &ceiling}, {"clamped_from", f.ClampedFrom, &clamped}} {
		if len(part.data) == 0 {
			continue
		}
		if err := json.Unmarshal(part.data, part.into); err != nil {
			return out, fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if value == nil || ceiling == nil {
		return out, fmt.Errorf("value and ceiling are needed")
	}
	out.Value, out.Ceiling = *value, *ceiling
	if clamped != nil {
		out.ClampedFrom = *clamped
	}
	return out, nil
}
