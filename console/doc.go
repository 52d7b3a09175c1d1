// Package console is the web pages below /console: history that people can look at. Pages are made
// on the server, work without a script, and load nothing from elsewhere.
//
// routes.go is the list of all pages. A page is a function from a request to a ui.Page, in a file of its noun; its templates, and the structs that they
// show, are in package view. This package does the rest around it: who the caller is and whether the role is enough, parameters, limits, the frame, errors
// as pages, the token of forms. The package must not know how records are kept: it calls what package api calls, through the interfaces in needs.go.
package console

//go:generate go run github.com/a-h/templ/cmd/templ@v0.3.977 generate -path .
