package schema

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// maxFindings is the capacity of a report: more than a person reads, but enough to say how many
// there are.
const maxFindings = 1000

// report collects the findings about a value, for a reader who may not have seen the schema. It
// never repeats the value, which may be a secret. Sentences stay short even if the schema holds
// long values.
type report struct {
	doc   any // the schema as it was written
	most  int // findings
	found []Finding
}

// full reports whether there is no room left. A nil report is never full.
func (r *report) full() bool { return r != nil && len(r.found) >= r.most }

// below returns the path of a part; nil for a nil report.
func (r *report) below(path []string, token string) []string {
	if r == nil {
		return nil
	}
	return append(slices.Clip(path), token)
}

func (r *report) add(path []string, format string, args ...any) {
	if !r.full() {
		r.found = append(r.found, Finding{path, fmt.Sprintf(format, args...)})
	}
}

// sortFindings orders findings by path and drops repetitions. The evaluation walks Go maps, whose
// order is random.
func sortFindings(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		if c := slices.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	return slices.CompactFunc(found, func(a, b Finding) bool { return slices.Equal(a.Path, b.Path) && a.Reason == b.Reason })
}

// tokens parses the library's locations: JSON pointers whose tokens are also URL-escaped.
func tokens(location string) []string {
	if _, fragment, ok := strings.Cut(location, "#"); ok {
		location = fragment
	}
	location = strings.TrimPrefix(location, "/")
	if location == "" {
		return nil
	}
	list := strings.Split(location, "/")
	for n, token := range list {
		if plain, err := url.PathUnescape(token); err == nil {
			token = plain
		}
		list[n] = unescape(token)
	}
	return list
}

// instanceTokens parses a location within the value, where an empty name is a token too.
func instanceTokens(location string) []string {
	if location == "" {
		return nil
	}
	return tokens("#/" + strings.TrimPrefix(location, "/"))
}

// alternatives describes the forms that the value could have had.
func (r *report) alternatives(a *application, list []*jsonschema.Schema) {
	const most, few, long = 4, 20, 1000
	var forms []string
	for _, one := range list {
		of := &report{doc: r.doc, most: few}
		a.apply(one, a.v, nil, of, a.path)
		if len(of.found) == 0 {
			continue
		}
		first := sortFindings(of.found)[0]
		reason := first.Reason
		if len(first.Path) > len(a.path) {
			reason = FieldName("", a.v, first.Path[len(a.path):]) + " " + reason
		}
		if slices.Contains(forms, reason) {
			continue
		}
		if len(forms) == most {
			forms = append(forms, "or another form")
			break
		}
		forms = append(forms, reason)
	}
	r.add(a.path, "%s", clipTo("fits none of the forms it can have: "+strings.Join(forms, "; or "), long))
}

// keyword explains a keyword of the schema, or with an empty path that the schema is false.
func (r *report) keyword(a *application, path []string) {
	if len(path) == 0 {
		r.add(a.path, "is not known; leave it out") // unevaluatedProperties, or a property whose schema is false
		return
	}
	where := append(tokens(a.s.Location), path...)
	said, _ := At(r.doc, where)
	switch path[0] {
	case "dependentRequired", "dependencies":
		if name, ok := said.(string); ok {
			r.add(append(slices.Clip(a.path), name), "is missing; %s needs it", Clip(path[1]))
		}
	case "required":
		object, _ := a.v.(map[string]any)
		for _, name := range a.s.Required {
			if !has(object, name) {
				r.add(append(slices.Clip(a.path), name), "is missing")
			}
		}
	default:
		holder, _ := At(r.doc, where[:len(where)-1])
		parent, _ := holder.(map[string]any)
		prefix := ""
		if slices.Contains(where, "propertyNames") {
			prefix = "has a name that "
		}
		r.add(a.path, "%s", prefix+sentence(path[0], said, parent, a.v))
	}
}

// unknownProperty is for a property that additionalProperties refuses.
func (r *report) unknownProperty(a *application, name string) {
	hint := "leave it out"
	switch known := len(a.s.Properties); {
	case len(a.s.PatternProperties) > 0:
	case known == 0:
		hint = "the object must be empty"
	case known <= 16:
		hint = "there is " + listed(slices.Sorted(maps.Keys(a.s.Properties)))
	}
	r.add(append(slices.Clip(a.path), name), "is not known; %s", hint)
}

// schemaFindings explains why a schema does not compile. The reader is its author, so the library's
// words serve.
func schemaFindings(err error) []Finding {
	var invalid *jsonschema.ValidationError
	var loop jsonschema.InfiniteLoopError
	switch {
	case errors.Is(err, errFetch):
		return []Finding{{Reason: errFetch.Error()}}
	case errors.As(err, &invalid):
		var found []Finding
		collectLeaves(invalid, &found)
		return sortFindings(found)
	case errors.As(err, &loop):
		return []Finding{{Reason: "refers to itself without end: " +
			Clip(strings.TrimPrefix(loop.Error(), "jsonschema: infinite loop "+schemaURL))}}
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, "compilation failed: "); ok {
		text = after
	}
	return []Finding{{Reason: "is no valid JSON Schema: " + Clip(strings.ReplaceAll(text, schemaURL, ""))}}
}

// collectLeaves adds the leaves of the tree of errors. Of an anyOf, it adds only the leaves of the
// first alternative.
func collectLeaves(e *jsonschema.ValidationError, found *[]Finding) {
	causes := e.Causes
	if strings.HasSuffix(e.AbsoluteKeywordLocation, "/anyOf") && len(causes) > 1 {
		causes = causes[:1]
	}
	if len(causes) == 0 {
		*found = append(*found, Finding{instanceTokens(e.InstanceLocation), "is no valid JSON Schema: " + Clip(e.Message)})
	}
	for _, cause := range causes {
		collectLeaves(cause, found)
	}
}
