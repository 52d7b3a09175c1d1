package schema

import (
	"encoding/json"
	"iter"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

func (a *application) hasType() bool {
	if len(a.s.Types) == 0 {
		return true
	}
	is := typeOf(a.v)
	for _, t := range a.s.Types {
		if t == is {
			return true
		}
		if n, ok := a.v.(json.Number); ok && t == "integer" {
			a.spend(4 * len(n))
			if IsInteger(n) {
				return true
			}
		}
	}
	return false
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// values evaluates const and enum.
func (a *application) values() bool {
	fits := true
	if len(a.s.Constant) > 0 && !a.equal(a.v, a.s.Constant[0]) {
		fits = a.fail("const")
	}
	same := func(one any) bool { return a.equal(a.v, one) }
	if len(a.s.Enum) > 0 && !slices.ContainsFunc(a.s.Enum, same) {
		fits = a.fail("enum")
	}
	return fits
}

func (a *application) text() bool {
	text, ok := a.v.(string)
	if !ok {
		return true
	}
	fits := true
	if s := a.s; s.MinLength != -1 || s.MaxLength != -1 {
		a.spend(len(text))
		n := utf8.RuneCountInString(text)
		fits = a.atLeast("minLength", s.MinLength, n)
		fits = a.atMost("maxLength", s.MaxLength, n) && fits
	}
	if a.s.Pattern != nil && !a.match(a.s.Pattern, text) {
		fits = a.fail("pattern")
	}
	return fits
}

// The library's bounds are -1 where there is none, and another negative number where they are too
// large for an int.
func (a *application) atLeast(keyword string, bound, n int) bool {
	return bound == -1 || bound >= 0 && n >= bound || a.fail(keyword)
}

func (a *application) atMost(keyword string, bound, n int) bool {
	return bound < 0 || n <= bound || a.fail(keyword)
}

func (a *application) number() bool {
	text, ok := a.v.(json.Number)
	s := a.s
	if !ok || s.Minimum == nil && s.ExclusiveMinimum == nil && s.Maximum == nil && s.ExclusiveMaximum == nil && s.MultipleOf == nil {
		return true
	}
	n := a.rat(text)
	fits := true
	for _, bound := range []struct {
		keyword string
		is      *big.Rat
		ok      func(order int) bool
	}{
		{"minimum", s.Minimum, func(order int) bool { return order >= 0 }},
		{"exclusiveMinimum", s.ExclusiveMinimum, func(order int) bool { return order > 0 }},
		{"maximum", s.Maximum, func(order int) bool { return order <= 0 }},
		{"exclusiveMaximum", s.ExclusiveMaximum, func(order int) bool { return order < 0 }},
	} {
		if bound.is != nil && !bound.ok(n.Cmp(bound.is)) {
			fits = a.fail(bound.keyword)
		}
	}
	if s.MultipleOf != nil {
		a.spend(20 * len(text))
		if !new(big.Rat).Quo(n, s.MultipleOf).IsInt() {
			fits = a.fail("multipleOf")
		}
	}
	return fits
}

// rat reads a number that has passed numberFault.
func (e *evaluation) rat(n json.Number) *big.Rat {
	e.spend(200 + 20*len(n))
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return new(big.Rat) // impossible
	}
	return r
}

func (a *application) object() bool {
	object, ok := a.v.(map[string]any)
	if !ok {
		return true
	}
	s := a.s
	fits := a.atLeast("minProperties", s.MinProperties, len(object))
	fits = a.atMost("maxProperties", s.MaxProperties, len(object)) && fits
	a.spend(costOfName * (len(s.Required) + len(s.Properties) + len(s.DependentRequired) + len(s.Dependencies) + len(s.DependentSchemas)))
	if slices.ContainsFunc(s.Required, func(name string) bool { return !has(object, name) }) {
		fits = a.fail("required")
	}
	if len(s.Properties)+len(s.PatternProperties) > 0 || s.PropertyNames != nil || s.AdditionalProperties != nil {
		fits = (fits || a.r != nil) && a.properties(object) && fits
	}
	if len(s.DependentRequired)+len(s.Dependencies)+len(s.DependentSchemas) > 0 {
		fits = (fits || a.r != nil) && a.dependencies(object) && fits
	}
	return fits
}

// names iterates over an object's names, sorted if there is a report: a full report then holds the
// first ones.
func names[T any](a *application, object map[string]T) iter.Seq[string] {
	if a.r == nil {
		return maps.Keys(object)
	}
	a.spend(10 * costOfName * len(object))
	return slices.Values(slices.Sorted(maps.Keys(object)))
}

func (a *application) properties(object map[string]any) bool {
	s, fits := a.s, true
	and := func(ok bool) (goOn bool) {
		fits = fits && ok
		return fits || a.r != nil
	}
	for name := range names(a, s.Properties) {
		part, ok := object[name]
		if !ok {
			continue
		}
		a.evaluated.markName(name)
		if !and(a.applyPart(s.Properties[name], part, name)) {
			return false
		}
	}
	if s.PropertyNames == nil && len(s.PatternProperties) == 0 && s.AdditionalProperties == nil {
		return fits
	}
	allowed, isBool := s.AdditionalProperties.(bool)
	others, _ := s.AdditionalProperties.(*jsonschema.Schema)
	unknown := false
	a.spend(costOfName * len(object))
	for name := range names(a, object) {
		if s.PropertyNames != nil && !and(a.applyPart(s.PropertyNames, name, name)) {
			return false
		}
		known := has(s.Properties, name)
		for pattern, schema := range s.PatternProperties {
			if !a.match(pattern, name) {
				continue
			}
			known = true
			a.evaluated.markName(name)
			if !and(a.applyPart(schema, object[name], name)) {
				return false
			}
		}
		switch {
		case known:
		case others != nil:
			if !and(a.applyPart(others, object[name], name)) {
				return false
			}
		case isBool && !allowed:
			if unknown = true; a.r == nil {
				return false
			}
			a.r.unknownProperty(a, name)
		}
	}
	if s.AdditionalProperties != nil {
		a.evaluated.markAll()
	}
	return fits && !unknown
}

func has[T any](object map[string]T, name string) bool {
	_, ok := object[name]
	return ok
}

func (a *application) dependencies(object map[string]any) bool {
	fits := true
	require := func(keyword, name string, needed []string) {
		if !has(object, name) {
			return
		}
		a.spend(costOfName * len(needed))
		for n, other := range needed {
			if !has(object, other) {
				fits = a.fail(keyword, name, strconv.Itoa(n))
			}
		}
	}
	for name := range names(a, a.s.DependentRequired) {
		require("dependentRequired", name, a.s.DependentRequired[name])
	}
	for name := range names(a, a.s.Dependencies) {
		switch needed := a.s.Dependencies[name].(type) {
		case []string:
			require("dependencies", name, needed)
		case *jsonschema.Schema:
			fits = (!has(object, name) || a.applyHere(needed)) && fits
		}
	}
	for name := range names(a, a.s.DependentSchemas) {
		fits = (!has(object, name) || a.applyHere(a.s.DependentSchemas[name])) && fits
	}
	return fits
}

func (a *application) array() bool {
	list, ok := a.v.([]any)
	if !ok {
		return true
	}
	s := a.s
	fits := a.atLeast("minItems", s.MinItems, len(list))
	fits = a.atMost("maxItems", s.MaxItems, len(list)) && fits
	if s.UniqueItems && !a.unique(list) {
		fits = a.fail("uniqueItems")
	}
	for n, item := range list {
		schema := s.Items2020
		if n < len(s.PrefixItems) {
			schema = s.PrefixItems[n]
		}
		if schema == nil {
			break
		}
		a.evaluated.markItem(n)
		if fits = a.applyPart(schema, item, strconv.Itoa(n)) && fits; !fits && a.r == nil {
			return false
		}
	}
	return a.contains(list) && fits
}

func (a *application) contains(list []any) bool {
	s := a.s
	if s.Contains == nil {
		return true
	}
	matched := 0
	for n, item := range list {
		if a.apply(s.Contains, item, nil, nil, nil) {
			matched++
			a.evaluated.markItem(n)
		}
	}
	fits := a.atLeast("minContains", s.MinContains, matched)
	return a.atMost("maxContains", s.MaxContains, matched) && fits
}

func (a *application) refs() bool {
	fits := a.applyHere(a.s.Ref)
	return a.applyHere(a.s.DynamicRef) && fits
}

// combined evaluates allOf, anyOf, oneOf and not.
func (a *application) combined() bool {
	s, fits := a.s, true
	for _, one := range s.AllOf {
		if fits = a.applyHere(one) && fits; !fits && a.r == nil {
			return false
		}
	}
	matched := 0
	for _, one := range s.AnyOf {
		if a.matches(one) {
			if matched++; a.evaluated == nil {
				break
			}
		}
	}
	if len(s.AnyOf) > 0 && matched == 0 {
		fits = a.failAlternatives(s.AnyOf)
	}
	matched = 0
	for _, one := range s.OneOf {
		if matched < 2 && a.matches(one) {
			matched++
		}
	}
	switch {
	case len(s.OneOf) > 0 && matched == 0:
		fits = a.failAlternatives(s.OneOf)
	case matched > 1:
		fits = a.fail("oneOf")
	}
	if s.Not != nil && a.apply(s.Not, a.v, nil, nil, nil) {
		fits = a.fail("not")
	}
	return fits
}

func (a *application) failAlternatives(list []*jsonschema.Schema) bool {
	if a.r != nil {
		a.r.alternatives(a, list)
	}
	return false
}

func (a *application) conditional() bool {
	switch {
	case a.s.If == nil:
		return true
	case a.matches(a.s.If):
		return a.applyHere(a.s.Then)
	}
	return a.applyHere(a.s.Else)
}
