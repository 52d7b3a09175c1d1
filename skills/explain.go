package skills

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// explain turns the library's tree of errors into findings. The library's own words are not used: they quote the value, which may be a
// secret, and they speak of schemas, which whoever calls a tool has not seen.
func explain(wrong *jsonschema.ValidationError, schema, value any) []finding {
	x := explainer{schema: schema, value: value}
	x.walk(wrong)
	return sortFindings(x.found)
}

// sortFindings puts them into the order of the text's names and drops repetitions: the library walks Go maps.
func sortFindings(found []finding) []finding {
	slices.SortFunc(found, func(a, b finding) int {
		if c := slices.Compare(a.path, b.path); c != 0 {
			return c
		}
		return strings.Compare(a.reason, b.reason)
	})
	return slices.CompactFunc(found, func(a, b finding) bool { return slices.Equal(a.path, b.path) && a.reason == b.reason })
}

type explainer struct {
	schema, value any
	found         []finding
}

func (x *explainer) add(path []string, format string, args ...any) {
	x.found = append(x.found, finding{path, fmt.Sprintf(format, args...)})
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

func (x *explainer) walk(e *jsonschema.ValidationError) {
	where := tokens(e.AbsoluteKeywordLocation)
	keyword := ""
	if len(where) > 0 {
		keyword = where[len(where)-1]
	}
	path := instanceTokens(e.InstanceLocation)
	switch {
	case len(e.Causes) > 0 && (keyword == "anyOf" || keyword == "oneOf") && e.Message == keyword+" failed":
		x.add(path, "%s", x.alternatives(e, path))
	case len(e.Causes) > 0 && keyword == "minContains":
		x.add(path, "%s", x.contains(where))
	case len(e.Causes) > 0:
		for _, cause := range e.Causes {
			x.walk(cause)
		}
	default:
		x.leaf(where, path)
	}
}

// alternatives says what the forms are that the value could have had.
func (x *explainer) alternatives(e *jsonschema.ValidationError, path []string) string {
	var forms []string
	for _, cause := range e.Causes {
		one := explainer{schema: x.schema, value: x.value}
		one.walk(cause)
		if len(one.found) == 0 {
			continue
		}
		first := sortFindings(one.found)[0]
		reason := first.reason
		if len(first.path) > len(path) {
			reason = fieldName("", x.value, path, first.path) + " " + reason
		}
		if !slices.Contains(forms, reason) {
			forms = append(forms, reason)
		}
	}
	const most = 4
	if len(forms) > most {
		forms = append(forms[:most], "or another form")
	}
	return "fits none of the forms it can have: " + strings.Join(forms, "; or ")
}

func (x *explainer) contains(where []string) string {
	parent, _ := at(x.schema, where[:len(where)-1])
	schema, _ := parent.(map[string]any)
	n := "1"
	if min, ok := schema["minContains"].(json.Number); ok {
		n = min.String()
	}
	return "must hold at least " + counted1(n, "item") + " of the form that the skill's schema describes under contains"
}

// leaf explains one keyword that failed. where is its place in the schema, path that of the value.
func (x *explainer) leaf(where, path []string) {
	said, ok := at(x.schema, where)
	if forbidden, isBool := said.(bool); ok && isBool && !forbidden && !ends(where, "additionalProperties") {
		x.add(path, "is not known; leave it out") // the schema is false: unevaluatedProperties, or a property that must not be there
		return
	}
	keyword := ""
	if len(where) > 0 {
		keyword = where[len(where)-1]
	}
	if len(where) > 2 && slices.Contains([]string{"dependentRequired", "dependencies"}, where[len(where)-3]) {
		if name, ok := said.(string); ok {
			x.add(append(slices.Clone(path), name), "is missing; %s needs it", clip(where[len(where)-2]))
			return
		}
	}
	var parent map[string]any
	if len(where) > 0 {
		p, _ := at(x.schema, where[:len(where)-1])
		parent, _ = p.(map[string]any)
	}
	value, _ := at(x.value, path)
	switch keyword {
	case "required":
		x.missing(said, value, path)
	case "additionalProperties":
		x.unknown(parent, value, path)
	default:
		prefix := ""
		if slices.Contains(where, "propertyNames") {
			prefix = "has a name that "
		}
		x.add(path, "%s", prefix+sentence(keyword, said, parent, value))
	}
}

func ends(where []string, keyword string) bool {
	return len(where) > 0 && where[len(where)-1] == keyword
}

func (x *explainer) missing(said, value any, path []string) {
	object, _ := value.(map[string]any)
	names, _ := said.([]any)
	for _, n := range names {
		name, _ := n.(string)
		if _, there := object[name]; !there {
			x.add(append(slices.Clone(path), name), "is missing")
		}
	}
}

func (x *explainer) unknown(schema map[string]any, value any, path []string) {
	object, _ := value.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	patterns, _ := schema["patternProperties"].(map[string]any)
	known := make([]string, 0, len(properties))
	for name := range properties {
		known = append(known, name)
	}
	slices.Sort(known)
	hint := "leave it out"
	switch {
	case len(known) > 0 && len(known) <= 12 && len(patterns) == 0:
		hint = "there is " + listed(known)
	case len(known) == 0 && len(patterns) == 0:
		hint = "the object is to be empty"
	}
	for name := range object {
		if _, ok := properties[name]; !ok && !matchesAny(patterns, name) {
			x.add(append(slices.Clone(path), name), "is not known; %s", hint)
		}
	}
}

// schemaFindings is for a schema that does not compile: the findings are about its author's own words, so the library's are used.
func schemaFindings(err error) []finding {
	var wrong *jsonschema.ValidationError
	var loop jsonschema.InfiniteLoopError
	switch {
	case errors.Is(err, errFetch):
		return []finding{{nil, errFetch.Error()}}
	case errors.As(err, &wrong):
		var found []finding
		collect(wrong, &found)
		return sortFindings(found)
	case errors.As(err, &loop):
		return []finding{{nil, "refers to itself without end: " + clip(strings.TrimPrefix(loop.Error(), "jsonschema: infinite loop "+schemaURL))}}
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, "compilation failed: "); ok {
		text = after
	}
	return []finding{{nil, "is no valid JSON Schema: " + clip(strings.ReplaceAll(text, schemaURL, ""))}}
}

// collect takes the leaves of the tree; of alternatives, the first one that is no mere difference of type.
func collect(e *jsonschema.ValidationError, found *[]finding) {
	causes := e.Causes
	if ends(tokens(e.AbsoluteKeywordLocation), "anyOf") && len(causes) > 1 {
		causes = causes[:1]
	}
	if len(causes) == 0 {
		*found = append(*found, finding{instanceTokens(e.InstanceLocation), "is no valid JSON Schema: " + clip(e.Message)})
	}
	for _, cause := range causes {
		collect(cause, found)
	}
}
