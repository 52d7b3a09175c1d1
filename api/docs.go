package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/tokens"
)

//go:embed docs.html.tmpl
var docsTemplate string

//go:embed docs.css
var docsCSS string

//go:embed docs.js
var docsScript []byte

//go:embed notfound.html.tmpl
var notFoundTemplate string

// What the template is given. Text in HTML fields was escaped by prose.
type (
	docsModel struct {
		Title   string
		Intro   template.HTML
		Open    bool // no token is needed
		CSS     template.CSS
		Roles   []tokens.Role
		Groups  []docsGroup
		Schemas []docsSchema
		Codes   []docsCode
	}
	docsGroup struct {
		Name       string
		Intro      template.HTML
		Operations []docsOperation
	}
	docsOperation struct {
		ID, Method, Path, Summary string
		Segments                  []string // of the path, so that it can be broken between them
		Public                    bool
		May                       []bool // by docsModel.Roles
		Roles                     []tokens.Role
		Text                      template.HTML
		Parameters                []docsField
		Body                      template.HTML // the body's type
		Curl                      string
		Responses                 []docsResponse
		Example                   string // of the good answer
		ExampleStatus             string
	}
	docsResponse struct {
		Status  string
		Good    bool
		Text    template.HTML
		Types   []docsContent
		Headers []docsField
	}
	docsContent struct {
		Media string
		Type  template.HTML
	}
	docsSchema struct {
		Name   string
		Text   template.HTML
		Fields []docsField
		Type   template.HTML // when it is no object
	}
	docsField struct {
		Name, Where string
		Required    bool
		Type        template.HTML
		Text        template.HTML
		Bounds      string
		Values      []string
		Default     string
		Example     string
	}
	docsCode struct {
		Code    fault.Code
		Status  int
		Meaning string
	}
)

// docsPage makes the page from the contract. The examples go to base, and carry a token unless the server is open.
func docsPage(c *contract, base string, open bool) (page, error) {
	m := docsModel{
		Open: open, Title: c.doc.get("info", "title").text(), Intro: prose(c.doc.get("info", "description").text()),
		CSS: template.CSS(docsCSS), Roles: tokens.Roles(), //nolint:gosec // our own style sheet
	}
	for _, tag := range c.doc.get("tags").list() {
		g := docsGroup{Name: tag.get("name").text(), Intro: prose(tag.get("description").text())}
		for _, op := range c.operations {
			if slices.Contains(op.spec.get("tags").strings(), g.Name) {
				g.Operations = append(g.Operations, documentOperation(op, base, open))
			}
		}
		m.Groups = append(m.Groups, g)
	}
	for _, s := range c.doc.get("components", "schemas").entries() {
		m.Schemas = append(m.Schemas, documentSchema(s))
	}
	for _, code := range c.doc.get("components", "schemas", "ErrorCode", "enum").strings() {
		m.Codes = append(m.Codes, docsCode{fault.Code(code), fault.HTTPStatus(fault.Code(code)), fault.Title(fault.Code(code))})
	}

	return htmlPage(docsTemplate, m, "; script-src 'self'")
}

// notFoundPage is for browsers, where the router knows no route.
func notFoundPage(c *contract) (page, error) {
	return htmlPage(notFoundTemplate, docsModel{Title: c.doc.get("info", "title").text(), CSS: template.CSS(docsCSS)}, "") //nolint:gosec // our own style sheet
}

// htmlPage executes a template. Its Content-Security-Policy allows our style sheet, and more is appended to it.
func htmlPage(text string, m docsModel, more string) (page, error) {
	tmpl, err := template.New("").Parse(text)
	if err != nil {
		return page{}, fault.Wrap(fault.Internal, err, "a template of the documentation is broken")
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, m); err != nil {
		return page{}, fault.Wrap(fault.Internal, err, "a page of the documentation cannot be made")
	}
	sum := sha256.Sum256([]byte(docsCSS))
	csp := basicCSP + "; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'" + more
	return newPage("text/html; charset=utf-8", b.Bytes(), csp), nil
}

func documentOperation(op operation, base string, open bool) docsOperation {
	out := docsOperation{
		ID: op.id, Method: op.method, Path: op.path, Summary: op.spec.get("summary").text(),
		Segments: strings.Split(op.path, "/")[1:],
		Text:     prose(op.spec.get("description").text()), Public: op.public, Roles: op.roles, Curl: curl(op, base, !op.public && !open),
	}
	for _, role := range tokens.Roles() {
		out.May = append(out.May, op.allows(role))
	}
	for _, p := range op.spec.get("parameters").list() {
		p = p.follow()
		f := documentField(p.get("name").text(), p.raw("schema"), p.get("required").text() == "true")
		f.Where, f.Text, f.Example = p.get("in").text(), prose(p.get("description").text()), p.get("example").text()
		out.Parameters = append(out.Parameters, f)
	}
	for _, body := range op.spec.get("requestBody", "content").entries() {
		out.Body = typeOf(body.raw("schema"))
	}
	for _, r := range op.spec.get("responses").entries() {
		resp := docsResponse{Status: r.key, Good: r.key < "400", Text: prose(r.get("description").text())}
		for _, content := range r.get("content").entries() {
			resp.Types = append(resp.Types, docsContent{content.key, typeOf(content.raw("schema"))})
			if example := content.get("example"); example.exists() && resp.Good && out.Example == "" {
				out.Example, out.ExampleStatus = example.json(), r.key
			}
		}
		for _, h := range r.get("headers").entries() {
			resp.Headers = append(resp.Headers, docsField{Name: h.key, Text: prose(h.get("description").text())})
		}
		out.Responses = append(out.Responses, resp)
	}
	return out
}

