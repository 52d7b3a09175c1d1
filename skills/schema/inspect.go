package schema

import (
	"fmt"
	"maps"
	"net/url"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// The keywords of JSON Schema that hold schemas: one, a list of them, or an object of them by name. They are all those at which the library
// looks for schemas.
var (
	holdsSchema = []string{
		"additionalProperties", "unevaluatedProperties", "items", "additionalItems", "unevaluatedItems", "contains", "propertyNames",
		"not", "if", "then", "else", "contentSchema",
	}
	holdsList   = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	holdsByName = []string{"properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies"}
)

// refKeywords hold references.
var refKeywords = []string{"$ref", "$dynamicRef", "$recursiveRef"}

// inspectSchema looks for what this package does not allow in a schema although JSON Schema does: references to anything but a schema of
// the same document, another base for them, another dialect, and more of anything than can be compiled in good time and memory. It returns
// the size of each pattern's program.
//
// It changes the document into one of the same meaning that is cheap to compile: each reference becomes the JSON pointer of its target, in
// the library's own spelling, and anchors are removed. Otherwise the library would compile a target again for every other spelling.
func inspectSchema(doc any) (programs map[string]int, bad []Finding) {
	i := inspector{schemas: map[string]bool{}, anchors: map[string]string{}, programs: map[string]int{}}
	i.look(doc, nil)
	if len(i.bad) == 0 {
		for _, r := range i.refs {
			i.resolve(r)
		}
	}
	return i.programs, i.bad
}

type inspector struct {
	schemas   map[string]bool   // locations
	anchors   map[string]string // locations by name
	refs      []reference
	locations int            // bytes
	programs  map[string]int // sizes by pattern
	program   int            // of all patterns together
	bad       []Finding
}

// reference is a keyword of refKeywords.
type reference struct {
	in      map[string]any
	keyword string
	path    []string // of the schema that it is in
}

func (i *inspector) add(path []string, keyword, format string, args ...any) {
	if len(i.bad) < maxSchemaFindings {
		i.bad = append(i.bad, Finding{append(slices.Clone(path), keyword), fmt.Sprintf(format, args...)})
	}
}

// location is the place of a schema as the library spells it.
func location(path []string) string {
	var b strings.Builder
	b.WriteByte('#')
	for _, token := range path {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(pointerEscape.Replace(token)))
	}
	return b.String()
}

func (i *inspector) look(value any, path []string) {
	if len(i.schemas) > maxSubschemas || i.locations > maxLocations {
		return
	}
	here := location(path)
	i.schemas[here] = true
	i.locations += len(here)
	switch {
	case len(i.schemas) > maxSubschemas:
		i.bad = append(i.bad, Finding{nil, fmt.Sprintf("has more than %d subschemas", maxSubschemas)})
		return
	case i.locations > maxLocations:
		i.bad = append(i.bad, Finding{nil, fmt.Sprintf("has subschemas whose JSON pointers take more than %d bytes together; use shorter names", maxLocations)})
		return
	}
	schema, ok := value.(map[string]any)
	if !ok {
		return
	}
	for _, keyword := range refKeywords {
		switch ref, ok := schema[keyword].(string); {
		case !ok: // the metaschema says what is wrong with it
		case !strings.HasPrefix(ref, "#"):
			i.add(path, keyword, "leads out of the schema: it can refer to its own parts only, as in #/$defs/item; nothing is ever fetched")
		case keyword == "$recursiveRef":
			i.add(path, keyword, "belongs to an older dialect; write $ref")
		default:
			i.refs = append(i.refs, reference{schema, keyword, path})
		}
	}
	i.anchor(schema, path, here)
	if _, ok := schema["$id"].(string); ok {
		i.add(path, "$id", "has to go: it would give references another base, and a schema can refer to its own parts only")
	}
	if _, ok := schema["$vocabulary"]; ok {
		i.add(path, "$vocabulary", "has to go: it belongs to metaschemas, and each name in it costs time")
	}
	if d, ok := schema["$schema"]; ok {
		if s, _ := d.(string); strings.TrimSuffix(s, "#") != dialect {
			i.add(path, "$schema", "must be %s, or be left out: that is the dialect in any case", dialect)
		}
	}
	if p, ok := schema["pattern"].(string); ok {
		i.pattern(append(slices.Clone(path), "pattern"), p)
	}
	for _, keyword := range []string{"type", "required"} {
		i.names(schema[keyword], append(slices.Clone(path), keyword))
	}
	i.below(schema, path)
}

