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

// The keywords of JSON Schema that hold schemas: one, a list of them, or an object of them by name.
// The library looks for schemas nowhere else.
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

// inspect finds what this package refuses although JSON Schema allows it: references to anything
// but a schema of the same document, another base for them, another dialect, and more of anything
// than can be compiled in reasonable time and memory. It returns the size of each pattern's
// program.
//
// It changes the document into an equivalent one that is cheap to compile: each reference becomes
// the JSON pointer of its target, in the library's own spelling, and anchors are removed. The
// library would compile a target again for every other spelling.
func inspect(doc any) (programs map[string]int, found []Finding) {
	i := inspector{schemas: map[string]bool{}, anchors: map[string]string{}, programs: map[string]int{}}
	i.schema(doc, nil)
	if len(i.found) == 0 {
		for _, r := range i.refs {
			i.resolve(r)
		}
	}
	return i.programs, i.found
}

type inspector struct {
	schemas   map[string]bool   // locations
	anchors   map[string]string // locations by name
	refs      []reference
	locations int            // bytes
	programs  map[string]int // sizes by pattern
	program   int            // size of all patterns together
	found     []Finding
}

// reference is a keyword of refKeywords.
type reference struct {
	in      map[string]any
	keyword string
	path    []string // of the schema that it is in
}

func (i *inspector) add(path []string, keyword, format string, args ...any) {
	if len(i.found) < maxSchemaFindings {
		i.found = append(i.found, Finding{append(slices.Clone(path), keyword), fmt.Sprintf(format, args...)})
	}
}

// location returns the location of a schema in the library's spelling.
func location(path []string) string {
	var b strings.Builder
	b.WriteByte('#')
	for _, token := range path {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(escape.Replace(token)))
	}
	return b.String()
}

func (i *inspector) schema(value any, path []string) {
	if len(i.schemas) > maxSubschemas || i.locations > maxLocations {
		return
	}
	here := location(path)
	i.schemas[here] = true
	i.locations += len(here)
	switch {
	case len(i.schemas) > maxSubschemas:
		i.found = append(i.found, Finding{Reason: fmt.Sprintf("has more than %d subschemas", maxSubschemas)})
		return
	case i.locations > maxLocations:
		i.found = append(i.found,
			Finding{Reason: fmt.Sprintf("has subschemas whose JSON pointers take more than %d bytes together; use shorter names",
				maxLocations)})
		return
	}
	schema, ok := value.(map[string]any)
	if !ok {
		return
	}
	// The metaschema reports keywords whose values have the wrong type.
	for _, keyword := range refKeywords {
		switch ref, ok := schema[keyword].(string); {
		case !ok:
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
		i.add(path, "$id", "is not allowed: it would give references another base, and a schema can refer to its own parts only")
	}
	if _, ok := schema["$vocabulary"]; ok {
		i.add(path, "$vocabulary", "is not allowed: it belongs to metaschemas, and each name in it costs time")
	}
	if d, ok := schema["$schema"]; ok {
		if s, _ := d.(string); strings.TrimSuffix(s, "#") != dialect {
			i.add(path, "$schema", "must be %s, or be left out: that is the dialect in any case", dialect)
		}
	}
	if p, ok := schema["pattern"].(string); ok {
		i.pattern(path, "pattern", p)
	}
	for _, keyword := range []string{"type", "required"} {
		i.names(schema[keyword], path, keyword)
	}
	i.below(schema, path)
}

func (i *inspector) anchor(schema map[string]any, path []string, here string) {
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		name, ok := schema[keyword].(string)
		if !ok {
			continue
		}
		if other, taken := i.anchors[name]; taken && other != here {
			i.add(path, keyword, "is the name of another schema too")
		}
		i.anchors[name] = here
		delete(schema, keyword)
	}
}

// resolve checks the target of a reference. There is only one document, so a dynamic reference has
// the same target as a static one.
func (i *inspector) resolve(r reference) {
	ref, _ := r.in[r.keyword].(string)
	target := "#"
	if plain, err := url.PathUnescape(strings.TrimPrefix(ref, "#")); err != nil {
		target = ""
	} else if pointer, ok := strings.CutPrefix(plain, "/"); ok {
		tokens := strings.Split(pointer, "/")
		for n, token := range tokens {
			tokens[n] = unescape(token)
		}
		target = location(tokens)
	} else if plain != "" {
		target = i.anchors[plain]
	}
	if !i.schemas[target] {
		i.add(r.path, r.keyword,
			"leads to no schema: it can name a place of the document where a schema is, as in #/$defs/item, or an $anchor")
		return
	}
	r.in[r.keyword] = target
}

// names checks a list of names. The library searches it for repetitions, in quadratic time if it
// holds anything else.
func (i *inspector) names(value any, path []string, keyword string) {
	const few = 50
	list, _ := value.([]any)
	notName := func(one any) bool { _, ok := one.(string); return !ok }
	if len(list) > few && slices.ContainsFunc(list, notName) {
		i.add(path, keyword, "must hold names only")
	}
}

// pattern bounds the size of a regular expression's program.
func (i *inspector) pattern(path []string, keyword, p string) {
	if len(p) > maxPattern {
		i.add(path, keyword, "is longer than %d bytes", maxPattern)
		return
	}
	if i.program > maxPrograms {
		return // reported already
	}
	re, err := syntax.Parse(p, syntax.Perl)
	if err != nil {
		return // the metaschema reports it
	}
	size := programSize(re)
	i.programs[p] = size
	i.program += size
	switch {
	case size > maxProgram:
		i.add(path, keyword, "is a pattern that compiles to more than %d instructions; use smaller counts, and maxLength for a length",
			maxProgram)
	case i.program > maxPrograms:
		i.add(path, keyword, "is where the patterns of the schema compile to more than %d instructions together; use smaller counts, and "+
			"maxLength for lengths", maxPrograms)
	}
}

// programSize estimates how many instructions package regexp makes of an expression. A class of
// many ranges counts as several.
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
			i.schema(one, append(path, keyword))
		}
	}
	for _, keyword := range holdsList {
		list, _ := schema[keyword].([]any)
		for n, one := range list {
			i.schema(one, append(path, keyword, strconv.Itoa(n)))
		}
	}
	for _, keyword := range holdsByName {
		named, _ := schema[keyword].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(named)) {
			if keyword == "patternProperties" {
				i.pattern(append(path, keyword), name, name)
			}
			i.schema(named[name], append(path, keyword, name))
		}
	}
	for _, keyword := range []string{"dependentRequired", "dependencies"} {
		named, _ := schema[keyword].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(named)) {
			i.names(named[name], append(path, keyword), name)
		}
	}
}
