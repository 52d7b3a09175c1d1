package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/whole"
)

// DefaultImage is the image that this project builds itself; every allow-list holds it.
const DefaultImage = "secbox-sandbox:latest"

// image is the field that accepts the images on the settings' allow-list.
type image struct{ common[string, []string] }

// imageRef is narrower than Docker's grammar: a reference cannot be read as an option or span
// lines.
var imageRef = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$`)

func (image) replaces() bool { return true }

func (image) ask(v *Values, l *Layer) { l.Image = new(v.Image) }

func (image) check(l *Layer) string {
	if l.Image == nil {
		return ""
	}
	return checkImage(*l.Image)
}

func checkImage(ref string) string {
	switch {
	case ref == "":
		return "is empty; leave it out for the default"
	case !imageRef.MatchString(ref):
		return "is no image reference like " + DefaultImage
	}
	return ""
}

func (i image) base(r *Resolver, _ Host, s *Snapshot) {
	value, layer, from := DefaultImage, LayerDefault, LayerDefault
	if r.settings.Image != nil {
		value, layer = *r.settings.Image, LayerSettings
	}
	if len(r.allowed) > 1 {
		from = LayerSettings
	}
	i.set(s, value, Field{Layer: layer, Ceiling: slices.Clone(r.allowed), CeilingFrom: from})
}

func (i image) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	if l.Image == nil {
		return nil
	}
	f := s.Fields[i.public]
	allowed := f.Ceiling.([]string)
	if !slices.Contains(allowed, *l.Image) {
		return &fault.Field{
			Field: i.public, Asked: *l.Image, Ceiling: slices.Clone(allowed), Layer: layer,
			Reason: fmt.Sprintf("%s is not on the list of allowed images; %s one of %s, or have the operator "+
				"add it (`core-api image build`, or sandbox.images)",
				*l.Image, askInstead(layer), strings.Join(allowed, ", ")),
		}
	}
	f.Layer = layer
	i.set(s, *l.Image, f)
	return nil
}

// runtime is the field that only the operator sets, in sandbox.runtime: neither a skill nor a
// request may choose its isolation. It is in the snapshot because it decides about a container as
// the limits do.
type runtime struct{ common[string, string] }

// settingsRuntime is the settings' key of the runtime.
const settingsRuntime = "sandbox.runtime"

// runtimeName is narrower than an engine's rule for names such as runc, crun, runsc or
// io.containerd.runsc.v1: a name cannot be read as an option or as a path.
var runtimeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (runtime) replaces() bool { return false }

func (runtime) check(*Layer) string { return "" }

func (t runtime) base(r *Resolver, _ Host, s *Snapshot) {
	layer := LayerDefault
	if r.runtime != "" {
		layer = LayerSettings
	}
	t.set(s, r.runtime, Field{Layer: layer, Ceiling: r.runtime, CeilingFrom: layer})
}

func (runtime) apply(*Layer, string, *Snapshot) *fault.Field { return nil }

func (runtime) ask(*Values, *Layer) {}

// checkRuntime checks the form of the name; package health reports whether the engine knows it.
func checkRuntime(name string) []fault.Field {
	if name == "" || runtimeName.MatchString(name) {
		return nil
	}
	return []fault.Field{{Field: settingsRuntime, Reason: fmt.Sprintf(
		"%q is no name of a runtime; write one that `docker info` lists under Runtimes, such as runc or crun, or leave it out for the "+
			"engine's default", whole.Shorten(name))}}
}

// askFor begins a remedy: it says who has to ask for less.
func askFor(layer string) string {
	if layer == LayerManifest {
		return "the skill's manifest must ask for"
	}
	return "ask for"
}

// askInstead is askFor where the request may replace the manifest's value.
func askInstead(layer string) string {
	if layer == LayerManifest {
		return "the request or the skill's manifest must ask for"
	}
	return askFor(layer)
}
