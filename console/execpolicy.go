package console

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/policy"
)

// policyField is a field of the policy with the layer that set it.
type policyField struct {
	name, value, layer, ceiling, from, clamped string

	first   string     // the layer that set it in the exec that this one replays, if it is the replay's value; empty: this is no such field
	refused *violation // for which the request was refused; nil: it was not
}

// policyOf returns the policy on record by name; nil for an exec without one.
func policyOf(rec audit.Record) []policyField {
	var snapshot struct { // of any version: a field that this one does not know is shown, too
		Fields map[string]policy.Field `json:"fields"`
	}
	if len(rec.PolicySnapshot) == 0 || json.Unmarshal(rec.PolicySnapshot, &snapshot) != nil {
		return nil
	}
	refused := map[string]*violation{}
	for _, d := range violations(rec) {
		refused[d.Field] = &d
	}
	var out []policyField
	for name, f := range snapshot.Fields {
		field := policyField{name: name, value: plain(f.Value), layer: layerName(f.Layer), ceiling: plain(f.Ceiling), from: f.CeilingFrom, refused: refused[name]}
		if f.ClampedFrom != nil {
			field.clamped = plain(f.ClampedFrom)
		}
		out = append(out, field)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].name < out[j].name })
	return out
}

// layerName is the name of a layer for readers.
func layerName(layer string) string {
	if layer == policy.LayerManifest {
		return "skill"
	}
	return layer
}

// withFirst adds the layers of the exec that the one with these fields replays. A replay asks for the values of its first exec, so that its own
// record says only that.
func withFirst(fields []policyField, first *audit.Record) []policyField {
	if first == nil {
		return fields
	}
	before := map[string]policyField{}
	for _, f := range policyOf(*first) {
		before[f.name] = f
	}
	for i := range fields {
		f := &fields[i]
		if was, ok := before[f.name]; ok && f.layer == policy.LayerRequest && was.value == f.value {
			f.first = was.layer
		}
	}
	return fields
}

// plain returns a value of JSON for a reader.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		words := make([]string, len(v))
		for i, item := range v {
			words[i] = plain(item)
		}
		return strings.Join(words, ", ")
	case float64:
		if v == float64(int64(v)) {
			return fmt.Sprint(int64(v))
		}
		return fmt.Sprint(v)
	}
	return fmt.Sprint(v)
}

// inUnits returns a policy's number of bytes, MiB or milliseconds in units for readers; empty for other fields, and for a number that needs none.
func inUnits(name, value string) string {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return ""
	}
	switch {
	case strings.HasSuffix(name, "_ms") && n >= 1000:
		return ui.Duration(n)
	case strings.Contains(name, "_bytes") && n >= 1024:
		return ui.Bytes(n)
	case strings.HasSuffix(name, "_mb") && n >= 1024 && n < 1<<40:
		return ui.Bytes(n << 20)
	}
	return ""
}
