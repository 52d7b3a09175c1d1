package policy

import (
	"fmt"
	"regexp"

	"secbox/fault"
)

// settingsRuntime is the settings' key of the runtime.
const settingsRuntime = "sandbox.runtime"

// runtimeName is what an engine may call a runtime: runc, crun, runsc, io.containerd.runsc.v1. It keeps out what could be read as an
// option or as a path.
var runtimeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// runtime is the field that only the operator sets, in sandbox.runtime: Layer has no word for it, so that neither a skill nor a request
// can choose what isolates it. It is in the snapshot because it decides about a container as the limits do.
type runtime struct{}

func (runtime) name() string { return FieldRuntime }

func (runtime) replaces() bool { return false }

func (runtime) senseless(*Layer) string { return "" }

func (runtime) base(r *Resolver, _ Host, s *Snapshot) {
	layer := LayerDefault
	if r.runtime != "" {
		layer = LayerSettings
	}
	s.Values.Runtime = r.runtime
	s.Fields[FieldRuntime] = Field{Value: r.runtime, Layer: layer, Ceiling: r.runtime, CeilingFrom: layer}
}

func (runtime) apply(*Layer, string, *Snapshot) *fault.Field { return nil }

func (runtime) restore(f *rawField, v *Values) (Field, error) {
	out, err := typed[string, string](f)
	if err == nil {
		v.Runtime = out.Value.(string)
	}
	return out, err
}

// checkRuntime looks at the name only; whether the engine knows it, package health says.
func checkRuntime(name string) []fault.Field {
	if name == "" || runtimeName.MatchString(name) {
		return nil
	}
	return []fault.Field{{Field: settingsRuntime, Reason: fmt.Sprintf(
		"%q is no name of a runtime; write one that `docker info` lists under Runtimes, such as runc or crun, or leave it out for the engine's default", clip(name))}}
}
