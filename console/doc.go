// Package console is the web pages below /console: history that people can look at. Pages are made
// on the server, work without a script, and load nothing from elsewhere.
//
// Start with routes.go, the list of all pages, then needs.go (what the pages ask of the
// application) and one page, runners.go with view/runners.templ. A page is a function from a
// request to a ui.Page, in a file of its noun. The package does the rest around it: who the caller
// is, whether the role is enough, parameters, limits, the frame, errors as pages, and the token of
// forms.
//
//   - view: the templates of pages, and the structs that they show
//   - ui: the parts of pages: the frame, tables, times, states, ids and output
//   - assets: the style sheet, the scripts and htmx, embedded
//
// The room must not know how records are kept or how a command runs: it calls what api calls.
package console

//go:generate go run github.com/a-h/templ/cmd/templ@v0.3.977 generate -path .
