package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"secbox/internal/suggest"
	"secbox/internal/whole"
)

// readFile applies a YAML file. Keys may be nested, dotted, or both: {sandbox: {policy: {net.mode:
// none}}} and {sandbox.policy: {net: {mode: none}}} are the same. Each value is decoded separately,
// so that errors name the key and line.
func readFile(s *Settings, rows []setting, name string, data []byte, p *problems) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // an empty file sets nothing
	case err != nil:
		p.addf(name, "is no YAML: %s", plainYAML(err))
		return
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		p.addf(name, "holds more than one YAML document; keep one and remove the --- before the others")
		return
	}
	f := fileReader{into: s, name: name, p: p, rows: map[string]setting{}, seen: map[string]int{}, groups: map[string]bool{}}
	for _, row := range rows {
		f.rows[row.key] = row
		f.keys = append(f.keys, row.key)
		for i, c := range row.key {
			if c == '.' {
				f.groups[row.key[:i]] = true
			}
		}
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return
	}
	if root.Kind != yaml.MappingNode {
		p.addf(name, "line %d: must hold keys and values, such as addr: 127.0.0.1:8003", root.Line)
		return
	}
	f.walk("", root)
}

type fileReader struct {
	into   *Settings
	name   string
	p      *problems
	rows   map[string]setting
	groups map[string]bool // the sections: "http", "sandbox", "sandbox.policy", …
	keys   []string
	seen   map[string]int // key to the line where it was set
}

func (f *fileReader) walk(prefix string, mapping *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		path := prefix + key.Value
		row, known := f.rows[path]
		switch {
		case key.Kind != yaml.ScalarNode:
			f.problemf(whole.Shorten(prefix+"?"), key, "a key must be plain text")
		case known:
			f.leaf(row, key, value)
		case !f.groups[path]:
			f.problemf(whole.Shorten(path), key, "there is no such setting; did you mean %s?", suggest.Nearest(path, f.keys))
		case value.Kind == yaml.MappingNode:
			f.walk(path+".", value)
		case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
			// an empty section sets nothing
		default:
			f.problemf(path, key, "is a section: put its settings under it, such as %s", under(f.keys, path+".")[0])
		}
	}
}

func (f *fileReader) leaf(row setting, key, value *yaml.Node) {
	if row.envOnly {
		f.problemf(row.key, key, "must not be in a file; remove it, create a new one, since this one was written down, and set the "+
			"environment variable %s", row.env[0])
		return
	}
	if line, again := f.seen[row.key]; again {
		f.problemf(row.key, key, "is set in line %d already; keep one of the two", line)
		return
	}
	f.seen[row.key] = key.Line
	if value.Kind == yaml.ScalarNode && value.Tag == "!!null" {
		return // "key:" without a value sets nothing
	}
	into := reflect.New(row.typ)
	if row.typ.Kind() == reflect.Map {
		f.table(row, value)
		return
	}
	if !fits(row.typ, value) || value.Decode(into.Interface()) != nil {
		if row.typ == reflect.TypeFor[Secret]() {
			f.problemf(row.key, key, "must be text in quotes")
			return
		}
		f.problemf(row.key, key, "must be %s, not %s", want(row.typ), yamlText(value))
		return
	}
	row.in(f.into).Set(into.Elem())
	f.p.from(row.key, f.at(key))
}

// fits is stricter than the decoder, which converts some types silently.
func fits(typ reflect.Type, n *yaml.Node) bool {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ.Kind() {
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return false
		}
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag != "!!str" {
				return false
			}
		}
		return true
	case reflect.Int, reflect.Int64:
		return n.Kind == yaml.ScalarNode && n.Tag == "!!int"
	case reflect.Float64:
		return n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float")
	case reflect.Bool:
		return n.Kind == yaml.ScalarNode && n.Tag == "!!bool"
	default:
		return n.Kind == yaml.ScalarNode && n.Tag == "!!str"
	}
}

// at is the place of a node.
func (f *fileReader) at(n *yaml.Node) string { return fmt.Sprintf("line %d of %s", n.Line, f.name) }

// problemf reports an error of a key with its line.
func (f *fileReader) problemf(key string, n *yaml.Node, format string, args ...any) {
	if key == "" {
		key = `""`
	}
	f.p.addf(key, "%s: %s", f.at(n), fmt.Sprintf(format, args...))
}

func yamlText(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a section"
	}
	return strconv.Quote(whole.Shorten(n.Value))
}

var yamlPrefix = regexp.MustCompile(`^yaml: `)

func plainYAML(err error) string { return yamlPrefix.ReplaceAllString(err.Error(), "") }

// under returns the keys that begin with the prefix.
func under(keys []string, prefix string) []string {
	var out []string
	for _, k := range keys {
		if strings.HasPrefix(k, prefix) {
			out = append(out, k)
		}
	}
	return out
}
