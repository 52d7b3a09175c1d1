package policy

import (
	"cmp"
	"slices"
	"strings"
)

// Denied is a violation as the message of an error of Resolve tells it.
type Denied struct {
	Field  string // its public name
	Asked  string
	Reason string // with the remedy
	Layer  string // that asked, LayerManifest or LayerRequest; empty for messages of older versions that do not tell
}

// DeniedFields returns the public names of the fields that ParseDenied finds.
func DeniedFields(message string) (names []string) {
	for _, d := range ParseDenied(message) {
		names = append(names, d.Field)
	}
	return names
}

// ParseDenied returns the violations in the message of a fault.PolicyDenied of Resolve, in the
// message's order: records have no more than the message. It returns nil for any other text. Values
// come from requests, so a value may imitate a further violation: show the message, too.
func ParseDenied(message string) []Denied {
	type place struct{ at, reason int }
	var found []place
	for _, f := range fields {
		label := f.name() + ": "
		if strings.HasPrefix(message, label) {
			found = append(found, place{0, len(label)})
		} else if i := strings.Index(message, ". "+label); i >= 0 {
			found = append(found, place{i + 2, i + 2 + len(label)})
		}
	}
	slices.SortFunc(found, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	var out []Denied
	for i, p := range found {
		end := len(message)
		if i+1 < len(found) {
			end = found[i+1].at - len(". ")
		}
		d := Denied{Field: message[p.at : p.reason-len(": ")], Reason: message[p.reason:end]}
		for _, verb := range []string{" is ", " was "} {
			if asked, _, ok := strings.Cut(d.Reason, verb); ok && (d.Asked == "" || len(asked) < len(d.Asked)) {
				d.Asked = asked
			}
		}
		switch rest := strings.TrimPrefix(d.Reason, d.Asked); {
		case strings.Contains(rest, askFor(LayerManifest)), strings.Contains(rest, askInstead(LayerManifest)):
			d.Layer = LayerManifest
		case strings.Contains(rest, "; "+askFor(LayerRequest)):
			d.Layer = LayerRequest
		}
		out = append(out, d)
	}
	return out
}
