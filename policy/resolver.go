package policy

import (
	"fmt"
	"slices"
	"strings"

	"secbox/fault"
)

// Config is what the settings say about the policy.
type Config struct {
	Settings       Layer    // the settings layer
	Ceiling        Layer    // numbers only; nil fields: the default ceilings
	Images         []string // the images that a layer may name; empty: only the default one and that of Settings
	Runtime        string   // the OCI runtime by the engine's name for it; empty: the engine's default
	SettingsDigest string   // goes into every snapshot as it is
}

// Resolver makes snapshots. It does not change and may be used by many goroutines.
type Resolver struct {
	settings Layer
	ceilings Layer
	allowed  []string // images, the default one first
	runtime  string
	digest   string
}

const (
	settingsPrefix = "sandbox.policy."
	ceilingPrefix  = "sandbox.policy_ceiling."
)

// New checks the settings' part of the policy and makes the Resolver. All that is wrong comes back in one fault.InvalidSettings whose
// fields are the settings' keys.
func New(cfg Config) (*Resolver, error) {
	r := &Resolver{settings: cfg.Settings.clone(), ceilings: cfg.Ceiling.clone(), runtime: cfg.Runtime, digest: cfg.SettingsDigest}
	bad := Check(r.settings, settingsPrefix)
	bad = append(bad, checkCeilings(r.ceilings)...)
	if len(bad) == 0 {
		for _, f := range fields {
			switch n := f.(type) {
			case number[int64]:
				bad = append(bad, n.checkSettings(r)...)
			case number[float64]:
				bad = append(bad, n.checkSettings(r)...)
			}
		}
		// Settings are a later layer than the defaults: where they may only narrow or choose, the same rule judges them.
		s := Snapshot{Fields: map[string]Field{}}
		blank := &Resolver{allowed: []string{DefaultImage}}
		for _, f := range fields {
			f.base(blank, Host{}, &s)
		}
		for _, f := range fields {
			switch f.(type) {
			case netMode, fsList:
				if v := f.apply(&r.settings, LayerSettings, &s); v != nil {
					bad = append(bad, fault.Field{Field: settingsPrefix + v.Field, Reason: v.Reason})
				}
			}
		}
	}
	bad = append(bad, r.allow(cfg.Images)...)
	bad = append(bad, checkRuntime(cfg.Runtime)...)
	if len(bad) > 0 {
		return nil, &fault.Error{Code: fault.InvalidSettings, Message: sentence("settings are wrong", bad), Fields: bad}
	}
	return r, nil
}

// checkCeilings is Check for the ceilings, which hold nothing but numbers.
func checkCeilings(l Layer) []fault.Field {
	bad := Check(l, ceilingPrefix)
	for _, other := range []struct {
		name string
		said bool
	}{{FieldNetMode, l.NetMode != nil}, {FieldImage, l.Image != nil}, {FieldFSRead, l.FSRead != nil}, {FieldFSWrite, l.FSWrite != nil}} {
		if other.said {
			bad = append(bad, fault.Field{Field: ceilingPrefix + other.name, Reason: "has no ceiling, only numbers do; remove it"})
		}
	}
	return bad
}

// checkSettings compares the settings' value and the default with the ceiling.
func (n number[T]) checkSettings(r *Resolver) []fault.Field {
	ceiling, from := n.bound(r, Host{})
	if ceiling > n.largest {
		return []fault.Field{{Field: ceilingPrefix + n.public, Reason: fmt.Sprintf("%v is beyond anything that could be enforced; use at most %v", ceiling, n.largest)}}
	}
	value := *n.in(&r.settings)
	switch {
	case value != nil && *value > ceiling && from == LayerSettings:
		return []fault.Field{{Field: settingsPrefix + n.public, Reason: fmt.Sprintf(
			"%v is above %s%s, which is %v; lower the one or raise the other", *value, ceilingPrefix, n.public, ceiling)}}
	case value != nil && *value > ceiling:
		return []fault.Field{{Field: settingsPrefix + n.public, Reason: fmt.Sprintf(
			"%v is above the default ceiling of %v; lower it or set %s%s as well", *value, ceiling, ceilingPrefix, n.public)}}
	case value == nil && n.def > ceiling:
		return []fault.Field{{Field: ceilingPrefix + n.public, Reason: fmt.Sprintf(
			"%v is below the default of %v; raise it, or set %s%s to at most %v as well", ceiling, n.def, settingsPrefix, n.public, ceiling)}}
	}
	return nil
}