func (i *inspector) anchor(schema map[string]any, path []string, here string) {
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		name, ok := schema[keyword].(string)
		if !ok {
			continue // the metaschema says what is wrong with it
		}
		if other, taken := i.anchors[name]; taken && other != here {
			i.add(path, keyword, "is the name of another schema too")
		}
		i.anchors[name] = here
		delete(schema, keyword)
	}
}

// resolve checks where a reference leads. There is one document only, so that a dynamic reference leads where a static one does.
func (i *inspector) resolve(r reference) {
	ref, _ := r.in[r.keyword].(string)
	target := "#"
	if plain, err := url.PathUnescape(strings.TrimPrefix(ref, "#")); err != nil {
		target = ""
	} else if pointer, ok := strings.CutPrefix(plain, "/"); ok {
		tokens := strings.Split(pointer, "/")
		for n, token := range tokens {
			tokens[n] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		}
		target = location(tokens)
	} else if plain != "" {
		target = i.anchors[plain]
	}
	if !i.schemas[target] {
		i.add(r.path, r.keyword, "leads to no schema: it can name a place of the document where a schema is, as in #/$defs/item, or an $anchor")
		return
	}
	r.in[r.keyword] = target
}

// names looks at a list that is to hold names. The library looks for repetitions, which takes the square of a long list of anything else.
func (i *inspector) names(value any, path []string) {
	const few = 50
	list, _ := value.([]any)
	if len(list) <= few {
		return
	}
	for _, one := range list {
		if _, ok := one.(string); !ok {
			i.add(path[:len(path)-1], path[len(path)-1], "must hold names only")
			return
		}
	}
}

// pattern bounds the program that a regular expression is compiled to.
func (i *inspector) pattern(path []string, p string) {
	parent, last := path[:len(path)-1], path[len(path)-1]
	if len(p) > maxPattern {
		i.add(parent, last, "is longer than %d bytes", maxPattern)
		return
	}
	if i.program > maxPrograms {
		return // said already, and the rest is not worth its price
	}
	re, err := syntax.Parse(p, syntax.Perl)
	if err != nil {
		return // the metaschema says what is wrong with it
	}
	size := programSize(re)
	i.programs[p] = size
	i.program += size
	switch {
	case size > maxProgram:
		i.add(parent, last, "is a pattern that compiles to more than %d instructions; use smaller counts, and maxLength for a length", maxProgram)
	case i.program > maxPrograms:
		i.add(parent, last, "is where the patterns of the schema compile to more than %d instructions together; use smaller counts, and maxLength for lengths", maxPrograms)
	}
}

// programSize is about how many instructions package regexp makes of an expression, before it makes them. A class of many ranges counts for
// several.
func programSize(re *syntax.Regexp) int {
	size := 1
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		return 1 + len(re.Rune)/64
	case syntax.OpRepeat:
		sub := programSize(re.Sub[0])
		if re.Max < 0 {
			return 2 + max(re.Min, 1)*sub
		}
		return re.Max*sub + re.Max - re.Min + 1
	}
	for _, sub := range re.Sub {
		size += 1 + programSize(sub)
	}
	return size
}

func (i *inspector) below(schema map[string]any, path []string) {
	path = slices.Clip(path)
	for _, keyword := range holdsSchema {
		if one, ok := schema[keyword]; ok {
			i.look(one, append(path, keyword))
		}
	}
	for _, keyword := range holdsList {
		list, _ := schema[keyword].([]any)
		for n, one := range list {
			i.look(one, append(path, keyword, strconv.Itoa(n)))
		}
	}
	for _, keyword := range holdsByName {
		named, _ := schema[keyword].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if keyword == "patternProperties" {
				i.pattern(append(path, keyword, name), name)
			}
			i.look(named[name], append(path, keyword, name))
		}
	}
	for _, keyword := range []string{"dependentRequired", "dependencies"} {
		named, _ := schema[keyword].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(named)) {
			i.names(named[name], append(path, keyword, name))
		}
	}
}
