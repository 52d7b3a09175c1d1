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

// frontMatter returns the strings name and description of a YAML mapping. They are empty if they are missing or of another type, or if the
// text is no YAML. It reads the parsed nodes without decoding them, so that aliases are never expanded.
func frontMatter(matter string) (name, description string) {
	if strings.TrimSpace(matter) == "" {
		return "", ""
	}
	var document yaml.Node
	if yaml.Unmarshal([]byte(matter), &document) != nil || document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return "", ""
	}
	mapping := document.Content[0]
	if mapping.Kind != yaml.MappingNode {
		return "", ""
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], text(mapping.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode:
		case key.Value == "name" && name == "":
			name = value
		case key.Value == "description" && description == "":
			description = value
		}
	}
	return name, description
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
