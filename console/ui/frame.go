package ui

import (
	"context"

	"github.com/a-h/templ"
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

// NavItem is an entry of the navigation.
type NavItem struct {
	Label   string
	To      Address
	Current bool
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
