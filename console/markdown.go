package console

import (
	"html"
	"regexp"
	"strings"
)

// markdownBody renders the Markdown that people write in reports: headings, paragraphs, lists,
// quotes, tables, code and emphasis. HTML is text, and so are the addresses of links and images.
// Its time is proportional to the text, whatever that is: parsers of the whole language take
// minutes for some hostile files.
func markdownBody(text []byte) (string, error) {
	m := markdown{lines: strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")}
	for len(m.lines) > 0 {
		m.block()
	}
	return m.out.String(), nil
}

// markdown is a text that is being rendered.
type markdown struct {
	lines []string // that are left
	out   strings.Builder
}

var (
	mdHeading = regexp.MustCompile(`^ {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$`)
	mdRule    = regexp.MustCompile(`^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$`)
	mdItem    = regexp.MustCompile(`^([ \t]*)([-*+]|[0-9]{1,9}[.)])[ \t]+(.*)$`)
	mdColumns = regexp.MustCompile(`^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$`)
)

// take returns the next line, and removes it.
func (m *markdown) take() string {
	line := m.lines[0]
	m.lines = m.lines[1:]
	return line
}

// element writes an element.
func (m *markdown) element(name, content string) {
	m.out.WriteString("<" + name + ">" + content + "</" + name + ">\n")
}

func (m *markdown) block() {
	line := m.lines[0]
	trimmed := strings.TrimSpace(line)
	switch {
	case trimmed == "":
		m.take()
	case isFence(trimmed):
		m.code(trimmed[:3])
	case mdHeading.MatchString(line):
		found := mdHeading.FindStringSubmatch(m.take())
		m.element("h"+string(rune('0'+len(found[1]))), inline(found[2]))
	case mdRule.MatchString(line):
		m.take()
		m.out.WriteString("<hr>\n")
	case trimmed[0] == '>':
		m.element("blockquote", inline(m.while(func(line string) (string, bool) {
			return strings.CutPrefix(strings.TrimSpace(line), ">")
		})))
	case len(m.lines) > 1 && strings.Contains(line, "|") && strings.Contains(m.lines[1], "|") && mdColumns.MatchString(m.lines[1]):
		m.table()
	case mdItem.MatchString(line):
		m.list()
	default:
		m.element("p", inline(m.take()+"\n"+m.while(func(line string) (string, bool) { return line, isProse(line) })))
	}
}

func isFence(trimmed string) bool {
	return strings.HasPrefix(trimmed, "```") || strings.HasPrefix(trimmed, "~~~")
}

// isProse reports whether a line goes on with the paragraph before it.
func isProse(line string) bool {
	trimmed := strings.TrimSpace(line)
	return trimmed != "" && !isFence(trimmed) && trimmed[0] != '>' && !mdHeading.MatchString(line) && !mdRule.MatchString(line) &&
		!mdItem.MatchString(line)
}

// while takes the lines that match, and returns what is to be shown of them.
func (m *markdown) while(match func(line string) (text string, ok bool)) string {
	var b strings.Builder
	for len(m.lines) > 0 {
		text, ok := match(m.lines[0])
		if !ok {
			break
		}
		m.take()
		b.WriteString(text + "\n")
	}
	return b.String()
}

// code takes the lines between fences.
func (m *markdown) code(fence string) {
	m.take()
	m.element("pre", html.EscapeString(m.while(func(line string) (string, bool) {
		return line, !strings.HasPrefix(strings.TrimSpace(line), fence)
	})))
	if len(m.lines) > 0 {
		m.take()
	}
}

func (m *markdown) table() {
	row := func(line, cell string) {
		m.out.WriteString("<tr>")
		values := strings.SplitN(strings.Trim(strings.TrimSpace(line), "|"), "|", tableCells+1)
		for _, value := range values[:min(len(values), tableCells)] {
			m.element(cell, inline(strings.TrimSpace(value)))
		}
		m.out.WriteString("</tr>")
	}
	m.out.WriteString("<table><thead>")
	row(m.take(), "th")
	m.take()
	m.out.WriteString("</thead><tbody>")
	for len(m.lines) > 0 && strings.Contains(m.lines[0], "|") {
		row(m.take(), "td")
	}
	m.out.WriteString("</tbody></table>\n")
}

// listLevels bounds how deep lists are shown.
const listLevels = 8

// list takes the items of a list and of the lists in it, which two spaces more begin.
func (m *markdown) list() {
	var open []string // lists, from the outermost
	for len(m.lines) > 0 {
		found := mdItem.FindStringSubmatch(m.lines[0])
		if found == nil {
			break
		}
		m.take()
		text := found[3] + "\n" + m.while(func(line string) (string, bool) { return line, isProse(line) })
		kind := "ol"
		if strings.Contains("-*+", found[2]) {
			kind = "ul"
		}
		level := min(len(strings.ReplaceAll(found[1], "\t", "  "))/2+1, len(open)+1, listLevels)
		for ; len(open) > level; open = open[:len(open)-1] {
			m.out.WriteString("</" + open[len(open)-1] + ">")
		}
		if len(open) < level {
			open = append(open, kind)
			m.out.WriteString("<" + kind + ">")
		}
		for box, sign := range map[string]string{"[ ] ": "☐ ", "[x] ": "☑ "} {
			if rest, ok := strings.CutPrefix(text, box); ok {
				text = sign + rest
			}
		}
		m.element("li", inline(text))
	}
	for i := len(open) - 1; i >= 0; i-- {
		m.out.WriteString("</" + open[i] + ">\n")
	}
}

var (
	mdCode  = regexp.MustCompile("`[^`]+`")
	mdMarks = []struct {
		of *regexp.Regexp
		as string
	}{
		{regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]*)[^)]*\)`), "[image: $1 ($2)]"},
		{regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]*)[^)]*\)`), "<u>$1</u> ($2)"},
		{regexp.MustCompile(`\*\*([^*]+)\*\*`), "<strong>$1</strong>"},
		{regexp.MustCompile(`\b__([^_]+)__\b`), "<strong>$1</strong>"},
		{regexp.MustCompile(`\*([^*\s][^*]*)\*`), "<em>$1</em>"},
		{regexp.MustCompile(`\b_([^_\s][^_]*)_\b`), "<em>$1</em>"},
		{regexp.MustCompile(`~~([^~]+)~~`), "<del>$1</del>"},
	}
)

// inline returns text with its emphasis, code, links and images. A mark is looked for in escaped
// text, which has none of the characters of elements.
func inline(text string) string {
	var b strings.Builder
	plain := func(s string) {
		s = html.EscapeString(s)
		for _, mark := range mdMarks {
			s = mark.of.ReplaceAllString(s, mark.as)
		}
		b.WriteString(s)
	}
	text, at := strings.TrimSpace(text), 0
	for _, found := range mdCode.FindAllStringIndex(text, -1) {
		plain(text[at:found[0]])
		b.WriteString("<code>" + html.EscapeString(text[found[0]+1:found[1]-1]) + "</code>")
		at = found[1]
	}
	plain(text[at:])
	return b.String()
}
