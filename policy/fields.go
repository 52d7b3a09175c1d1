package policy

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"secbox/fault"
)

// DefaultImage is the image that this project builds itself; every allow-list holds it.
const DefaultImage = "secbox-sandbox:latest"

// NetNone is the only network mode there is.
const NetNone = "none"

// The patterns that fs.read and fs.write are made of: whole mounts, since a mount is what enforces them.
const (
	PatternInputs    = "inputs/**"
	PatternWork      = "work/**"
	PatternArtifacts = "artifacts/**"
)

// The public names of the fields, in the order in which they are checked and reported.
const (
	FieldNetMode        = "net.mode"
	FieldTimeoutMS      = "timeout_ms"
	FieldMaxStdoutBytes = "max_stdout_bytes"
	FieldMaxStderrBytes = "max_stderr_bytes"
	FieldMaxArtifacts   = "max_artifacts_bytes_total"
	FieldMemoryMB       = "memory_mb"
	FieldCPUCores       = "cpu_cores"
	FieldPIDs           = "pids"
	FieldTmpMB          = "tmp_mb"
	FieldImage          = "image"
	FieldFSRead         = "fs.read"
	FieldFSWrite        = "fs.write"
	FieldRuntime        = "runtime"
)

// field is what the merge knows how to do with one field of a layer.
type field interface {
	name() string
	// senseless says why the layer's word could never be meant, "" when it could or when the layer is silent.
	senseless(l *Layer) string
	// base writes what default and settings say, bounded by the host.
	base(r *Resolver, host Host, s *Snapshot)
	// apply writes what a later layer says, or returns the violation and leaves the field as it was.
	apply(l *Layer, layer string, s *Snapshot) *fault.Field
	// replaces reports whether a later layer's word takes the place of an earlier one's; otherwise it narrows it.
	replaces() bool
	// restore reads the types that JSON lost back into f and the value into v.
	restore(f *rawField, v *Values) (Field, error)
}

// fields is every field of a policy. The order is that of the reports; the merge of one field never looks at another, except that
// fs.read looks at the fs.write of the layers before, so it comes first.
var fields = []field{
	netMode{},
	number[int64]{
		public: FieldTimeoutMS, in: func(l *Layer) **int64 { return &l.TimeoutMS }, out: func(v *Values) *int64 { return &v.TimeoutMS },
		// 60 s and 30 min: design 3.2. One millisecond is the unit; a year is far beyond any job and far within a time.Duration.
		def: 60_000, ceiling: 30 * 60 * 1000, floor: 1, largest: 365 * 24 * 3600 * 1000,
	},
	number[int64]{
		public: FieldMaxStdoutBytes, in: func(l *Layer) **int64 { return &l.MaxStdoutBytes }, out: func(v *Values) *int64 { return &v.MaxStdoutBytes },
		def: 1 << 20, ceiling: 16 << 20, floor: 1, largest: maxBytes,
	},
	number[int64]{
		public: FieldMaxStderrBytes, in: func(l *Layer) **int64 { return &l.MaxStderrBytes }, out: func(v *Values) *int64 { return &v.MaxStderrBytes },
		def: 1 << 20, ceiling: 16 << 20, floor: 1, largest: maxBytes,
	},
	number[int64]{
		public: FieldMaxArtifacts, in: func(l *Layer) **int64 { return &l.MaxArtifactsBytesTotal }, out: func(v *Values) *int64 { return &v.MaxArtifactsBytesTotal },
		def: 50 << 20, ceiling: 1 << 30, floor: 1, largest: maxBytes,
	},
	number[int64]{
		public: FieldMemoryMB, in: func(l *Layer) **int64 { return &l.MemoryMB }, out: func(v *Values) *int64 { return &v.MemoryMB },
		// Docker refuses less than 6 MiB; sandbox-init and a bash need some 12 before the job has done anything.
		def: 1024, ceiling: 8192, floor: 16, largest: maxBytes >> 20,
		floorWhy: "sandbox-init and a shell need that much before the job does anything",
		host:     func(h Host) int64 { return h.MemoryMB },
		hostWhy:  "the engine's machine has %v MiB of memory",
	},
	number[float64]{
		public: FieldCPUCores, in: func(l *Layer) **float64 { return &l.CPUCores }, out: func(v *Values) *float64 { return &v.CPUCores },
		// The kernel's smallest quota is 1 ms in each period of 100 ms. 8192 is the most CPUs that Linux is built for.
		def: 1, ceiling: 4, floor: 0.01, largest: 8192,
		floorWhy: "the kernel cannot give out less",
		host:     func(h Host) float64 { return float64(h.CPUs) },
		hostWhy:  "the engine's machine has %v CPUs",
	},
	number[int64]{
		public: FieldPIDs, in: func(l *Layer) **int64 { return &l.PIDs }, out: func(v *Values) *int64 { return &v.PIDs },
		// Threads count as well, and the threads of sandbox-init's own runtime are among them. 2^22 is the kernel's own limit.
		def: 256, ceiling: 4096, floor: 16, largest: 1 << 22,
		floorWhy: "threads count too, and sandbox-init has some of its own",
	},
	number[int64]{
		public: FieldTmpMB, in: func(l *Layer) **int64 { return &l.TmpMB }, out: func(v *Values) *int64 { return &v.TmpMB },
		// /tmp is a tmpfs and what lies in it counts into memory_mb, so a ceiling of half of memory_mb's is generous already.
		def: 256, ceiling: 4096, floor: 1, largest: maxBytes >> 20,
	},
	image{},
	fsList{public: FieldFSRead, in: func(l *Layer) []string { return l.FSRead }, out: func(v *Values) *[]string { return &v.FSRead }, grants: readable},
	fsList{public: FieldFSWrite, in: func(l *Layer) []string { return l.FSWrite }, out: func(v *Values) *[]string { return &v.FSWrite }, grants: writable},
	runtime{},
}

