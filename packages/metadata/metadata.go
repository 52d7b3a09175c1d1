// Package metadata finds a skill's name and description, for lists that people and models read. It
// must not know anything else about skills.
//
// The files come from untrusted users, so everything is bounded and nothing is an error: text that
// cannot be understood is skipped with a warning, and the last resort is the name of the folder.
package metadata

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// NoDescription is the description of a skill that has none.
const NoDescription = "No description available."

// Files are the files in a skill's root that describe it, the first one that exists first. Front
// matter counts in the first two.
var Files = [...]string{"SKILL.md", "skill.md", "README.md"}

// Bounds of what Describe reads, and of its results.
const (
	MaxFileBytes        = 64 << 10 // read of each file
	MaxNameRunes        = 128
	MaxDescriptionRunes = 1024
)

// About is what a skill or an agent says of itself. Name and Description are one line of valid
// UTF-8 without control characters, not empty, and bounded, and so is Role, which may be empty.
type About struct {
	Name, Description, Role string
	// Warning says what could not be read, and what to do about it; empty if all is well.
	Warning string
}

// Describe returns what the skill in fsys, whose folder has the given name, says of itself. It uses
// the front matter of SKILL.md, else of skill.md; without a name there, the first "# heading" of
// SKILL.md, skill.md or README.md, in this order. It opens regular files only, and skips links,
// FIFOs and folders if fsys can tell (fs.ReadLinkFS); fsys must handle files that are replaced
// meanwhile.
func Describe(fsys fs.FS, folder string) About {
	var r reading
	for i, file := range Files {
		if content, found := read(fsys, file); found {
			r.file(file, content, i < 2)
		}
	}
	return r.about(folder)
}

// DescribeFile returns what a skill or an agent says of itself in one Markdown file. It uses the
// first MaxFileBytes of the file. file is its name, for the warning, and because the front matter
// of a skill's README.md does not count. Like Describe, it falls back to the first heading and to
// the name of the folder.
func DescribeFile(content []byte, file, folder string) About {
	var r reading
	r.file(file, content[:min(len(content), MaxFileBytes)], file != Files[2])
	return r.about(folder)
}

// reading collects what files say, the most important one first.
type reading struct {
	front    About
	heading  string
	first    string // the first file that was read
	complete bool   // its text is whole, and has nothing that looks like front matter
	warnings []string
}

// file reads a file. front says whether its front matter counts.
func (r *reading) file(file string, content []byte, front bool) {
	text, whole := plain(content)
	if r.first == "" {
		r.first, r.complete = file, front && len(content) < MaxFileBytes && strings.TrimSpace(text) != "" && !ruled.MatchString(text)
	}
	if !whole {
		r.warn("%s is not UTF-8, and some of its characters are lost: save it as UTF-8", file)
	}
	matter, body := split(text)
	if front && r.front.Name == "" && r.front.Description == "" {
		m := frontMatter(matter)
		r.front = About{
			Name: clean(m.values["name"], MaxNameRunes), Description: clean(m.values["description"], MaxDescriptionRunes),
			Role: clean(m.values["role"], MaxDescriptionRunes),
		}
		if m.broken {
			r.warn("%s: the front matter cannot be read: write name: and description: at the beginning of its lines", file)
		}
		for _, key := range m.unread {
			r.warn("%s: %s in the front matter is empty or no text: write it on one line, in double quotes", file, key)
		}
		for _, key := range m.comment {
			r.warn("%s: %s ends at a # that begins a comment: put the whole value in quotes if it does not", file, key)
		}
		if matter == "" && strings.HasPrefix(afterBlank(text), "---\n") {
			if _, rest, _ := strings.Cut(text, "---\n"); len(entriesOf(rest)) > 0 {
				r.warn("%s: the front matter has no end: put a line --- below it", file)
			}
		}
	}
	if r.heading == "" {
		r.heading = clean(firstHeading(body), MaxNameRunes)
	}
}

// ruled finds a line that could begin or end front matter.
var ruled = regexp.MustCompile(`(?m)^[ \t]*---[ \t]*$`)

func (r *reading) warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

func (r *reading) about(folder string) About {
	a := r.front
	a.Name = cmp.Or(a.Name, r.heading, clean(folder, MaxNameRunes), "unnamed")
	if a.Description == "" {
		a.Description = NoDescription
		if len(r.warnings) == 0 && !r.complete {
			if r.first == "" || r.first == Files[2] {
				r.first = Files[0]
			}
			r.warn("there is no description, so agents cannot tell when to use it: add one to the front matter of %s", r.first)
		}
	}
	a.Warning = strings.Join(r.warnings, "; ")
	return a
}

// plain returns a text with LF as line break, without a byte order mark. Invalid bytes are U+FFFD;
// whole reports that there are none. A text in UTF-16 with a mark is converted.
func plain(content []byte) (text string, whole bool) {
	for mark, order := range map[string]binary.ByteOrder{"\xff\xfe": binary.LittleEndian, "\xfe\xff": binary.BigEndian} {
		if rest, ok := bytes.CutPrefix(content, []byte(mark)); ok {
			units := make([]uint16, len(rest)/2)
			for i := range units {
				units[i] = order.Uint16(rest[2*i:])
			}
			content = []byte(string(utf16.Decode(units)))
		}
	}
	if len(content) == MaxFileBytes { // the end may be a part of a character
		content = content[:len(content)-cutRune(content)]
	}
	whole = utf8.Valid(content)
	text = strings.TrimPrefix(strings.ToValidUTF8(string(content), "\uFFFD"), "\uFEFF")
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n"), whole
}

// cutRune returns the length of an incomplete character at the end.
func cutRune(content []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(content); n++ {
		if end := content[len(content)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

// read returns the beginning of a regular file.
func read(fsys fs.FS, file string) ([]byte, bool) {
	if info, err := fs.Lstat(fsys, file); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	f, err := fsys.Open(file)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	content, err := io.ReadAll(io.LimitReader(f, MaxFileBytes))
	if err != nil {
		return nil, false
	}
	return content, true
}

// firstHeading returns the first heading of the first level outside of code blocks, in which #
// begins a comment.
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

// clean makes one line of an untrusted text: white space and control characters become single
// spaces, invisible characters are removed, invalid UTF-8 becomes U+FFFD, and long texts are cut.
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

// invisible reports whether a character makes a text look like another one: direction marks and
// overrides, byte order marks, tags. Joiners are allowed: Persian and emoji need them.
func invisible(r rune) bool {
	switch {
	case r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return true
	case r == 0x00AD, r == 0x200B, r == 0x2060, r == 0xFEFF, r >= 0xFFF9 && r <= 0xFFFB, r >= 0xE0000 && r <= 0xE007F:
		return true
	}
	return false
}
