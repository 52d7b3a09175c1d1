// Package view is the content of the console's pages: templates, the structs that they show, and
// how values are put into words for readers.
//
// A page is a struct and a component: package console fills a FilePage and puts File into a
// ui.Page. What a page shows is in its struct; the package must not know requests, roles, stores or
// handlers. Package ui has the parts that pages are made of.
package view