// maxBytes is 1 PiB: the most that settings may allow of anything counted in bytes, so that sums and shifts stay within int64.
const maxBytes = 1 << 50

// Names are the public names of all fields, in the order of reports.
func Names() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name()
	}
	return names
}

// Defaults are the values that hold where no layer says anything.
func Defaults() Values {
	var s Snapshot
	s.Fields = map[string]Field{}
	r := Resolver{allowed: []string{DefaultImage}}
	for _, f := range fields {
		f.base(&r, Host{}, &s)
	}
	return s.Values
}

// DefaultCeilings are the ceilings that hold where the settings name none: numbers only.
func DefaultCeilings() Layer {
	var l Layer
	for _, f := range fields {
		switch n := f.(type) {
		case number[int64]:
			*n.in(&l) = &n.ceiling
		case number[float64]:
			*n.in(&l) = &n.ceiling
		}
	}
	return l
}

// Check returns what in a layer could never be meant, whatever the policy is: numbers that are not positive or below what a
// container needs, patterns that do not exist, an image that is no reference. Prefix is put before each field's name.
func Check(l Layer, prefix string) []fault.Field {
	var bad []fault.Field
	for _, f := range fields {
		if why := f.senseless(&l); why != "" {
			bad = append(bad, fault.Field{Field: prefix + f.name(), Reason: why})
		}
	}
	return bad
}

// number is a field that a later layer replaces, up to the ceiling.
type number[T int64 | float64] struct {
	public   string
	in       func(*Layer) **T
	out      func(*Values) *T
	def      T
	ceiling  T // where the settings name none
	floor    T // below it a container cannot work
	largest  T // what settings may raise the ceiling to
	floorWhy string
	host     func(Host) T // nil: the host does not bound it
	hostWhy  string       // with a verb for the bound
}

func (n number[T]) name() string { return n.public }

func (number[T]) replaces() bool { return true }

func (n number[T]) senseless(l *Layer) string {
	p := *n.in(l)
	if p == nil {
		return ""
	}
	f := float64(*p)
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return "must be a number; leave it out for the default"
	case *p <= 0:
		return fmt.Sprintf("must be greater than zero, not %v; leave it out for the default", *p)
	case *p < n.floor && n.floorWhy != "":
		return fmt.Sprintf("must be at least %v, not %v: %s", n.floor, *p, n.floorWhy)
	case *p < n.floor:
		return fmt.Sprintf("must be at least %v, not %v", n.floor, *p)
	}
	return ""
}

// bound is the ceiling that the settings and the host leave, and which of them set it.
func (n number[T]) bound(r *Resolver, host Host) (T, string) {
	ceiling, from := n.ceiling, LayerDefault
	if p := *n.in(&r.ceilings); p != nil {
		ceiling, from = *p, LayerSettings
	}
	if n.host != nil {
		if h := n.host(host); h > 0 && h < ceiling {
			ceiling, from = h, CeilingHost
		}
	}
	return ceiling, from
}

func (n number[T]) base(r *Resolver, host Host, s *Snapshot) {
	value, layer := n.def, LayerDefault
	if p := *n.in(&r.settings); p != nil {
		value, layer = *p, LayerSettings
	}
	f := Field{Layer: layer}
	ceiling, from := n.bound(r, host)
	f.Ceiling, f.CeilingFrom = ceiling, from
	if value > ceiling {
		f.ClampedFrom = value
		value = ceiling
	}
	f.Value = value
	*n.out(&s.Values) = value
	s.Fields[n.public] = f
}

