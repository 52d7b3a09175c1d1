package ui

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"secbox/fault"
)

// A Page is the content of a page, without the frame.
type Page struct {
	Title   string
	Crumbs  []Crumb         // from the root to the parent of the page; empty for a page of the navigation
	Actions templ.Component // beside the heading; may be nil
	Badge   templ.Component // after the heading; may be nil
	Body    templ.Component
	Status  int  // of the answer; 0: 200
	Live    bool // the page has the script live.js
	Cast    bool // the page has the script cast.js

	Problem *fault.Error // why what was asked was refused: shown above Body, with the fields that have no input there; nil: it was not
}

// A Crumb is a page above the current one.
type Crumb struct {
	Label string
	To    Address
}

// A Frame is around a page.
type Frame struct {
	Page
	Nav     []NavItem
	Caller  string // the name of the signed-in token; empty: not signed in
	Role    string
	SignOut bool // there is a session to end
	Version string
	Banner  templ.Component // above the page; nil: none
	CSRF    string          // for the forms of the page
}

// body is the page's content, below the reasons of its Problem that are not beside an input.
func (f Frame) body() templ.Component {
	if f.Problem == nil {
		return f.Body
	}
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		shown := &refusal{problem: f.Problem, beside: map[string]bool{}}
		var body bytes.Buffer
		if err := f.Body.Render(context.WithValue(ctx, refusalKey{}, shown), &body); err != nil {
			return err
		}
		if err := problem(shown).Render(ctx, w); err != nil {
			return err
		}
		_, err := body.WriteTo(w)
		return err
	})
}

// NavItem is an entry of the navigation.
type NavItem struct {
	Label   string
	To      Address
	Current bool
}

type refusalKey struct{}

// refusal is a page's Problem, with the fields whose reasons stand beside their inputs.
type refusal struct {
	problem *fault.Error
	beside  map[string]bool
}

// hasProblem reports whether the page says why what was asked was refused.
func hasProblem(ctx context.Context) bool {
	_, ok := ctx.Value(refusalKey{}).(*refusal)
	return ok
}

// fieldReason returns why the value of an input was refused, which the input shows; empty if it was
// not.
func fieldReason(ctx context.Context, name string) string {
	r, _ := ctx.Value(refusalKey{}).(*refusal)
	if r == nil {
		return ""
	}
	for _, f := range r.problem.Fields {
		if f.Field == name {
			r.beside[f.Field] = true
			return f.Reason
		}
		if strings.HasPrefix(f.Field, name+"[") { // one of a list that is typed into one input
			r.beside[f.Field] = true
			return f.Field + " " + f.Reason
		}
	}
	return ""
}

// elsewhere are the fields that have no input.
func (r *refusal) elsewhere() []fault.Field {
	if r.problem.Code == fault.InvalidCursor {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.problem.Fields), func(f fault.Field) bool { return r.beside[f.Field] })
}

// says begins the list of the fields that have no input.
func (r *refusal) says() string {
	switch {
	case r.problem.Code == fault.InvalidCursor:
		return "This is not a page of this list. Show its newest page."
	case len(r.elsewhere()) == len(r.problem.Fields):
		return "This was refused. Correct this:"
	case len(r.elsewhere()) > 0:
		return "This was refused. Correct what is marked below, and this:"
	}
	return "This was refused. Correct what is marked below."
}

type csrfKey struct{}

// WithCSRF returns a context whose Forms have the token.
func WithCSRF(ctx context.Context, token string) context.Context {
	return context.WithValue(ctx, csrfKey{}, token)
}

func csrf(ctx context.Context) string {
	token, _ := ctx.Value(csrfKey{}).(string)
	return token
}

// CSRFField is the name of the field with the token in every form.
const CSRFField = "csrf_token"
