package policy

import (
	"fmt"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/whole"
)

// The network modes. A container never has a network: NetAllowlist lets its processes reach the
// hosts of net.allow through a proxy.
const (
	NetNone      = "none"
	NetAllowlist = "allowlist"
)

// netMode is the field of the network mode. A later layer may choose NetAllowlist where the
// settings allow a host, unless a layer between them has chosen NetNone.
type netMode struct{ common[string, string] }

func (netMode) replaces() bool { return false }

func (netMode) ask(v *Values, l *Layer) { l.NetMode = new(v.NetMode) }

func (netMode) check(l *Layer) string {
	if l.NetMode != nil && *l.NetMode == "" {
		return "is empty; leave it out, or say " + NetNone
	}
	return ""
}

func (n netMode) base(r *Resolver, _ Host, s *Snapshot) {
	f := Field{Layer: LayerDefault, Ceiling: NetNone, CeilingFrom: LayerDefault}
	if len(r.settings.NetAllow) > 0 {
		f.Ceiling, f.CeilingFrom = NetAllowlist, LayerSettings
	}
	value := NetNone
	if m := r.settings.NetMode; m != nil {
		value, f.Layer = *m, LayerSettings
		if value != f.Ceiling {
			value = NetNone // New has refused anything else
		}
	}
	n.set(s, value, f)
}

func (n netMode) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	if l.NetMode == nil {
		return nil
	}
	asked, f := *l.NetMode, s.Fields[n.public]
	if asked == NetNone || asked == f.Ceiling {
		f.Layer = layer
		if layer == LayerManifest && asked == NetNone && f.Ceiling == NetAllowlist {
			f.Ceiling, f.CeilingFrom = NetNone, LayerManifest
		}
		n.set(s, asked, f)
		return nil
	}
	why := fmt.Sprintf("%q is not allowed; %s %q or %q", whole.Shorten(asked), askFor(layer), NetNone, NetAllowlist)
	if asked == NetAllowlist {
		why = fmt.Sprintf("%q is not allowed; %s %q, or have the operator list the hosts that jobs may reach in %s%s",
			asked, askFor(layer), NetNone, settingsPrefix, FieldNetAllow)
		if f.CeilingFrom == LayerManifest {
			why = fmt.Sprintf("%q is not allowed: the skill's manifest has %q; %s that", asked, NetNone, askFor(layer))
		}
	}
	return &fault.Field{Field: n.public, Asked: asked, Ceiling: f.Ceiling, Layer: layer, Reason: why}
}

// netAllow is the list of hosts, which a later layer only narrows.
type netAllow struct{ common[[]string, []string] }

// maxHostRules is how many rules a list may have. A snapshot, which has the list twice, fits into a
// row with them.
const maxHostRules = 100

func (netAllow) replaces() bool { return false }

// ask leaves no nil, which would ask for nothing.
func (netAllow) ask(v *Values, l *Layer) { l.NetAllow = append([]string{}, v.NetAllow...) }

func (netAllow) check(l *Layer) string {
	if len(l.NetAllow) > maxHostRules {
		return fmt.Sprintf("has %d rules, and %d are allowed; use a rule such as *.example.org for several hosts", len(l.NetAllow), maxHostRules)
	}
	for _, text := range l.NetAllow {
		if _, err := ParseHostRule(text); err != nil {
			return err.Error()
		}
	}
	return ""
}

// HostRules parses a list that was checked. Texts that are no rules allow nothing.
func HostRules(list []string) []HostRule {
	rules := make([]HostRule, 0, len(list))
	for _, text := range list {
		if r, err := ParseHostRule(text); err == nil && !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	return rules
}

func (n netAllow) base(r *Resolver, _ Host, s *Snapshot) {
	value, layer := []string{}, LayerDefault
	if r.settings.NetAllow != nil {
		value, layer = texts(HostRules(r.settings.NetAllow)), LayerSettings
	}
	n.set(s, value, Field{Layer: layer, Ceiling: slices.Clone(value), CeilingFrom: layer})
}

// texts returns the rules in their usual form; never nil.
func texts(rules []HostRule) []string {
	out := make([]string, len(rules))
	for i, r := range rules {
		out[i] = r.String()
	}
	return out
}

func (n netAllow) apply(l *Layer, layer string, s *Snapshot) *fault.Field {
	if l.NetAllow == nil {
		return nil
	}
	asked, granted := HostRules(l.NetAllow), HostRules(s.Values.NetAllow)
	if extra := uncovered(asked, granted); len(extra) > 0 {
		have := "nothing"
		if len(granted) > 0 {
			have = whole.Shorten(strings.Join(texts(granted), ", "))
		}
		return &fault.Field{
			Field: n.public, Asked: texts(asked), Ceiling: texts(granted), Layer: layer,
			Reason: fmt.Sprintf("%s was not granted by the layers before, and a layer can only narrow; %s no more than %s, or have the operator "+
				"add it to %s%s", whole.Shorten(strings.Join(texts(extra), ", ")), askFor(layer), have, settingsPrefix, n.public),
		}
	}
	f := s.Fields[n.public]
	f.Layer = layer
	n.set(s, texts(asked), f)
	return nil
}

// uncovered returns the rules that allow more than the granted ones.
func uncovered(rules, granted []HostRule) (extra []HostRule) {
	for _, rule := range rules {
		if !slices.ContainsFunc(granted, func(g HostRule) bool { return g.covers(rule) }) {
			extra = append(extra, rule)
		}
	}
	return extra
}
