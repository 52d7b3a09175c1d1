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

// maxFindings is how much a report holds: more than anybody reads, so that a number can be given.
const maxFindings = 1000

// report says what is wrong with a value, for a reader who may not have seen the schema. It does not repeat the value, which may be a secret.
// Each sentence is short, whatever the schema says.
type report struct {
	doc   any // the schema as it was written
	most  int // findings
	found []Finding
}

// full reports whether there is room for nothing more. nil, on which it may be called, is never full.
func (r *report) full() bool { return r != nil && len(r.found) >= r.most }

// below is the path of a part; nil for a nil report.
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

// sortFindings puts them into the order of the text's names and drops repetitions: the library walks Go maps.
func sortFindings(found []Finding) []Finding {
	slices.SortFunc(found, func(a, b Finding) int {
		if c := slices.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	return slices.CompactFunc(found, func(a, b Finding) bool { return slices.Equal(a.Path, b.Path) && a.Reason == b.Reason })
}

// tokens reads the library's locations: JSON pointers whose tokens are escaped like URLs besides.
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
		list[n] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return list
}

// instanceTokens reads a location within the value: an empty name is a token too there.
func instanceTokens(location string) []string {
	if location == "" {
		return nil
	}
	return tokens("#" + "/" + strings.TrimPrefix(location, "/"))
}

// alternatives says what the forms are that the value could have had.
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

// leaf explains a keyword of the schema, or that the schema is false.
func (r *report) leaf(a *application, keyword []string) {
	where := append(tokens(a.s.Location), keyword...)
	if len(keyword) == 0 {
		r.add(a.path, "is not known; leave it out") // unevaluatedProperties, or a property that must not be there
		return
	}
	said, _ := At(r.doc, where)
	switch keyword[0] {
	case "dependentRequired", "dependencies":
		if name, ok := said.(string); ok {
			r.add(append(slices.Clip(a.path), name), "is missing; %s needs it", Clip(keyword[1]))
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
		r.add(a.path, "%s", prefix+sentence(keyword[0], said, parent, a.v))
	}
}

// unknown is for a property that additionalProperties refuses.
func (r *report) unknown(a *application, name string) {
	hint := "leave it out"
	switch known := len(a.s.Properties); {
	case len(a.s.PatternProperties) > 0:
	case known == 0:
		hint = "the object is to be empty"
	case known <= 12:
		hint = "there is " + listed(slices.Sorted(maps.Keys(a.s.Properties)))
	}
	r.add(append(slices.Clip(a.path), name), "is not known; %s", hint)
}

// schemaFindings is for a schema that does not compile: the findings are about its author's own words, so the library's are used.
func schemaFindings(err error) []Finding {
	var wrong *jsonschema.ValidationError
	var loop jsonschema.InfiniteLoopError
	switch {
	case errors.Is(err, errFetch):
		return []Finding{{nil, errFetch.Error()}}
	case errors.As(err, &wrong):
		var found []Finding
		collect(wrong, &found)
		return sortFindings(found)
	case errors.As(err, &loop):
		return []Finding{{nil, "refers to itself without end: " + Clip(strings.TrimPrefix(loop.Error(), "jsonschema: infinite loop "+schemaURL))}}
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, "compilation failed: "); ok {
		text = after
	}
	return []Finding{{nil, "is no valid JSON Schema: " + Clip(strings.ReplaceAll(text, schemaURL, ""))}}
}

// collect takes the leaves of the tree; of alternatives, the first one that is no mere difference of type.
func collect(e *jsonschema.ValidationError, found *[]Finding) {
	causes := e.Causes
	if strings.HasSuffix(e.AbsoluteKeywordLocation, "/anyOf") && len(causes) > 1 {
		causes = causes[:1]
	}
	if len(causes) == 0 {
		*found = append(*found, Finding{instanceTokens(e.InstanceLocation), "is no valid JSON Schema: " + Clip(e.Message)})
	}
	for _, cause := range causes {
		collect(cause, found)
	}
}
