package policy

import (
	"fmt"
	"slices"
	"strings"

	"secbox/fault"
)

// patterns are all there are, in the order in which lists are kept.
var patterns = []string{PatternInputs, PatternWork, PatternArtifacts}

// fsList is a list of patterns that a later layer only narrows.
type fsList struct {
	public string
	in     func(*Layer) []string
	out    func(*Values) *[]string
	grants func(Values) []string // what the layers before allow a later one to ask for
}

// readable is what may be read: what may be written may be read as well, since a mount cannot be write-only.
func readable(v Values) []string { return canonical(append(slices.Clone(v.FSRead), v.FSWrite...)) }

func writable(v Values) []string { return v.FSWrite }

// canonical is the list without repetitions and in the one order, never nil; strangers are dropped.
func canonical(list []string) []string {
	out := make([]string, 0, len(patterns))
	for _, p := range patterns {
		if slices.Contains(list, p) {
			out = append(out, p)
		}
	}
	return out
}

func (f fsList) name() string { return f.public }

func (fsList) replaces() bool { return false }

func (f fsList) senseless(l *Layer) string {
	for _, p := range f.in(l) {
		if !slices.Contains(patterns, p) {
			return fmt.Sprintf("%q is no pattern that a mount can enforce; use %s", clip(p), strings.Join(patterns, ", "))
		}
	}
	return ""
}

// clip keeps a stranger's text from filling an error.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}

func (f fsList) base(r *Resolver, _ Host, s *Snapshot) {
	value, layer := canonical(patterns), LayerDefault
	if f.public == FieldFSWrite {
		value = []string{PatternWork, PatternArtifacts} // inputs are mounted read-only for everybody
	}
	if list := f.in(&r.settings); list != nil {
		value, layer = canonical(list), LayerSettings
	}
	*f.out(&s.Values) = value
	s.Fields[f.public] = Field{Value: slices.Clone(value), Layer: layer, Ceiling: slices.Clone(value), CeilingFrom: layer}
}

func (f fsList) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	list := f.in(l)
	if list == nil {
		return nil
	}
	asked, granted := canonical(list), slices.Clone(f.grants(s.Values))
	var extra []string
	for _, p := range asked {
		if !slices.Contains(granted, p) {
			extra = append(extra, p)
		}
	}
	if extra != nil {
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
	field.Value, field.Layer = slices.Clone(asked), layer
	*f.out(&s.Values) = asked
	s.Fields[f.public] = field
	return nil
}

// Access is what a container may do with one of its three directories.
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

// String is one word that says it all: "inputs:ro,work:rw,artifacts:rw".
func (m Mounts) String() string {
	return "inputs:" + m.Inputs.String() + ",work:" + m.Work.String() + ",artifacts:" + m.Artifacts.String()
}

// MountModes turns fs.read and fs.write into mounts. What may be written may also be read, since no mount is write-only: a layer
// that takes a directory away must take it from both lists.
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
