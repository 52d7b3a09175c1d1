package metadata

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// split splits a Markdown text into the YAML between a first line "---" and the next line "---" or
// "...", and the rest. Lines above it that are empty do not count. Without an end there is no front
// matter: then the first line is a rule.
func split(text string) (matter, body string) {
	first, rest, _ := strings.Cut(afterBlank(text), "\n")
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

// afterBlank returns a text without the empty lines that it begins with.
func afterBlank(text string) string {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			break
		}
		text = text[len(line):]
	}
	return text
}

// keys are the keys of front matter that are read, in any case.
var keys = []string{"name", "description", "role"}

// matter is what was read of front matter.
type matter struct {
	values  map[string]string // by keys; empty: the key is missing, or its value is no text
	unread  []string          // the keys with a value that cannot be read
	comment []string          // the keys with a value that was cut at a #, as YAML says
	broken  bool              // it is no YAML mapping, and has no entries that can be read
}

// frontMatter reads the texts of front matter. YAML that is not valid as a whole, as people write
// it with colons or tabs in a value, is read entry by entry.
func frontMatter(text string) matter {
	m := matter{values: map[string]string{}}
	entries := entriesOf(text)
	found, valid := yamlTexts(text)
	for _, key := range keys {
		entry, there := entries[key]
		value, read := found[key]
		if !valid && there {
			one, ok := yamlTexts(entry)
			if value, read = one[key]; !ok || !read {
				value, read = plainText(entry)
			}
		}
		switch hidden := commentOf(entry); {
		case !there && !read:
		case read && value != "":
			m.values[key] = value
			if hidden != "" && !strings.Contains(value, hidden) {
				m.comment = append(m.comment, key)
			}
		case hidden != "": // the value begins with a #
			m.values[key] = hidden
		case key != "role": // which skills do not have
			m.unread = append(m.unread, key)
		}
	}
	m.broken = !valid && len(entries) == 0
	return m
}

// yamlTexts returns the texts of a YAML mapping by their keys in lower case; of two, the one that
// was in lower case. A value that is no text is empty. It reads the parsed nodes without decoding
// them, so that aliases are never expanded.
func yamlTexts(text string) (found map[string]string, ok bool) {
	if strings.TrimSpace(text) == "" {
		return nil, true
	}
	var document yaml.Node
	if yaml.Unmarshal([]byte(text), &document) != nil || document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, false
	}
	mapping := document.Content[0]
	if mapping.Kind != yaml.MappingNode {
		return nil, false
	}
	found = map[string]string{}
	exact := map[string]bool{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], textOf(mapping.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			continue
		}
		lower := strings.ToLower(key.Value)
		if found[lower] == "" || !exact[lower] && lower == key.Value && value != "" {
			found[lower], exact[lower] = value, lower == key.Value
		}
	}
	return found, true
}

// textOf returns the value of a string, or of an alias of one.
func textOf(node *yaml.Node) string {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!str" {
		return ""
	}
	return node.Value
}

// entryStart is the key of an entry and its colon. As people write it, the colon may be a
// full-width one, and the colon after one of keys needs no space behind it.
var entryStart = regexp.MustCompile(`^["']?(?:([A-Za-z][A-Za-z0-9_-]*)["']?[ \t]*(?::[ \t\n]|:$|：)|((?i:name|description|role))["']?[ \t]*:)`)

// entriesOf returns the first entry of each of keys: its line, and those below that are neither an
// entry's nor a comment.
func entriesOf(text string) map[string]string {
	found := map[string]string{}
	in, begin, at := "", 0, 0
	end := func() {
		if in != "" {
			found[in] = text[begin:at]
		}
		in = ""
	}
	for line := range strings.Lines(text) {
		start := entryStart.FindStringSubmatch(line)
		if start != nil || line[0] == '#' {
			end()
		}
		if start != nil {
			key := strings.ToLower(start[1] + start[2])
			if _, twice := found[key]; slices.Contains(keys, key) && !twice {
				in, begin = key, at
			}
		}
		at += len(line)
	}
	end()
	return found
}

// valueOf returns an entry without its key and colon.
func valueOf(entry string) string {
	return entry[len(strings.TrimRight(entryStart.FindString(entry), " \t\n")):]
}

// plainText returns the value of an entry that is no valid YAML, if it can only be the text that it
// looks like: it does not begin with a character that begins something else in YAML.
func plainText(entry string) (string, bool) {
	value := valueOf(entry)
	first, _, _ := strings.Cut(value, "\n")
	if first = strings.TrimSpace(first); first == "" || strings.ContainsRune(`"'|>[]{}&*!?-`, rune(first[0])) {
		return "", false
	}
	text, _, _ := strings.Cut(strings.ReplaceAll(value, "\t", " "), " # ")
	return strings.TrimSpace(text), true
}

// commentOf returns the part of an entry's first line that YAML takes as a comment, but that people
// write as a part of the text: it begins with a # directly before a character, as in "fixes #12".
func commentOf(entry string) string {
	value := valueOf(entry)
	first, _, _ := strings.Cut(strings.ReplaceAll(value, "\t", " "), "\n")
	text := strings.TrimSpace(first)
	if text == "" || strings.ContainsRune(`"'|>[{`, rune(text[0])) {
		return ""
	}
	if at := strings.Index(first, " #"); at >= 0 && at+2 < len(first) && first[at+2] != ' ' {
		return strings.TrimSpace(first[at:])
	}
	return ""
}
