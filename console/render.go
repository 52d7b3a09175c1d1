package console

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"unicode/utf8"

	"secbox/console/ui"
	"secbox/console/view"
)

const (
	renderMost  = 256 << 10 // bytes of a Markdown or JSON file that is rendered; larger ones are shown as text
	renderPrice = 48        // memory that one byte takes: JSON of jsonDepth levels has an indent of as many bytes
	jsonDepth   = 32
	tableRows   = 1000
	tableCells  = 50  // of a row
	cellRunes   = 500 // of a cell
)

// textFormat is how a format of text is shown as its writers mean it. A rendering makes HTML that
// has no attributes, so no addresses, and is shown where nothing runs and nothing is loaded.
type textFormat struct {
	name string
	most int64                                      // bytes of a file
	html func(text []byte) (body string, err error) // after an error, the file is shown as text
}

// textFormats are the formats by extension.
var textFormats = map[string]textFormat{
	".md": markdownText, ".markdown": markdownText,
	".csv":  {"CSV", 1 << 50, func(text []byte) (string, error) { return table(text, ',') }},
	".tsv":  {"TSV", 1 << 50, func(text []byte) (string, error) { return table(text, '\t') }},
	".json": {"JSON", renderMost, indented},
}

var markdownText = textFormat{"Markdown", renderMost, markdownBody}

// document is a page around a rendering.
func document(body string) []byte {
	return []byte(ui.Visible(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">` +
		`<title>Content</title><style>` + documentStyle + `</style></head><body>` + body + `</body></html>`))
}

const documentStyle = `body{margin:1rem;font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}table{border-collapse:collapse}` +
	`td,th{border:1px solid #8886;padding:.2rem .5rem;text-align:left;vertical-align:top}thead th{position:sticky;top:0;background:Canvas}` +
	`pre,code{font:.92em/1.4 ui-monospace,monospace}pre{white-space:pre-wrap;tab-size:8}blockquote{border-left:3px solid #8886;margin-left:0;padding-left:1rem}`

// indented returns JSON with an element in each line.
func indented(text []byte) (string, error) {
	depth, most, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '[' || c == '{':
			depth++
			most = max(most, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	if most > jsonDepth {
		return "", fmt.Errorf("%d levels", most)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimPrefix(text, []byte("\ufeff")), "", " "); err != nil {
		return "", err
	}
	return "<pre>" + html.EscapeString(b.String()) + "</pre>", nil
}

// table returns the first rows of a file of values.
func table(text []byte, comma rune) (string, error) {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	r.Comma, r.LazyQuotes, r.FieldsPerRecord, r.ReuseRecord = comma, true, -1, true
	var b strings.Builder
	cut, short := false, false
	row := func(values []string, cell string) {
		b.WriteString("<tr>")
		for i, value := range values {
			if cut = cut || i == tableCells; i == tableCells {
				break
			}
			short = short || utf8.RuneCountInString(value) > cellRunes
			b.WriteString("<" + cell + ">" + html.EscapeString(ui.Cut(value, cellRunes)) + "</" + cell + ">")
		}
		b.WriteString("</tr>")
	}
	for n := 0; ; n++ {
		values, err := r.Read()
		if err != nil || n == tableRows {
			cut = cut || err == nil
			break
		}
		if n == 0 {
			b.WriteString("<table><thead>")
			row(values, "th")
			b.WriteString("</thead><tbody>")
			continue
		}
		row(values, "td")
	}
	b.WriteString("</tbody></table>")
	if cut {
		fmt.Fprintf(&b, "<p>The first %s rows and %d columns are shown.</p>", ui.Count(tableRows), tableCells)
	}
	if short { // a quote that nothing closes makes a cell of all that follows
		b.WriteString("<p>Long cells are cut, and may have rows in them. The text has all.</p>")
	}
	return b.String(), nil
}

// render returns the document of a text in a format that has a rendering; false if it is shown as
// text.
func render(p view.Preview) ([]byte, bool) {
	if p.Format == "" {
		return nil, false
	}
	body, err := textFormats[p.Format].html(p.Raw)
	return document(body), err == nil
}
