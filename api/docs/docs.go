// Package docs makes the pages that describe the API from openapi.yaml: the page at /docs with its
// script and icon, the published document itself, and the page for browsers on an unknown route. It
// must not know handlers.
package docs

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"slices"
	"sync"

	"secbox/access/tokens"
	"secbox/api/content"
	"secbox/api/contract"
	"secbox/api/problem"
	"secbox/fault"
	"secbox/internal/icon"
)

//go:embed page.html.tmpl
var pageTemplate string

//go:embed page.css
var styleSheet string

//go:embed page.js
var script []byte

//go:embed notfound.html.tmpl
var notFoundTemplate string

//go:embed refusal.html.tmpl
var refusalTemplate string

// Pages are the pages of one server. The functions make a page on their first call.
type Pages struct {
	YAML, JSON func() (content.Page, error) // the published document
	Tokenless  func() (content.Page, error) // /docs for a caller that needs no token
	Token      func() (content.Page, error) // /docs for every other caller
	Script     content.Page
	Icon       content.Page
	NotFound   content.Page

	title string
}

// New makes the pages. Examples go to listenAddr; the paths in noExample have none, because they
// speak a protocol other than plain HTTP.
func New(c *contract.Contract, listenAddr string, noExample ...string) (*Pages, error) {
	title := c.Doc.Get("info", "title").Text()
	notFound, err := htmlPage(notFoundTemplate, model{Title: title, CSS: template.CSS(styleSheet)}, "")
	if err != nil {
		return nil, err
	}
	docs := func(open bool) func() (content.Page, error) {
		return sync.OnceValues(func() (content.Page, error) { return docsPage(c, baseURL(listenAddr), open, noExample) })
	}
	return &Pages{
		YAML: sync.OnceValues(func() (content.Page, error) {
			text, err := c.Published().YAML()
			return content.NewPage("application/yaml; charset=utf-8", text, problem.CSP).Compressed(), err
		}),
		JSON: sync.OnceValues(func() (content.Page, error) {
			return content.NewPage("application/json", []byte(c.Published().JSON()+"\n"), problem.CSP).Compressed(), nil
		}),
		Tokenless: docs(true), Token: docs(false),
		Script:   content.NewPage("text/javascript; charset=utf-8", script, problem.CSP).Compressed(),
		Icon:     content.NewPage("image/svg+xml", icon.SVG, problem.CSP),
		NotFound: notFound, title: title,
	}, nil
}

// Refusal makes the page for a browser that was refused on its way to the console. It has its style
// in itself: the browser may load nothing else.
func (p *Pages) Refusal(e *fault.Error) (content.Page, error) {
	return htmlPage(refusalTemplate, model{Title: p.title, CSS: template.CSS(styleSheet), Refused: e}, "")
}

// docsPage makes the page at /docs. Its examples carry a token unless open.
func docsPage(c *contract.Contract, base string, open bool, noExample []string) (content.Page, error) {
	m := model{
		Open: open, Title: c.Doc.Get("info", "title").Text(), Intro: prose(c.Doc.Get("info", "description").Text()),
		CSS: template.CSS(styleSheet), Roles: tokens.Roles(), //nolint:gosec // our own style sheet
	}
	for _, tag := range c.Doc.Get("tags").List() {
		g := group{Name: tag.Get("name").Text(), Intro: prose(tag.Get("description").Text())}
		for _, op := range c.Operations {
			if slices.Contains(op.Spec.Get("tags").Strings(), g.Name) {
				doc := documentOperation(op)
				if !slices.Contains(noExample, op.Path) {
					doc.Curl = curl(op, base, !op.Public && !open)
				}
				g.Operations = append(g.Operations, doc)
			}
		}
		m.Groups = append(m.Groups, g)
	}
	for _, s := range c.Doc.Get("components", "schemas").Entries() {
		m.Schemas = append(m.Schemas, documentSchema(s))
	}
	for _, code := range c.Doc.Get("components", "schemas", "ErrorCode", "enum").Strings() {
		m.Codes = append(m.Codes, errorCode{fault.Code(code), fault.HTTPStatus(fault.Code(code)), fault.Title(fault.Code(code))})
	}
	page, err := htmlPage(pageTemplate, m, "; script-src 'self'; img-src 'self'")
	return page.Compressed(), err
}

// htmlPage executes a template. The page's Content-Security-Policy allows the style sheet and what
// moreCSP adds.
func htmlPage(text string, m model, moreCSP string) (content.Page, error) {
	tmpl, err := template.New("").Parse(text)
	if err != nil {
		return content.Page{}, fault.Wrap(fault.Internal, err, "cannot parse a template of the documentation")
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, m); err != nil {
		return content.Page{}, fault.Wrap(fault.Internal, err, "cannot execute a template of the documentation")
	}
	sum := sha256.Sum256([]byte(styleSheet))
	csp := problem.CSP + "; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'" + moreCSP
	return content.NewPage("text/html; charset=utf-8", b.Bytes(), csp), nil
}
