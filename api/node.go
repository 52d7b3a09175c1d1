package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"
)

// node is a place in the contract. Unlike a decoded document it keeps the order in which things were written, which is the order in which
// people should read them. Asking for what is not there gives an empty node.
type node struct{ root, at *yaml.Node }

// entry is one member of a mapping.
type entry struct {
	key string
	node
}

func parseYAML(text []byte) (node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return node{}, err
	}
	if len(doc.Content) == 0 {
		return node{}, nil
	}
	return node{doc.Content[0], doc.Content[0]}, nil
}

func (n node) exists() bool { return n.at != nil }

// entries are the members of a mapping in their written order; references are followed.
func (n node) entries() []entry {
	if n.at == nil || n.at.Kind != yaml.MappingNode {
		return nil
	}
	out := make([]entry, 0, len(n.at.Content)/2)
	for i := 0; i+1 < len(n.at.Content); i += 2 {
		out = append(out, entry{n.at.Content[i].Value, node{n.root, n.at.Content[i+1]}.follow()})
	}
	return out
}

// get walks down a path of members, following references.
func (n node) get(path ...string) node {
	for _, key := range path {
		n = n.raw(key).follow()
	}
	return n
}

// raw is a member as it was written, be it a reference.
func (n node) raw(key string) node {
	if n.at != nil && n.at.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.at.Content); i += 2 {
			if n.at.Content[i].Value == key {
				return node{n.root, n.at.Content[i+1]}
			}
		}
	}
	return node{}
}

func (n node) list() []node {
	if n.at == nil || n.at.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]node, len(n.at.Content))
	for i, item := range n.at.Content {
		out[i] = node{n.root, item}
	}
	return out
}

func (n node) strings() []string {
	var out []string
	for _, item := range n.list() {
		out = append(out, item.at.Value)
	}
	return out
}

// text is a scalar; empty when there is none.
func (n node) text() string {
	if n.at == nil || n.at.Kind != yaml.ScalarNode {
		return ""
	}
	return strings.TrimSpace(n.at.Value)
}

// ref is the last part of a reference, which is the name of what it refers to; empty when n is none.
func (n node) ref() string {
	ref := n.raw("$ref").text()
	return ref[strings.LastIndexByte(ref, '/')+1:]
}

func (n node) follow() node {
	ref := n.raw("$ref").text()
	if path, ok := strings.CutPrefix(ref, "#/"); ok {
		return node{n.root, n.root}.get(strings.Split(path, "/")...)
	}
	return n
}

// without returns a copy that lacks the members with such keys, at any depth.
func (n node) without(drop func(key string) bool) node {
	at := *n.at
	at.Content = nil
	for i := 0; i < len(n.at.Content); i++ {
		if n.at.Kind == yaml.MappingNode && i%2 == 0 && drop(n.at.Content[i].Value) {
			i++ // and its value
			continue
		}
		at.Content = append(at.Content, node{n.root, n.at.Content[i]}.without(drop).at)
	}
	return node{&at, &at}
}

// yaml writes the node as YAML in its written order, with its comments.
func (n node) yaml() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(n.at), enc.Close())
	return b.Bytes(), err
}

// json writes the node as JSON in its written order, indented; what is short stays on one line.
func (n node) json() string {
	var b strings.Builder
	n.writeJSON(&b, "\n")
	return b.String()
}

// oneLine is json without line breaks.
func (n node) oneLine() string {
	var b strings.Builder
	n.writeJSON(&b, "")
	return b.String()
}

// short is how long a list or an object may be to stay on one line, in bytes.
const short = 48

func (n node) writeJSON(b *strings.Builder, newline string) {
	switch n.at.Kind {
	case yaml.MappingNode:
		n.writeAll(b, newline, '{', '}')
	case yaml.SequenceNode:
		n.writeAll(b, newline, '[', ']')
	default:
		var v any
		if err := n.at.Decode(&v); err != nil {
			v = n.at.Value
		}
		if n.at.Tag == "!!str" || n.at.Tag == "!!timestamp" {
			v = n.at.Value
		}
		var line strings.Builder
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(v) // scalars
		b.WriteString(strings.TrimSuffix(line.String(), "\n"))
	}
}

func (n node) writeAll(b *strings.Builder, newline string, open, closing byte) {
	inner := ""
	if newline != "" && (newline == "\n" && n.at.Kind == yaml.MappingNode || len(n.oneLine()) > short) {
		inner = newline + "  "
	}
	b.WriteByte(open)
	step, items := 1, n.at.Content
	if n.at.Kind == yaml.MappingNode {
		step = 2
	}
	for i := 0; i < len(items); i += step {
		if i > 0 {
			b.WriteByte(',')
			if inner == "" {
				b.WriteByte(' ')
			}
		}
		b.WriteString(inner)
		if step == 2 {
			node{n.root, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: items[i].Value}}.writeJSON(b, "")
			b.WriteString(": ")
		}
		node{n.root, items[i+step-1]}.writeJSON(b, inner)
	}
	if inner != "" && len(items) > 0 {
		b.WriteString(newline)
	}
	b.WriteByte(closing)
}
