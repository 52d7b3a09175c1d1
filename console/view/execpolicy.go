package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/policy"
)

// PolicyField is a field of the policy with the layer that set it.
type PolicyField struct {
	Name, Value, Layer, Ceiling, From, Clamped string

	First   string     // the layer that set it in the exec that this one replays, if it is the replay's value; empty: this is no such field
	Refused *Violation // for which the request was refused; nil: it was not
}

// Policy returns the policy on record by name; nil for an exec without one.
func Policy(rec audit.Record) []PolicyField {
	refused := map[string]*Violation{}
	for _, d := range violations(rec) {
		refused[d.Field] = &d
	}
	var out []PolicyField
	for name, f := range fieldsOnRecord(rec) {
		field := PolicyField{
			Name: name, Value: plain(f.Value), Layer: layerName(f.Layer), Ceiling: plain(f.Ceiling), From: f.CeilingFrom,
			Refused: refused[name],
		}
		if f.ClampedFrom != nil {
			field.Clamped = plain(f.ClampedFrom)
		}
		out = append(out, field)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// fieldsOnRecord returns the fields of the policy on record, of any version: fields that this
// version does not know are shown, too.
func fieldsOnRecord(rec audit.Record) map[string]policy.Field {
	var snapshot struct {
		Fields map[string]policy.Field `json:"fields"`
	}
	if json.Unmarshal(rec.PolicySnapshot, &snapshot) != nil {
		return nil
	}
	return snapshot.Fields
}

// layerName is the name of a layer for readers.
func layerName(layer string) string {
	if layer == policy.LayerManifest {
		return "skill"
	}
	return layer
}

// byDefault returns the fields that a layer has set, was refused or was lowered, and those with
// the default.
func byDefault(fields []PolicyField) (set, others []PolicyField) {
	for _, f := range fields {
		if cmp.Or(f.First, f.Layer) == policy.LayerDefault && f.Refused == nil && f.Clamped == "" {
			others = append(others, f)
		} else {
			set = append(set, f)
		}
	}
	return set, others
}

// WithReplayedLayers adds the layers of the exec that the one with these fields replays. A replay
// asks for the values of its first exec, so that its own record says only that.
func WithReplayedLayers(fields []PolicyField, first *audit.Record) []PolicyField {
	if first == nil {
		return fields
	}
	before := map[string]PolicyField{}
	for _, f := range Policy(*first) {
		before[f.Name] = f
	}
	for i := range fields {
		f := &fields[i]
		if was, ok := before[f.Name]; ok && f.Layer == policy.LayerRequest && was.Value == f.Value {
			f.First = was.Layer
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

// inUnits returns a number of a policy's field in units for readers, and the number as the policy
// has it if the text does not begin with it; text is the value itself where there is no unit.
func inUnits(name, value string) (text, raw string) {
	n, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil || strings.Trim(value, "0123456789.") != "" || n >= 1<<53:
		return value, ""
	case strings.HasSuffix(name, "_ms"):
		text = ui.Duration(int64(n))
	case strings.Contains(name, "_bytes"):
		text = ui.Bytes(int64(n))
	case strings.HasSuffix(name, "_mb") && n < 1<<33:
		text = mib(n)
	case name == policy.FieldCPUCores:
		text = cores(n)
	default:
		return value, ""
	}
	if strings.HasPrefix(text, value+" ") {
		return text, ""
	}
	return text, value
}

// refusals are the reasons of records with the status rejected.
var refusals = []string{
	string(audit.PolicyDenied), string(audit.Forbidden), string(audit.PathRefused), string(audit.InputRefused),
	string(audit.RefusalsOmitted),
}

// Violation is a field of the policy for which a request was refused.
type Violation struct {
	policy.Denied
	Ceiling, From string // of the record's policy; empty: it has none
}

// violations returns the fields that policy refused; nil if the refusal has another reason.
func violations(rec audit.Record) []Violation {
	if rec.ErrorReason != audit.PolicyDenied {
		return nil
	}
	fields := fieldsOnRecord(rec)
	var out []Violation
	for _, d := range policy.ParseDenied(rec.Detail) {
		if plain, err := strconv.Unquote(d.Asked); err == nil { // as the ceiling is shown
			d.Asked = plain
		}
		f := fields[d.Field]
		out = append(out, Violation{Denied: d, Ceiling: plain(f.Ceiling), From: f.CeilingFrom})
	}
	return out
}

// askedImage returns the image that was asked for, and the text that says if it was refused.
func askedImage(rec audit.Record) (image, shown string) {
	for _, d := range violations(rec) {
		if d.Field == policy.FieldImage {
			return d.Asked, ui.Cut(d.Asked, 200) + " (refused)"
		}
	}
	return rec.Image, rec.Image
}
