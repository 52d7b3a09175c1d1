// Package ui has the parts that the console's pages are made of: the frame around a page, and
// components for times, states, ids, tables and output. All texts that it shows may come from
// hostile commands. It must not know routes, stores or sessions.
package ui
