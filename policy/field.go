package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	"secbox/fault"
)

// field is one field of a policy, and how its layers are merged.
type field interface {
	name() string
	meaning() string // as a setting
	bounds() scope
	addedLater() bool
	// check says why the layer's value is invalid under any policy; "" if it is valid, or if the
	// layer does not ask for one.
	check(l *Layer) string
	// base sets the value of the default and the settings, bounded by the host.
	base(r *Resolver, host Host, s *Snapshot)
	// apply sets the value of a later layer, or returns the violation and changes nothing.
	apply(l *Layer, layer string, s *Snapshot) *fault.Field
	// replaces reports whether a later layer's value replaces an earlier layer's value. If not, the
	// later value narrows the earlier one.
	replaces() bool
	// get is the field's value.
	get(v *Values) any
	// ask makes the layer ask for the field's value, if a layer can.
	ask(v *Values, l *Layer)
	// restore sets the field from the form in which snapshots are stored.
	restore(raw *rawField, s *Snapshot) error
}

// scope says which commands a field bounds.
type scope int

const (
	anywhere  scope = iota // commands of execs and of sandboxes, wherever they run
	container              // commands that run in a container
	execOnly               // commands of execs
)

// common is what fields share: V is the type of the value, C the type of the ceiling.
type common[V, C any] struct {
	public string // the name
	doc    string // its meaning as a setting, with its unit
	scope  scope
	later  bool // snapshots of older versions do not have it; the default was in force
	value  func(*Values) *V
}

func (c common[V, C]) name() string { return c.public }

func (c common[V, C]) meaning() string { return c.doc }

func (c common[V, C]) bounds() scope { return c.scope }

func (c common[V, C]) addedLater() bool { return c.later }

func (c common[V, C]) get(v *Values) any { return *c.value(v) }

// set stores a value and where it came from. Fields and Values do not share memory.
func (c common[V, C]) set(s *Snapshot, value V, f Field) {
	*c.value(&s.Values) = value
	f.Value = value
	switch list := f.Value.(type) {
	case []string:
		f.Value = slices.Clone(list)
	case []Credential:
		f.Value = slices.Clone(list)
	}
	s.Fields[c.public] = f
}

func (c common[V, C]) restore(raw *rawField, s *Snapshot) error {
	f := Field{Layer: raw.Layer, CeilingFrom: raw.CeilingFrom}
	var value, clamped *V
	var ceiling *C
	for _, part := range []struct {
		name string
		data json.RawMessage
		into any
	}{{"value", raw.Value, &value}, {"ceiling", raw.Ceiling, &ceiling}, {"clamped_from", raw.ClampedFrom, &clamped}} {
		if len(part.data) == 0 {
			continue
		}
		if err := json.Unmarshal(part.data, part.into); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if value == nil || ceiling == nil {
		return fmt.Errorf("value and ceiling are needed")
	}
	f.Ceiling = *ceiling
	if clamped != nil {
		f.ClampedFrom = *clamped
	}
	c.set(s, *value, f)
	return nil
}

// Description is the documentation of a field.
type Description struct {
	Name    string
	Doc     string // one sentence, with the unit
	Default any
	Ceiling any // nil for a field that is not a number
}

// Describe lists all fields, in the order of reports.
func Describe() []Description {
	values := Defaults()
	var all []Description
	for _, f := range fields {
		d := Description{Name: f.name(), Doc: f.meaning(), Default: f.get(&values)}
		if n, ok := f.(numeric); ok {
			d.Ceiling = n.defaultCeiling()
		}
		all = append(all, d)
	}
	return all
}

// Defaults are the values where no layer asks for anything.
func Defaults() Values {
	r := Resolver{allowed: []string{DefaultImage}}
	return r.base(Host{}).Values
}

// Layer asks for exactly these values, except for the runtime, which only the settings choose.
func (v Values) Layer() Layer {
	var l Layer
	for _, f := range fields {
		f.ask(&v, &l)
	}
	return l
}

// ByName is the limits that are asked for, by their names.
func (l Limits) ByName() map[string]any {
	asked := map[string]any{}
	for _, f := range fields {
		if n, ok := f.(numeric); ok {
			if value := n.askedValue(&l); value != nil {
				asked[n.name()] = value
			}
		}
	}
	return asked
}

// Check returns the values of a layer that are invalid under any policy: numbers that are not
// positive or below the least that a container needs, patterns that do not exist, an image that is
// no reference. Prefix is put before each field's name.
func Check(l Layer, prefix string) []fault.Field {
	var bad []fault.Field
	for _, f := range fields {
		if why := f.check(&l); why != "" {
			bad = append(bad, fault.Field{Field: prefix + f.name(), Reason: why})
		}
	}
	return bad
}
