package schema

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// evaluation is one validation of a value by a compiled schema. All that it does is paid for in advance out of its budget, and it ends when
// its context does. It needs little memory: it keeps nothing of values that fit, and explains no more than a report holds.
type evaluation struct {
	ctx      context.Context
	programs map[string]int // sizes of the patterns' programs

	work      int64 // the budget of a run
	left      int64 // of it
	unchecked int64 // spent since ctx was looked at
	depth     int   // of schemas that are being applied

	turns         *turns // nil: it takes none
	slices        int    // up to freeSlices
	long, working bool   // what it holds of turns
	crowded       bool   // it must end: too many take long
}

// The prices of steps, in units of maxWork.
const (
	costOfSchema = 500     // applying a schema, whatever it says
	costOfName   = 16      // finding a name in an object
	checkEvery   = 1 << 20 // a slice, after which ctx is looked at
	matchEvery   = 1 << 17 // the same of a match that takes long: its units are slower
	maxApplied   = 5_000   // schemas within schemas
)

// errStopped is the panic that ends an evaluation early.
var errStopped = errors.New("too much work")

// run applies the schema with a new budget. done reports whether it came to an end. r collects what is wrong; nil: only the verdict is wanted.
func (e *evaluation) run(s *jsonschema.Schema, value any, r *report) (fits, done bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != any(errStopped) {
				panic(p)
			}
			fits, done = false, false
		}
	}()
	e.left, e.depth = e.work, 0
	e.check()
	return e.apply(s, value, nil, r, nil), true
}

func (e *evaluation) spend(units int) {
	e.left -= int64(units)
	e.unchecked += int64(units)
	if e.left < 0 {
		panic(errStopped)
	}
	if e.unchecked > checkEvery {
		e.check()
	}
}

func (e *evaluation) check() {
	e.unchecked = 0
	if !e.nextSlice() {
		panic(errStopped)
	}
}

// application is a schema and the value that it is applied to.
type application struct {
	*evaluation
	s    *jsonschema.Schema
	v    any
	seen *seen    // which parts of v some schema has looked at; nil: it is not asked for
	r    *report  // nil: only the verdict is wanted
	path []string // of v, for the report
}

// apply reports whether the value fits the schema, and marks in to what was looked at when it does.
func (e *evaluation) apply(s *jsonschema.Schema, v any, to *seen, r *report, path []string) bool {
	if r.full() {
		return false
	}
	if e.depth++; e.depth > maxApplied {
		panic(errStopped)
	}
	e.spend(costOfSchema)
	a := application{e, s, v, to, r, path}
	fits := a.fits(to)
	e.depth--
	return fits
}

func (a *application) fits(to *seen) bool {
	s := a.s
	switch {
	case s.Always != nil && *s.Always:
		return true
	case s.Always != nil:
		return a.fail()
	case !a.hasType():
		return a.fail("type")
	}
	fresh := s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil // what others have looked at does not count
	if fresh {
		a.seen = a.newSeen(a.v)
	}
	fits := true
	for n := range keywords {
		if !a.keyword(n) {
			if fits = false; a.r == nil {
				return false
			}
		}
	}
	if fits && fresh {
		to.merge(a.seen)
	}
	return fits
}

// keywords are in groups, in the order in which they are looked at: what is about parts of the value before what is about all the rest of it.
const keywords = 9

func (a *application) keyword(group int) bool {
	switch group {
	case 0:
		return a.values()
	case 1:
		return a.text()
	case 2:
		return a.number()
	case 3:
		return a.object()
	case 4:
		return a.array()
	case 5:
		return a.refs()
	case 6:
		return a.combined()
	case 7:
		return a.conditional()
	}
	return a.unevaluated()
}

// below applies a schema to a part of the value.
func (a *application) below(s *jsonschema.Schema, part any, token string) bool {
	return a.apply(s, part, nil, a.r, a.r.below(a.path, token))
}

// alike applies a schema that must fit to the same value.
func (a *application) alike(s *jsonschema.Schema) bool {
	return s == nil || a.apply(s, a.v, a.seen, a.r, a.path)
}

// trial finds out whether a schema fits that need not.
func (a *application) trial(s *jsonschema.Schema) bool {
	tried := a.seen.empty()
	a.spend(tried.len() / 64)
	fits := a.apply(s, a.v, tried, nil, nil)
	if fits {
		a.seen.merge(tried)
	}
	return fits
}

// fail reports a keyword of the schema; none: the schema is false.
func (a *application) fail(keyword ...string) bool {
	if a.r != nil {
		a.r.leaf(a, keyword)
	}
	return false
}

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

