package ui

import (
	"context"
	"io"

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

	Problem *fault.Error // why what was asked was refused; shown above Body, and its fields beside their inputs; nil: it was not
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
	CSRF    string // for the forms of the page
}

func (f Frame) body() templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		return f.Body.Render(withProblem(ctx, f.Problem), w)
	})
}

// NavItem is an entry of the navigation.
type NavItem struct {
	Label   string
	To      Address
	Current bool
}

type problemKey struct{}

// withProblem returns a context whose inputs show why their values were refused.
func withProblem(ctx context.Context, problem *fault.Error) context.Context {
	return context.WithValue(ctx, problemKey{}, problem)
}

// hasProblem reports whether the page says why what was asked was refused.
func hasProblem(ctx context.Context) bool {
	problem, _ := ctx.Value(problemKey{}).(*fault.Error)
	return problem != nil
}

// wrong returns why the value of an input was refused; empty if it was not.
func wrong(ctx context.Context, name string) string {
	problem, _ := ctx.Value(problemKey{}).(*fault.Error)
	if problem == nil {
		return ""
	}
	for _, f := range problem.Fields {
		if f.Field == name {
			return f.Reason
		}
	}
	return ""
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
