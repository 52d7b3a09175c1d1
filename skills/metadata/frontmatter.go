package metadata

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// split splits a Markdown text into the YAML between a first line "---" and the next line "---" or "...", and the rest. Without an end there
// is no front matter: then the first line is a rule.
func split(text string) (matter, body string) {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != "---" {
		return "", text
	}
	at := 0
	for line := range strings.Lines(rest) {
		if end := strings.TrimRight(line, " \t\n"); end == "---" || end == "..." {
			return rest[:at], rest[at+len(line):]
		}
		at += len(line)
	}
	return "", text
}

// frontMatter returns the strings of a YAML mapping by their keys, without values of other types; nil if the text is no such mapping. It reads
// the parsed nodes without decoding them, so that aliases are never expanded.
func frontMatter(matter string) map[string]string {
	if strings.TrimSpace(matter) == "" {
		return nil
	}
	var document yaml.Node
	if yaml.Unmarshal([]byte(matter), &document) != nil || document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil
	}
	mapping := document.Content[0]
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	found := map[string]string{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], text(mapping.Content[i+1])
		if key.Kind == yaml.ScalarNode && found[key.Value] == "" {
			found[key.Value] = value
		}
	}
	return found
}

// text returns the value of a string, or of an alias of one.
func text(node *yaml.Node) string {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" {
		return ""
	}
	return node.Value
}
