// Package metadata finds a skill's name and description, for lists that people and models read. It must not know anything else about skills.
//
// The files come from untrusted users, so everything is bounded and nothing is an error: text that cannot be understood is skipped, and the
// last resort is the name of the folder.
package metadata

import (
	"io"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NoDescription is the description of a skill that has none.
const NoDescription = "No description available."

// Bounds of what Describe reads, and of its results.
const (
	MaxFileBytes        = 64 << 10 // read of each file
	MaxNameRunes        = 128
	MaxDescriptionRunes = 1024
)

// Describe returns the name and the description of the skill in fsys, whose folder has the given name. It uses the front matter of SKILL.md,
// else of skill.md; without a name there, the first "# heading" of SKILL.md, skill.md or README.md, in this order. It opens regular files
// only, and skips links, FIFOs and folders if fsys can tell (fs.ReadLinkFS); fsys must handle files that are replaced meanwhile.
//
// Both texts are one line of valid UTF-8 without control characters, not empty, and bounded.
func Describe(fsys fs.FS, folder string) (name, description string) {
	var heading string
	for i, file := range []string{"SKILL.md", "skill.md", "README.md"} {
		text, found := read(fsys, file)
		if !found {
			continue
		}
		matter, body := split(text)
		if i < 2 && name == "" && description == "" {
			front := frontMatter(matter)
			name, description = clean(front["name"], MaxNameRunes), clean(front["description"], MaxDescriptionRunes)
		}
		if heading == "" {
			heading = clean(firstHeading(body), MaxNameRunes)
		}
	}
	for _, other := range []string{heading, clean(folder, MaxNameRunes), "unnamed"} {
		if name == "" {
			name = other
		}
	}
	if description == "" {
		description = NoDescription
	}
	return name, description
}

// DescribeFile returns name, description and role of a skill or an agent by the content of its Markdown file, of which it uses MaxFileBytes. Like
// Describe, it falls back to the first heading and to the name of the folder or file; a missing role is empty.
func DescribeFile(content []byte, folder string) (name, description, role string) {
	matter, body := split(plain(content[:min(len(content), MaxFileBytes)]))
	front := frontMatter(matter)
	name, description, role = clean(front["name"], MaxNameRunes), clean(front["description"], MaxDescriptionRunes), clean(front["role"], MaxDescriptionRunes)
	for _, other := range []string{clean(firstHeading(body), MaxNameRunes), clean(folder, MaxNameRunes), "unnamed"} {
		if name == "" {
			name = other
		}
	}
	if description == "" {
		description = NoDescription
	}
	return name, description, role
}

// plain returns a text with LF as line break and without a byte order mark.
func plain(content []byte) string {
	text := strings.TrimPrefix(string(content), "\uFEFF")
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// read returns the beginning of a regular file, with LF as line break and without a byte order mark.
func read(fsys fs.FS, file string) (string, bool) {
	if info, err := fs.Lstat(fsys, file); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	f, err := fsys.Open(file)
	if err != nil {
		return "", false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	content, err := io.ReadAll(io.LimitReader(f, MaxFileBytes))
	if err != nil {
		return "", false
	}
	return plain(content), true
}

// firstHeading returns the first heading of the first level outside of code blocks, in which # begins a comment.
func firstHeading(body string) string {
	fence := ""
	for line := range strings.Lines(body) {
		text := strings.TrimRight(line, " \t\n")
		indented := text
		text = strings.TrimLeft(text, " ")
		if len(indented)-len(text) > 3 {
			continue // a block of code
		}
		switch {
		case fence != "":
			if strings.HasPrefix(text, fence) && strings.Trim(text, fence[:1]) == "" {
				fence = ""
			}
		case strings.HasPrefix(text, "```"), strings.HasPrefix(text, "~~~"):
			fence = text[:len(text)-len(strings.TrimLeft(text, text[:1]))]
		case strings.HasPrefix(text, "# "), strings.HasPrefix(text, "#\t"):
			title := strings.TrimSpace(text[2:])
			if closed := strings.TrimRight(title, "#"); closed == "" || strings.HasSuffix(closed, " ") || strings.HasSuffix(closed, "\t") {
				title = closed
			}
			if clean(title, MaxNameRunes) != "" {
				return title
			}
		}
	}
	return ""
}

// clean makes one line of an untrusted text: white space and control characters become single spaces, invisible characters are removed,
// invalid UTF-8 becomes U+FFFD, and long texts are cut.
func clean(s string, maxRunes int) string {
	var b strings.Builder
	runes, gap := 0, false
	for _, r := range s { // invalid bytes are U+FFFD
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r):
			gap = b.Len() > 0
			continue
		case invisible(r):
			continue
		}
		need := 1
		if gap {
			need = 2
		}
		if runes+need > maxRunes {
			return cut(b.String())
		}
		if gap {
			b.WriteByte(' ')
			gap = false
		}
		b.WriteRune(r)
		runes += need
	}
	return b.String()
}

// cut replaces the last character by an ellipsis.
func cut(s string) string {
	_, size := utf8.DecodeLastRuneInString(s)
	return strings.TrimRight(s[:len(s)-size], " ") + "…"
}

// invisible reports whether a character makes a text look like another one: direction marks and overrides, byte order marks, tags. Joiners
// are allowed: Persian and emoji need them.
func invisible(r rune) bool {
	switch {
	case r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return true
	case r == 0x00AD, r == 0x200B, r == 0x2060, r == 0xFEFF, r >= 0xFFF9 && r <= 0xFFFB, r >= 0xE0000 && r <= 0xE007F:
		return true
	}
	return false
}
