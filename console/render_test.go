package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"secbox/console"
)

// anyAttribute is an attribute of a start tag.
var anyAttribute = regexp.MustCompile(`<[a-z0-9]+\s[^>]*>`)

// TestRenderings: Markdown, CSV and JSON are shown as their writers mean them, without attributes,
// addresses and HTML of the file; the text is one click away.
func TestRenderings(t *testing.T) {
	t.Parallel()
	f := fullApp()
	files := []struct {
		name, content string
		want, not     []string
	}{
		{
			"a.md", "# Head\n\nA *word*, [a link](https://evil.example/x) and ![a picture](https://evil.example/y.png)\n\n<script>0</script>\n\n" +
				"- [x] done\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```html\n<img src=x>\n```\n\n[j](javascript:0) \u202e\n",
			[]string{
				"<h1>Head</h1>", "<em>word</em>", "<u>a link</u> (https://evil.example/x)", "[image: a picture (https://evil.example/y.png)]",
				"&lt;script&gt;0&lt;/script&gt;", "☑ ", "<td>1</td>", "&lt;img src=x&gt;", "⟨U+202E⟩",
			},
			[]string{"<script", "<img", "<a", "<input", "\u202e"},
		},
		{
			"a.csv", "name,note\n\"a, b\",<b>bold</b>\n" + strings.Repeat("x,y\n", 1200),
			[]string{"<th>name</th><th>note</th>", "<td>a, b</td><td>&lt;b&gt;bold&lt;/b&gt;</td>", "The first 1,000 rows"},
			[]string{"<b>"},
		},
		{"wide.tsv", strings.Repeat("c\t", 60) + "\n", []string{"<th>c</th>", "and 50 columns are shown"}, nil},
		{"broken.csv", "a,\"b\nc", []string{"<th>a</th>"}, nil},
		{"a.json", `{"a":[1,"<b>"]}`, []string{"<pre>{\n &#34;a&#34;: [\n  1,\n  &#34;&lt;b&gt;&#34;\n ]\n}</pre>"}, []string{"<b>"}},
	}
	plain := []struct{ name, content string }{
		{"broken.json", `{"a":`},
		{"deep.json", strings.Repeat("[", 33) + strings.Repeat("]", 33)},
		{"large.json", `"` + strings.Repeat("x", 300<<10) + `"`},
		{"large.md", strings.Repeat("# x\n", 100<<10)},
		{"nul.md", "a\x00"},
	}
	for _, file := range files {
		f.addFile(file.name, file.content)
	}
	for _, file := range plain {
		f.addFile(file.name, file.content)
	}
	v := newVisitor(t, f.serve(t))
	for _, file := range files {
		resp, body := v.get(fileURL("view", file.name))
		h := resp.Header
		if resp.StatusCode != http.StatusOK || h.Get("Content-Type") != "text/html; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox; default-src 'none'; ") {
			t.Errorf("%s: %d, %v", file.name, resp.StatusCode, h)
		}
		for _, want := range file.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s has no %q: %.2000s", file.name, want, body)
			}
		}
		_, shown, _ := strings.Cut(body, "<body>")
		for _, not := range file.not {
			if strings.Contains(shown, not) {
				t.Errorf("%s has %q: %.2000s", file.name, not, shown)
			}
		}
		if found := anyAttribute.FindString(shown); found != "" {
			t.Errorf("%s has %q", file.name, found)
		}
		if resp, body := v.get(fileURL("view", file.name) + "?as=text"); resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" ||
			!strings.HasPrefix(body, file.content[:5]) {
			t.Errorf("%s as text: %v, %.80q", file.name, resp.Header, body)
		}
		if _, page := v.get(fileURL("show", file.name) + "?as=text"); !strings.Contains(page, `?as=text" title=`) {
			t.Errorf("the page of %s as text shows it otherwise", file.name)
		}
	}
	for _, file := range plain {
		if resp, _ := v.get(fileURL("view", file.name)); resp.Header.Get("Content-Type") == "text/html; charset=utf-8" && resp.StatusCode == http.StatusOK {
			t.Errorf("%s has a rendering", file.name)
		}
	}
	if resp, _ := v.get(fileURL("show", "a.md") + "?as=html"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("as=html: %d", resp.StatusCode)
	}
	f.addFile("a.pdf", "%PDF-1.7\n")
	f.addFile("b.pdf", "<script>0</script>")
	resp, _ := v.get(fileURL("view", "a.pdf"))
	if h := resp.Header; h.Get("Content-Type") != "application/pdf" || h.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'; ") ||
		!strings.HasSuffix(h.Get("Content-Security-Policy"), "frame-ancestors 'self'") {
		t.Errorf("a PDF: %v", h)
	}
	if _, page := v.get(fileURL("show", "b.pdf")); !strings.Contains(page, "Its name says PDF, but its content is no PDF.") ||
		strings.Contains(page, "<iframe") {
		t.Error("what is no PDF is shown as one")
	}
}

// renderedTag is an element that a rendering may have: none has attributes.
var renderedTag = regexp.MustCompile(`</?(?:p|h[1-6]|ul|ol|li|pre|code|em|strong|del|u|blockquote|hr|table|thead|tbody|tr|th|td)>`)

// FuzzRenderings: whatever a file contains, its rendering has no attributes and no other elements.
func FuzzRenderings(f *testing.F) {
	for _, text := range []string{
		"# a\n\n- [x] *b* **c** ~~d~~ `e` [f](g) ![h](i)\n  1. j\n\n> k\n\n```\nl\n```\n|m|n|\n|-|-|\n|o|p|\n---\n",
		"a,\"b\nc\",d\n", `{"a": ["<b>", 1e9]}`, "<script>0</script>", "**a *b** c*", "`<`<`",
		"[<](<\">)", "|<|\n|-|\n|\"|\n", "\xff\x00\u202e", "- \n>\n#\n```",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for ext, render := range console.Renderings() {
			out, err := render([]byte(text))
			if rest := renderedTag.ReplaceAllString(out, ""); err == nil && strings.ContainsAny(rest, "<>") {
				t.Errorf("%s: %.600q", ext, out)
			}
		}
	})
}
