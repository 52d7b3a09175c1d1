package skills

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The keywords of JSON Schema that hold schemas: one, a list of them, or an object of them by name.
var (
	holdsSchema = []string{
		"additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains", "propertyNames",
		"not", "if", "then", "else", "contentSchema",
	}
	holdsList   = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	holdsByName = []string{"properties", "patternProperties", "dependentSchemas", "$defs", "definitions", "dependencies"}
)

// inspectSchema looks for what this package does not allow in a schema although JSON Schema does: references that lead out of it, another
// base for them, another dialect, more parts than can be compiled in good time. What it does not see, because a reference leads where no
// schema should be, ends at compile's LoadURL.
func inspectSchema(doc any) []finding {
	i := inspector{}
	i.look(doc, nil)
	return i.bad
}

type inspector struct {
	seen int
	bad  []finding
}

func (i *inspector) add(path []string, keyword, format string, args ...any) {
	if len(i.bad) < maxProblems {
		i.bad = append(i.bad, finding{append(slices.Clone(path), keyword), fmt.Sprintf(format, args...)})
	}
}

func (i *inspector) look(value any, path []string) {
	schema, ok := value.(map[string]any)
	if !ok {
		return
	}
	if i.seen++; i.seen >= maxSubschemas {
		if i.seen == maxSubschemas {
			i.bad = append(i.bad, finding{nil, fmt.Sprintf("has more than %d subschemas", maxSubschemas)})
		}
		return
	}
	for _, keyword := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		if ref, ok := schema[keyword].(string); ok && !strings.HasPrefix(ref, "#") {
			i.add(path, keyword, "leads out of the schema: it can refer to its own parts only, as in #/$defs/item; nothing is ever fetched")
		}
	}
	if _, ok := schema["$id"].(string); ok {
		i.add(path, "$id", "has to go: it would give references another base, and a schema can refer to its own parts only")
	}
	if d, ok := schema["$schema"]; ok {
		if s, _ := d.(string); strings.TrimSuffix(s, "#") != dialect {
			i.add(path, "$schema", "must be %s, or be left out: that is the dialect in any case", dialect)
		}
	}
	if p, ok := schema["pattern"].(string); ok && len(p) > maxPattern {
		i.add(path, "pattern", "is longer than %d bytes", maxPattern)
	}
	i.below(schema, path)
}

func (i *inspector) below(schema map[string]any, path []string) {
	path = slices.Clip(path)
	for _, keyword := range holdsSchema {
		i.look(schema[keyword], append(path, keyword))
	}
	for _, keyword := range holdsList {
		list, _ := schema[keyword].([]any)
		for n, one := range list {
			i.look(one, append(path, keyword, strconv.Itoa(n)))
		}
	}
	for _, keyword := range holdsByName {
		named, _ := schema[keyword].(map[string]any)
		for name, one := range named {
			if keyword == "patternProperties" && len(name) > maxPattern {
				i.add(path, keyword, "holds a pattern longer than %d bytes", maxPattern)
			}
			i.look(one, append(path, keyword, name))
		}
	}
}