// values are const and enum.
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

// The library's bounds are -1 where there is none, and another negative number where they are too large for an int.
func (a *application) atLeast(keyword string, bound, n int) bool {
	return bound == -1 || bound >= 0 && n >= bound || a.fail(keyword)
}

func (a *application) atMost(keyword string, bound, n int) bool {
	return bound < 0 || n <= bound || a.fail(keyword)
}

// match matches at the price of the program times the text. A match that may take long ends with the context.
func (e *evaluation) match(re *regexp.Regexp, text string) bool {
	const long = 1 << 22
	program := e.programs[re.String()]
	cost := program * len(text)
	e.spend(costOfName + cost)
	if cost < long {
		return re.MatchString(text)
	}
	matched := re.MatchReader(&interruptible{e: e, rest: text, every: matchEvery/program + 1})
	e.check()
	return matched
}

// interruptible is a text that seems to end when the evaluation must.
type interruptible struct {
	e     *evaluation
	rest  string
	read  int
	every int // so many runes are a slice
}

// ReadRune implements io.RuneReader.
func (t *interruptible) ReadRune() (rune, int, error) {
	if t.read++; t.read%t.every == 0 && !t.e.nextSlice() {
		t.rest = ""
	}
	if t.rest == "" {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRuneInString(t.rest)
	t.rest = t.rest[size:]
	return c, size, nil
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

// rat reads a number, which has passed badNumber.
func (e *evaluation) rat(n json.Number) *big.Rat {
	e.spend(200 + 20*len(n))
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return new(big.Rat) // cannot be
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

// names are an object's: in order for a report, which does not hold all.
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
		a.seen.name(name)
		if !and(a.below(s.Properties[name], part, name)) {
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
		if s.PropertyNames != nil && !and(a.below(s.PropertyNames, name, name)) {
			return false
		}
		known := has(s.Properties, name)
		for pattern, schema := range s.PatternProperties {
			if !a.match(pattern, name) {
				continue
			}
			known = true
			a.seen.name(name)
			if !and(a.below(schema, object[name], name)) {
				return false
			}
		}
		switch {
		case known:
		case others != nil:
			if !and(a.below(others, object[name], name)) {
				return false
			}
		case isBool && !allowed:
			if unknown = true; a.r == nil {
				return false
			}
			a.r.unknown(a, name)
		}
	}
	if s.AdditionalProperties != nil {
		a.seen.all()
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
			fits = (!has(object, name) || a.alike(needed)) && fits
		}
	}
	for name := range names(a, a.s.DependentSchemas) {
		fits = (!has(object, name) || a.alike(a.s.DependentSchemas[name])) && fits
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
		a.seen.item(n)
		if fits = a.below(schema, item, strconv.Itoa(n)) && fits; !fits && a.r == nil {
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
			a.seen.item(n)
		}
	}
	fits := a.atLeast("minContains", s.MinContains, matched)
	return a.atMost("maxContains", s.MaxContains, matched) && fits
}

func (a *application) refs() bool {
	fits := a.alike(a.s.Ref)
	return a.alike(a.s.DynamicRef) && fits
}

// combined are allOf, anyOf, oneOf and not.
func (a *application) combined() bool {
	s, fits := a.s, true
	for _, one := range s.AllOf {
		if fits = a.alike(one) && fits; !fits && a.r == nil {
			return false
		}
	}
	matched := 0
	for _, one := range s.AnyOf {
		if a.trial(one) {
			if matched++; a.seen == nil {
				break
			}
		}
	}
	if len(s.AnyOf) > 0 && matched == 0 {
		fits = a.alternatives(s.AnyOf)
	}
	matched = 0
	for _, one := range s.OneOf {
		if matched < 2 && a.trial(one) {
			matched++
		}
	}
	switch {
	case len(s.OneOf) > 0 && matched == 0:
		fits = a.alternatives(s.OneOf)
	case matched > 1:
		fits = a.fail("oneOf")
	}
	if s.Not != nil && a.apply(s.Not, a.v, nil, nil, nil) {
		fits = a.fail("not")
	}
	return fits
}

func (a *application) alternatives(list []*jsonschema.Schema) bool {
	if a.r != nil {
		a.r.alternatives(a, list)
	}
	return false
}

func (a *application) conditional() bool {
	switch {
	case a.s.If == nil:
		return true
	case a.trial(a.s.If):
		return a.alike(a.s.Then)
	}
	return a.alike(a.s.Else)
}
