package policy

import (
	"fmt"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/whole"
)

// The patterns of fs.read and fs.write: whole directories, since mounts enforce them.
const (
	PatternInputs    = "inputs/**"
	PatternWork      = "work/**"
	PatternArtifacts = "artifacts/**"
)

// patterns are all patterns, in the order in which lists are kept.
var patterns = []string{PatternInputs, PatternWork, PatternArtifacts}

// fsList is a list of patterns that a later layer only narrows.
type fsList struct {
	common[[]string, []string]
	asked  func(*Layer) *[]string
	grants func(Values) []string // the patterns that a later layer may ask for
}

// readable is the readable patterns. The writable ones are readable too, since no mount is
// write-only.
func readable(v Values) []string { return canonical(append(slices.Clone(v.FSRead), v.FSWrite...)) }

// canonical is the list in the order of patterns, without repetitions and unknown patterns; never
// nil.
func canonical(list []string) []string {
	out := make([]string, 0, len(patterns))
	for _, p := range patterns {
		if slices.Contains(list, p) {
			out = append(out, p)
		}
	}
	return out
}

func (fsList) replaces() bool { return false }

// ask leaves no nil, which would ask for nothing.
func (f fsList) ask(v *Values, l *Layer) { *f.asked(l) = append([]string{}, *f.value(v)...) }

func (f fsList) check(l *Layer) string {
	for _, p := range *f.asked(l) {
		if !slices.Contains(patterns, p) {
			return fmt.Sprintf("%q is no pattern that a mount can enforce; use %s", whole.Shorten(p), strings.Join(patterns, ", "))
		}
	}
	return ""
}

func (f fsList) base(r *Resolver, _ Host, s *Snapshot) {
	value, layer := canonical(patterns), LayerDefault
	if f.public == FieldFSWrite {
		value = []string{PatternWork, PatternArtifacts} // inputs are always mounted read-only
	}
	if list := *f.asked(&r.settings); list != nil {
		value, layer = canonical(list), LayerSettings
	}
	f.set(s, value, Field{Layer: layer, Ceiling: slices.Clone(value), CeilingFrom: layer})
}

func (f fsList) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	list := *f.asked(l)
	if list == nil {
		return nil
	}
	asked, granted := canonical(list), slices.Clone(f.grants(s.Values))
	extra := slices.DeleteFunc(slices.Clone(asked), func(p string) bool { return slices.Contains(granted, p) })
	if len(extra) > 0 {
		have := "nothing"
		if len(granted) > 0 {
			have = strings.Join(granted, ", ")
		}
		return &fault.Field{
			Field: f.public, Asked: asked, Ceiling: granted, Layer: layer,
			Reason: fmt.Sprintf("%s was not granted by the layers before, and a layer can only narrow; %s no more than %s",
				strings.Join(extra, ", "), askFor(layer), have),
		}
	}
	field := s.Fields[f.public]
	field.Layer = layer
	f.set(s, asked, field)
	return nil
}

// Access is how a container may use one of its three directories.
type Access int

// The kinds of access, each allowing more than the one before.
const (
	NoAccess  Access = iota // not mounted at all
	ReadOnly                // mounted read-only
	ReadWrite               // mounted read-write
)

// String is "none", "ro" or "rw".
func (a Access) String() string { return [...]string{"none", "ro", "rw"}[a] }

// Mounts is how the three directories of an exec are mounted. It is comparable.
type Mounts struct {
	Inputs, Work, Artifacts Access
}

// String is like "inputs:ro,work:rw,artifacts:rw".
func (m Mounts) String() string {
	return "inputs:" + m.Inputs.String() + ",work:" + m.Work.String() + ",artifacts:" + m.Artifacts.String()
}

// MountModes turns fs.read and fs.write into mounts. Since no mount is write-only, a layer that
// removes a directory must remove it from both lists.
func (v Values) MountModes() Mounts {
	mode := func(p string) Access {
		switch {
		case slices.Contains(v.FSWrite, p):
			return ReadWrite
		case slices.Contains(v.FSRead, p):
			return ReadOnly
		}
		return NoAccess
	}
	return Mounts{Inputs: mode(PatternInputs), Work: mode(PatternWork), Artifacts: mode(PatternArtifacts)}
}