func documentSchema(s entry) docsSchema {
	out := docsSchema{Name: s.key, Text: prose(s.get("description").text())}
	required := s.get("required").strings()
	for _, p := range s.get("properties").entries() {
		written := s.get("properties").raw(p.key)
		out.Fields = append(out.Fields, documentField(p.key, written, slices.Contains(required, p.key)))
	}
	if len(out.Fields) == 0 {
		out.Type = typeOf(s.node)
		out.Fields = nil
	}
	return out
}

func documentField(name string, written node, required bool) docsField {
	s := written.follow()
	f := docsField{
		Name: name, Required: required, Type: typeOf(written), Text: prose(s.get("description").text()),
		Default: s.get("default").text(), Bounds: bounds(s),
	}
	if written.ref() == "" {
		f.Values = s.get("enum").strings()
	}
	if e := s.get("example"); e.exists() && written.ref() == "" && e.oneLine() != `""` {
		f.Example = e.oneLine()
	}
	return f
}

// typeOf is a schema's type in a few words, with a link where it has a name.
func typeOf(s node) template.HTML {
	if name := s.ref(); name != "" {
		return template.HTML(fmt.Sprintf(`<a href="#schema-%[1]s">%[1]s</a>`, template.HTMLEscapeString(name))) //nolint:gosec // escaped
	}
	orNull := template.HTML("")
	if s.get("nullable").text() == "true" {
		orNull = " or null"
	}
	if all := s.get("allOf").list(); len(all) > 0 {
		return typeOf(all[0]) + orNull
	}
	format := s.get("format").text()
	switch t := s.get("type").text(); {
	case t == "array":
		return "list of " + typeOf(s.raw("items")) + orNull
	case t == "object" && s.get("additionalProperties").get("type").exists(), t == "object" && s.raw("additionalProperties").ref() != "":
		return "object of " + typeOf(s.raw("additionalProperties")) + orNull
	case t == "":
		return "any" + orNull
	case t == "string" && format == "binary":
		return "bytes"
	case t == "string" && format != "" || t == "number":
		return template.HTML(template.HTMLEscapeString(strings.TrimSpace(t+" "+format))) + orNull //nolint:gosec // escaped
	default:
		return template.HTML(template.HTMLEscapeString(t)) + orNull //nolint:gosec // escaped
	}
}

func bounds(s node) string {
	var out []string
	for _, b := range []struct{ key, sign string }{{"minimum", "≥ "}, {"maximum", "≤ "}, {"maxLength", "at most "}} {
		if v := s.get(b.key).text(); v != "" {
			switch {
			case b.key == "maxLength":
				v += " characters"
			case b.key == "minimum" && s.get("exclusiveMinimum").text() == "true":
				b.sign = "> "
			}
			out = append(out, b.sign+v)
		}
	}
	return strings.Join(out, ", ")
}

// anyType is how the contract declares a body whose Content-Type does not matter.
const anyType = "*/*"

// curl is a command that works when pasted into a POSIX shell; empty for routes that speak a protocol of their own.
func curl(op operation, base string, token bool) string {
	if slices.Contains([]string{mcpPath, linkPath, transferPath}, op.path) {
		return ""
	}
	path, query, lines := op.path, []string(nil), []string(nil)
	for _, p := range op.spec.get("parameters").list() {
		p = p.follow()
		name, example := p.get("name").text(), p.get("example").text()
		switch p.get("in").text() {
		case "path":
			if name == "exec_id" {
				example = "$EXEC_ID"
			}
			path = strings.ReplaceAll(path, "{"+name+"}", example)
		case "query":
			if slices.Contains(op.needs, name) {
				query = append(query, name+"="+example)
			}
		}
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	if op.method != "GET" {
		lines = append([]string{"-X " + op.method}, lines...)
	}
	if token {
		lines = append(lines, `-H "Authorization: Bearer $TOKEN"`)
	}
	if body := op.spec.get("requestBody", "content", "application/json", "example"); body.exists() {
		lines = append(lines, "-H 'Content-Type: application/json'", "-d '"+strings.ReplaceAll(body.json(), "'", `'\''`)+"'")
	}
	if op.takes("multipart/form-data") {
		lines = append(lines, "-F file=@weather_skill.zip")
	}
	if body := op.spec.get("requestBody", "content", anyType, "example"); body.exists() {
		lines = append(lines, "-H 'Content-Type: text/plain'", "--data-binary '"+body.text()+"'")
	}
	flags := "-sS"
	if good := op.spec.get("responses", "200"); good.get("headers", "Content-Disposition").exists() && !good.get("content", "application/json").exists() {
		flags += "OJ" // a file
	}
	return strings.Join(append([]string{"curl " + flags + ` "` + base + path + `"`}, lines...), " \\\n  ")
}

// baseURL is where the examples go: the server itself when it is on loopback, else the default address.
func baseURL(listenAddr string) string {
	host, port, err := net.SplitHostPort(listenAddr)
	if err != nil || port == "0" || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return "http://127.0.0.1:8003"
	}
	return "http://" + listenAddr
}

// prose turns the contract's plain Markdown into HTML: paragraphs and `code`, nothing else.
func prose(s string) template.HTML {
	var b strings.Builder
	paragraphs := strings.Split(strings.TrimSpace(s), "\n\n")
	for _, p := range paragraphs {
		if len(paragraphs) > 1 {
			b.WriteString("<p>")
		}
		for i, part := range strings.Split(p, "`") {
			part = template.HTMLEscapeString(part)
			if i%2 == 1 {
				part = "<code>" + part + "</code>"
			}
			b.WriteString(part)
		}
		if len(paragraphs) > 1 {
			b.WriteString("</p>")
		}
	}
	return template.HTML(b.String()) //nolint:gosec // escaped above
}