// allow builds the list of images and checks that the settings' own image is on it.
func (r *Resolver) allow(images []string) []fault.Field {
	r.allowed = []string{DefaultImage}
	var bad []fault.Field
	add := func(ref string) {
		if !slices.Contains(r.allowed, ref) {
			r.allowed = append(r.allowed, ref)
		}
	}
	for i, ref := range images {
		if why := (image{}).senseless(&Layer{Image: &images[i]}); why != "" {
			bad = append(bad, fault.Field{Field: fmt.Sprintf("sandbox.images[%d]", i), Reason: why})
			continue
		}
		add(ref)
	}
	own := r.settings.Image
	switch {
	case own == nil || !imageRef.MatchString(*own): // Check has complained already
	case len(images) == 0:
		add(*own)
	case !slices.Contains(r.allowed, *own):
		bad = append(bad, fault.Field{Field: settingsPrefix + FieldImage, Reason: *own + " is not on the list in sandbox.images; add it there"})
	}
	return bad
}

// Images is the allow-list, the default image first.
func (r *Resolver) Images() []string { return slices.Clone(r.allowed) }

// Resolve merges the layers. Manifest is nil when no skill is involved. Where a later layer replaces an earlier one, only the last that
// speaks is held against the ceiling.
//
// The snapshot is always complete: a field whose value was refused keeps what the layers before said. Errors are
// fault.InvalidRequest for values that could never be meant (fields policy_overrides.<name> or manifest.<name>), else
// fault.PolicyDenied with every violation, each field by its public name.
func (r *Resolver) Resolve(manifest *Layer, request Layer, host Host) (Snapshot, error) {
	s := Snapshot{Fields: make(map[string]Field, len(fields)), SettingsDigest: r.digest}
	for _, f := range fields {
		f.base(r, host, &s)
	}
	layers := []struct {
		name, prefix string
		layer        *Layer
	}{{LayerManifest, "manifest.", manifest}, {LayerRequest, "policy_overrides.", &request}}
	var bad, denied []fault.Field
	for _, l := range layers {
		if l.layer == nil {
			continue
		}
		bad = append(bad, Check(*l.layer, l.prefix)...)
		for _, f := range fields {
			if f.senseless(l.layer) != "" {
				continue
			}
			v := f.apply(l.layer, l.name, &s)
			if f.replaces() && (v != nil || s.Fields[f.name()].Layer == l.name) { // the layers before do not count any more
				denied = slices.DeleteFunc(denied, func(earlier fault.Field) bool { return earlier.Field == f.name() })
			}
			if v != nil {
				denied = append(denied, *v)
			}
		}
	}
	switch {
	case len(bad) > 0:
		return s, &fault.Error{Code: fault.InvalidRequest, Message: sentence("fields of the policy make no sense", bad), Fields: bad}
	case len(denied) > 0:
		return s, &fault.Error{Code: fault.PolicyDenied, Message: sentence("fields are not allowed by the policy", denied), Fields: denied}
	}
	return s, nil
}

// sentence is the message for a list of fields: the whole story of one, the names of several.
func sentence(what string, list []fault.Field) string {
	if len(list) == 1 {
		return list[0].Field + ": " + list[0].Reason
	}
	parts := make([]string, len(list))
	for i, f := range list {
		parts[i] = f.Field + ": " + f.Reason
	}
	return fmt.Sprintf("%d %s. %s", len(list), what, strings.Join(parts, ". "))
}

// clone copies a layer so that nobody changes it from outside.
func (l Layer) clone() Layer {
	l.NetMode, l.Image = copied(l.NetMode), copied(l.Image)
	l.TimeoutMS, l.MemoryMB, l.PIDs, l.TmpMB = copied(l.TimeoutMS), copied(l.MemoryMB), copied(l.PIDs), copied(l.TmpMB)
	l.MaxStdoutBytes, l.MaxStderrBytes = copied(l.MaxStdoutBytes), copied(l.MaxStderrBytes)
	l.MaxArtifactsBytesTotal, l.CPUCores = copied(l.MaxArtifactsBytesTotal), copied(l.CPUCores)
	l.FSRead, l.FSWrite = slices.Clone(l.FSRead), slices.Clone(l.FSWrite)
	return l
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
