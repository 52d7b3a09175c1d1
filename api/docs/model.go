package docs

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"secbox/access/tokens"
	"secbox/api/contract"
	"secbox/fault"
)

// The data of the template. prose has escaped the text in HTML fields.
type (
	model struct {
		Title   string
		Intro   template.HTML
		Open    bool // no token is needed
		CSS     template.CSS
		Roles   []tokens.Role
		Groups  []group
		Schemas []schema
		Codes   []errorCode
		Refused *fault.Error
	}
	group struct {
		Name       string
		Intro      template.HTML
		Operations []operationDoc
	}
	operationDoc struct {
		ID, Method, Path, Summary string
		Segments                  []string // of the path, for line breaks between them
		Public                    bool
		May                       []bool // by model.Roles
		Roles                     []tokens.Role
		Text                      template.HTML
		Parameters                []field
		Body                      template.HTML // the body's type
		Curl                      string
		Responses                 []response
		Example                   string // of the successful answer
		ExampleStatus             string
	}
	response struct {
		Status  string
		Good    bool
		Text    template.HTML
		Types   []mediaContent
		Headers []field
	}
	mediaContent struct {
		Media string
		Type  template.HTML
	}
	schema struct {
		Name   string
		Text   template.HTML
		Fields []field
		Type   template.HTML // of a schema that is not an object
	}
	field struct {
		Name, Where string
		Required    bool
		Type        template.HTML
		Text        template.HTML
		Bounds      string
		Values      []string
		Default     string
		Example     string
	}
	errorCode struct {
		Code    fault.Code
		Status  int
		Meaning string
	}
)

func documentOperation(op contract.Operation) operationDoc {
	out := operationDoc{
		ID: op.ID, Method: op.Method, Path: op.Path, Summary: op.Spec.Get("summary").Text(),
		Segments: strings.Split(op.Path, "/")[1:],
		Text:     prose(op.Spec.Get("description").Text()), Public: op.Public, Roles: op.Roles,
	}
	for _, role := range tokens.Roles() {
		out.May = append(out.May, op.Allows(role))
	}
	for _, p := range op.Parameters() {
		f := documentField(p.Get("name").Text(), p.Raw("schema"), p.Get("required").Text() == "true")
		f.Where, f.Text, f.Example = p.Get("in").Text(), prose(p.Get("description").Text()), p.Get("example").Text()
		out.Parameters = append(out.Parameters, f)
	}
	for _, body := range op.Spec.Get("requestBody", "content").Entries() {
		out.Body = typeOf(body.Raw("schema"))
	}
	for _, r := range op.Spec.Get("responses").Entries() {
		resp := response{Status: r.Key, Good: r.Key < "400", Text: prose(r.Get("description").Text())}
		for _, content := range r.Get("content").Entries() {
			resp.Types = append(resp.Types, mediaContent{content.Key, typeOf(content.Raw("schema"))})
			if example := content.Get("example"); example.Exists() && resp.Good && out.Example == "" {
				out.Example, out.ExampleStatus = example.JSON(), r.Key
			}
		}
		for _, h := range r.Get("headers").Entries() {
			resp.Headers = append(resp.Headers, field{Name: h.Key, Text: prose(h.Get("description").Text())})
		}
		out.Responses = append(out.Responses, resp)
	}
	return out
}

func documentSchema(s contract.Entry) schema {
	out := schema{Name: s.Key, Text: prose(s.Get("description").Text())}
	required := s.Get("required").Strings()
	for _, p := range s.Get("properties").Entries() {
		written := s.Get("properties").Raw(p.Key)
		out.Fields = append(out.Fields, documentField(p.Key, written, slices.Contains(required, p.Key)))
	}
	if len(out.Fields) == 0 {
		out.Type = typeOf(s.Node)
	}
	return out
}

func documentField(name string, written contract.Node, required bool) field {
	s := written.Follow()
	f := field{
		Name: name, Required: required, Type: typeOf(written), Text: prose(s.Get("description").Text()),
		Default: s.Get("default").Text(), Bounds: bounds(s),
	}
	if written.Ref() == "" {
		f.Values = s.Get("enum").Strings()
	}
	if e := s.Get("example"); e.Exists() && written.Ref() == "" && e.OneLine() != `""` {
		f.Example = e.OneLine()
	}
	return f
}

// typeOf describes a schema's type in a few words, or links to it if it has a name.
func typeOf(s contract.Node) template.HTML {
	if name := s.Ref(); name != "" {
		return template.HTML(fmt.Sprintf(`<a href="#schema-%[1]s">%[1]s</a>`, template.HTMLEscapeString(name))) //nolint:gosec // escaped
	}
	orNull := template.HTML("")
	if s.Get("nullable").Text() == "true" {
		orNull = " or null"
	}
	if all := s.Get("allOf").List(); len(all) > 0 {
		return typeOf(all[0]) + orNull
	}
	format := s.Get("format").Text()
	switch t := s.Get("type").Text(); {
	case t == "array":
		return "list of " + typeOf(s.Raw("items")) + orNull
	case t == "object" && s.Get("additionalProperties").Get("type").Exists(), t == "object" && s.Raw("additionalProperties").Ref() != "":
		return "object of " + typeOf(s.Raw("additionalProperties")) + orNull
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

func bounds(s contract.Node) string {
	var out []string
	for _, b := range []struct{ key, sign string }{{"minimum", "≥ "}, {"maximum", "≤ "}, {"maxLength", "at most "}} {
		if v := s.Get(b.key).Text(); v != "" {
			switch {
			case b.key == "maxLength":
				v += " characters"
			case b.key == "minimum" && s.Get("exclusiveMinimum").Text() == "true":
				b.sign = "> "
			}
			out = append(out, b.sign+v)
		}
	}
	return strings.Join(out, ", ")
}

// prose turns the document's Markdown into HTML: paragraphs and `code`, nothing else.
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
