package policy

import (
	"fmt"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/whole"
)

// Config is the part of the settings that concerns the policy.
type Config struct {
	Settings Layer    // the settings layer
	Ceiling  Limits   // nil fields: the default ceilings
	Images   []string // the images that a layer may ask for; empty: only the default image and the image of Settings
	// Own returns the names of further images that a layer may ask for, which may change at any
	// time. It looks again for a wanted one that it does not know. Nil: there are none. It is
	// called at each Resolve.
	Own            func(wanted string) []string
	Runtime        string                // the OCI runtime by the engine's name for it; empty: the engine's default
	Secrets        map[string]SecretRule // what layers may ask for in net.credentials, by the secret's name
	SettingsDigest string                // goes into every snapshot as it is
}

// Resolver makes snapshots. It is safe for concurrent use.
type Resolver struct {
	settings Layer
	ceilings Limits
	allowed  []string // images, the default one first
	own      func(wanted string) []string
	runtime  string
	secrets  map[string]SecretRule
	digest   string
}

const (
	settingsPrefix = "sandbox.policy."
	ceilingPrefix  = "sandbox.policy_ceiling."
)

// New checks the settings' part of the policy and makes the Resolver. All errors come back in one
// fault.InvalidSettings whose fields are the settings' keys.
func New(cfg Config) (*Resolver, error) {
	r := &Resolver{
		settings: cfg.Settings.clone(), ceilings: cfg.Ceiling.clone(), own: cfg.Own, runtime: cfg.Runtime, digest: cfg.SettingsDigest,
		secrets: map[string]SecretRule{},
	}
	for name, rule := range cfg.Secrets {
		forms := make([]string, len(rule.As))
		for i, text := range rule.As {
			forms[i], _ = ParseForm(text)
		}
		r.secrets[name] = SecretRule{Hosts: slices.Clone(rule.Hosts), As: forms}
	}
	bad := append(Check(r.settings, settingsPrefix), Check(Layer{Limits: r.ceilings}, ceilingPrefix)...)
	if len(bad) == 0 {
		// Settings are a later layer than the defaults: they may only narrow a list, and choose
		// what the default allows.
		s := (&Resolver{allowed: []string{DefaultImage}}).base(Host{})
		for _, f := range fields {
			switch f := f.(type) {
			case numeric:
				bad = append(bad, f.checkSettings(r)...)
			case fsList:
				if v := f.apply(&r.settings, LayerSettings, &s); v != nil {
					bad = append(bad, fault.Field{Field: settingsPrefix + v.Field, Reason: v.Reason})
				}
			}
		}
	}
	if m := r.settings.NetMode; m != nil && len(bad) == 0 {
		switch {
		case *m != NetNone && *m != NetAllowlist:
			bad = append(bad, fault.Field{Field: settingsPrefix + FieldNetMode, Reason: fmt.Sprintf("%q is not allowed; set %q or %q",
				whole.Shorten(*m), NetNone, NetAllowlist)})
		case *m == NetAllowlist && len(r.settings.NetAllow) == 0:
			bad = append(bad, fault.Field{Field: settingsPrefix + FieldNetMode, Reason: fmt.Sprintf(
				"is %s, and no host is allowed; list the hosts that jobs may reach in %s%s", NetAllowlist, settingsPrefix, FieldNetAllow)})
		}
	}
	bad = append(bad, r.allow(cfg.Images)...)
	bad = append(bad, checkRuntime(cfg.Runtime)...)
	if len(bad) > 0 {
		return nil, &fault.Error{Code: fault.InvalidSettings, Message: sentence("settings are wrong", bad), Fields: bad}
	}
	return r, nil
}

