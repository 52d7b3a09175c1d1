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

// ParseSnapshot reads a snapshot as it was stored with an exec, with Values restored from its
// fields. A snapshot that lacks a field, or has one that this version does not know, is an error:
// half a policy must not be taken for a whole one. Only the fields that NotEnforced names may be
// missing, and those that snapshots of older versions do not have.
func ParseSnapshot(data []byte) (Snapshot, error) {
	var s Snapshot
	err := json.Unmarshal(data, &s)
	return s, err
}

// UnmarshalJSON is ParseSnapshot for a snapshot inside another document.
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
	widest := execOnly // scope of the fields that were enforced
	for _, f := range fields {
		if slices.Contains(raw.NotEnforced, f.name()) {
			widest = min(widest, f.bounds()-1)
		}
	}
	for _, f := range fields {
		name := f.name()
		stored, ok := raw.Fields[name]
		switch {
		case ok:
			if err := f.restore(&stored, &out); err != nil {
				return fmt.Errorf("policy snapshot: field %s: %w", name, err)
			}
		case slices.Contains(raw.NotEnforced, name):
		case f.addedLater() && f.bounds() > widest:
			out.NotEnforced = append(slices.Clone(out.NotEnforced), name)
		case f.addedLater():
			f.base(&Resolver{}, Host{}, &out)
			if n, ok := f.(numeric); ok {
				n.before(&out)
			}
		default:
			return fmt.Errorf("policy snapshot: there is no field %s", name)
		}
	}
	if len(out.Fields)+len(out.NotEnforced) != len(fields) {
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
