package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Node is a value in the document. Unlike a decoded document, it keeps the written order. The zero
// Node is a missing value; its methods return zero values.
type Node struct{ root, at *yaml.Node }

// Entry is one member of a mapping.
type Entry struct {
	Key string
	Node
}

func parseYAML(text []byte) (Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return Node{}, err
	}
	if len(doc.Content) == 0 {
		return Node{}, nil
	}
	return Node{doc.Content[0], doc.Content[0]}, nil
}

// Exists reports whether the value is present.
func (n Node) Exists() bool { return n.at != nil }

// Entries returns the members of a mapping in written order. It follows references.
func (n Node) Entries() []Entry {
	if n.at == nil || n.at.Kind != yaml.MappingNode {
		return nil
	}
	out := make([]Entry, 0, len(n.at.Content)/2)
	for i := 0; i+1 < len(n.at.Content); i += 2 {
		out = append(out, Entry{n.at.Content[i].Value, Node{n.root, n.at.Content[i+1]}.Follow()})
	}
	return out
}

// Get returns the member at a path. It follows references.
func (n Node) Get(path ...string) Node {
	for _, key := range path {
		n = n.Raw(key).Follow()
	}
	return n
}

// Raw returns a member without following a reference.
func (n Node) Raw(key string) Node {
	if n.at != nil && n.at.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.at.Content); i += 2 {
			if n.at.Content[i].Value == key {
				return Node{n.root, n.at.Content[i+1]}
			}
		}
	}
	return Node{}
}

// List returns the elements of a sequence.
func (n Node) List() []Node {
	if n.at == nil || n.at.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]Node, len(n.at.Content))
	for i, item := range n.at.Content {
		out[i] = Node{n.root, item}
	}
	return out
}

// Strings returns the elements of a sequence of scalars.
func (n Node) Strings() []string {
	var out []string
	for _, item := range n.List() {
		out = append(out, item.at.Value)
	}
	return out
}

// Text returns a scalar.
func (n Node) Text() string {
	if n.at == nil || n.at.Kind != yaml.ScalarNode {
		return ""
	}
	return strings.TrimSpace(n.at.Value)
}

// Ref returns the name that a reference ends with, or "" if n is not a reference.
func (n Node) Ref() string {
	ref := n.Raw("$ref").Text()
	return ref[strings.LastIndexByte(ref, '/')+1:]
}

// Follow returns the target of a reference, or n itself.
func (n Node) Follow() Node {
	ref := n.Raw("$ref").Text()
	if path, ok := strings.CutPrefix(ref, "#/"); ok {
		return Node{n.root, n.root}.Get(strings.Split(path, "/")...)
	}
	return n
}

// without returns a copy without the members that drop selects, at any depth.
func (n Node) without(drop func(key string) bool) Node {
	at := *n.at
	at.Content = nil
	for i := 0; i < len(n.at.Content); i++ {
		if n.at.Kind == yaml.MappingNode && i%2 == 0 && drop(n.at.Content[i].Value) {
			i++ // and its value
			continue
		}
		at.Content = append(at.Content, Node{n.root, n.at.Content[i]}.without(drop).at)
	}
	return Node{&at, &at}
}

// YAML encodes the value in written order, with comments.
func (n Node) YAML() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err := errors.Join(enc.Encode(n.at), enc.Close())
	return b.Bytes(), err
}

// JSON encodes the value in written order, indented. Short lists and objects stay on one line.
func (n Node) JSON() string {
	var b strings.Builder
	n.writeJSON(&b, "\n")
	return b.String()
}

// OneLine is JSON without line breaks.
func (n Node) OneLine() string {
	var b strings.Builder
	n.writeJSON(&b, "")
	return b.String()
}

// short is the longest list or object on one line, in bytes.
const short = 48

func (n Node) writeJSON(b *strings.Builder, newline string) {
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

func (n Node) writeAll(b *strings.Builder, newline string, open, closing byte) {
	inner := ""
	if newline != "" && (newline == "\n" && n.at.Kind == yaml.MappingNode || len(n.OneLine()) > short) {
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
			Node{n.root, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: items[i].Value}}.writeJSON(b, "")
			b.WriteString(": ")
		}
		Node{n.root, items[i+step-1]}.writeJSON(b, inner)
	}
	if inner != "" && len(items) > 0 {
		b.WriteString(newline)
	}
	b.WriteByte(closing)
}