func (n number[T]) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	p := *n.in(l)
	if p == nil {
		return nil
	}
	f := s.Fields[n.public]
	ceiling := f.Ceiling.(T)
	if *p > ceiling {
		var why string
		switch f.CeilingFrom {
		case CeilingHost:
			why = fmt.Sprintf("%v is more than there is: "+n.hostWhy+"; %s at most that", *p, ceiling, askInstead(layer))
		default:
			why = fmt.Sprintf("%v is above the ceiling of %v; %s at most that, or have the operator raise sandbox.policy_ceiling.%s",
				*p, ceiling, askInstead(layer), n.public)
		}
		return &fault.Field{Field: n.public, Reason: why, Asked: *p, Ceiling: ceiling, Layer: layer}
	}
	f.Value, f.Layer, f.ClampedFrom = *p, layer, nil
	*n.out(&s.Values) = *p
	s.Fields[n.public] = f
	return nil
}

// askFor begins the remedy: who has to ask for less.
func askFor(layer string) string {
	if layer == LayerManifest {
		return "the skill's manifest must ask for"
	}
	return "ask for"
}

// askInstead is askFor where the request may replace what the manifest says.
func askInstead(layer string) string {
	if layer == LayerManifest {
		return "the request or the skill's manifest must ask for"
	}
	return askFor(layer)
}

// netMode is the field that takes one word only, for now.
type netMode struct{}

func (netMode) name() string { return FieldNetMode }

func (netMode) replaces() bool { return false }

func (netMode) senseless(l *Layer) string {
	if l.NetMode != nil && *l.NetMode == "" {
		return "is empty; leave it out, or say " + NetNone
	}
	return ""
}

func (netMode) base(r *Resolver, _ Host, s *Snapshot) {
	layer := LayerDefault
	if r.settings.NetMode != nil {
		layer = LayerSettings
	}
	s.Values.NetMode = NetNone
	s.Fields[FieldNetMode] = Field{Value: NetNone, Layer: layer, Ceiling: NetNone, CeilingFrom: LayerDefault}
}

func (netMode) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	if l.NetMode == nil {
		return nil
	}
	if *l.NetMode != NetNone {
		return &fault.Field{
			Field: FieldNetMode, Asked: *l.NetMode, Ceiling: NetNone, Layer: layer,
			Reason: fmt.Sprintf("%q is not allowed; %s %q: sandboxes have no network, whatever the settings say", clip(*l.NetMode), askFor(layer), NetNone),
		}
	}
	f := s.Fields[FieldNetMode]
	f.Layer = layer
	s.Fields[FieldNetMode] = f
	return nil
}

// image is the field that takes what the settings' allow-list holds.
type image struct{}

// imageRef is narrower than Docker's grammar is wide: it keeps out what could be read as an option or split a line.
var imageRef = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}$`)

func (image) name() string { return FieldImage }

func (image) replaces() bool { return true }

func (image) senseless(l *Layer) string {
	switch {
	case l.Image == nil:
		return ""
	case *l.Image == "":
		return "is empty; leave it out for the default"
	case !imageRef.MatchString(*l.Image):
		return "is no image reference like " + DefaultImage
	}
	return ""
}

func (image) base(r *Resolver, _ Host, s *Snapshot) {
	value, layer, from := DefaultImage, LayerDefault, LayerDefault
	if r.settings.Image != nil {
		value, layer = *r.settings.Image, LayerSettings
	}
	if len(r.allowed) > 1 {
		from = LayerSettings
	}
	s.Values.Image = value
	s.Fields[FieldImage] = Field{Value: value, Layer: layer, Ceiling: slices.Clone(r.allowed), CeilingFrom: from}
}

func (image) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	if l.Image == nil {
		return nil
	}
	f := s.Fields[FieldImage]
	allowed := f.Ceiling.([]string)
	if !slices.Contains(allowed, *l.Image) {
		return &fault.Field{
			Field: FieldImage, Asked: *l.Image, Ceiling: slices.Clone(allowed), Layer: layer,
			Reason: fmt.Sprintf("%s is not on the list of allowed images; %s one of %s, or have the operator add it to sandbox.images",
				*l.Image, askInstead(layer), strings.Join(allowed, ", ")),
		}
	}
	f.Value, f.Layer = *l.Image, layer
	s.Values.Image = *l.Image
	s.Fields[FieldImage] = f
	return nil
}