// allow makes the allow-list of images and checks that the settings' own image is on it.
func (r *Resolver) allow(images []string) []fault.Field {
	r.allowed = []string{DefaultImage}
	var bad []fault.Field
	add := func(ref string) {
		if !slices.Contains(r.allowed, ref) {
			r.allowed = append(r.allowed, ref)
		}
	}
	for i, ref := range images {
		if why := checkImage(ref); why != "" {
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
		bad = append(bad, fault.Field{
			Field:  settingsPrefix + FieldImage,
			Reason: *own + " is not on the list in sandbox.images; add it there",
		})
	}
	return bad
}

// Images is the allow-list, the default image first and own images last.
func (r *Resolver) Images() []string { return r.withOwn("").allowed }

// withOwn returns a Resolver that allows the images that Own returns now.
func (r *Resolver) withOwn(wanted string) *Resolver {
	now := *r
	now.allowed = slices.Clone(r.allowed)
	if r.own != nil {
		for _, name := range r.own(wanted) {
			if !slices.Contains(now.allowed, name) {
				now.allowed = append(now.allowed, name)
			}
		}
	}
	return &now
}

// wantedImage returns the image that the last of the layers asks for.
func wantedImage(manifest *Layer, request Layer) string {
	switch {
	case request.Image != nil:
		return *request.Image
	case manifest != nil && manifest.Image != nil:
		return *manifest.Image
	}
	return ""
}

// base is the snapshot of the default and settings layers.
func (r *Resolver) base(host Host) Snapshot {
	s := Snapshot{Fields: make(map[string]Field, len(fields)), SettingsDigest: r.digest}
	for _, f := range fields {
		f.base(r, host, &s)
	}
	s.settle()
	return s
}

// settle sets the defaults that follow other fields.
func (s *Snapshot) settle() {
	for _, f := range fields {
		if n, ok := f.(numeric); ok {
			n.settle(s)
		}
	}
}

// Resolve merges the layers. Manifest is nil when no skill is involved. Where a later layer
// replaces an earlier one, only the last that asks is compared with the ceiling.
//
// The snapshot is always complete: a field keeps the value of the layers before if a layer's value
// was refused.
// Errors are fault.InvalidRequest for values that are invalid under any policy (fields
// policy_overrides.<name> or manifest.<name>), else fault.PolicyDenied with every violation, each
// field by its public name.
func (r *Resolver) Resolve(manifest *Layer, request Layer, host Host) (Snapshot, error) {
	s := r.withOwn(wantedImage(manifest, request)).base(host)
	s.secrets = r.secrets
	var bad, denied []fault.Field
	for _, l := range []struct {
		name, prefix string
		layer        *Layer
	}{{LayerManifest, "manifest.", manifest}, {LayerRequest, "policy_overrides.", &request}} {
		if l.layer == nil {
			continue
		}
		bad = append(bad, Check(*l.layer, l.prefix)...)
		for _, f := range fields {
			if f.check(l.layer) != "" {
				continue
			}
			name, v := f.name(), f.apply(l.layer, l.name, &s)
			if f.replaces() && (v != nil || s.Fields[name].Layer == l.name) { // the layers before no longer count
				denied = slices.DeleteFunc(denied, func(earlier fault.Field) bool { return earlier.Field == name })
			}
			if v != nil {
				denied = append(denied, *v)
			}
		}
	}
	s.settle()
	s.secrets = nil
	switch {
	case len(bad) > 0:
		return s, &fault.Error{Code: fault.InvalidRequest, Message: sentence("fields of the policy make no sense", bad), Fields: bad}
	case len(denied) > 0:
		return s, refusal(denied)
	}
	return s, nil
}

func refusal(denied []fault.Field) error {
	return &fault.Error{Code: fault.PolicyDenied, Message: sentence("fields are not allowed by the policy", denied), Fields: denied}
}

// sentence is the message for a list of fields; what describes several.
func sentence(what string, list []fault.Field) string {
	parts := make([]string, len(list))
	for i, f := range list {
		parts[i] = f.Field + ": " + f.Reason
	}
	if len(list) == 1 {
		return parts[0]
	}
	return fmt.Sprintf("%d %s. %s", len(list), what, strings.Join(parts, ". "))
}

// clone copies a layer, so that its caller cannot change it any more.
func (l Layer) clone() Layer {
	l.NetMode, l.Image = copied(l.NetMode), copied(l.Image)
	l.Limits = l.Limits.clone()
	l.NetAllow, l.NetCredentials = slices.Clone(l.NetAllow), slices.Clone(l.NetCredentials)
	l.FSRead, l.FSWrite = slices.Clone(l.FSRead), slices.Clone(l.FSWrite)
	return l
}

func (l Limits) clone() Limits {
	for _, f := range fields {
		if n, ok := f.(numeric); ok {
			n.detach(&l)
		}
	}
	return l
}

func copied(p *string) *string {
	if p == nil {
		return nil
	}
	return new(*p)
}
