package view

import (
	"secbox/access/sessions"
	"secbox/console/ui"
)

// PeoplePage is a page of the people, newest first.
type PeoplePage struct {
	Rows  []sessions.Person
	Own   string // id of the caller
	Next  ui.Address
	More  bool
	First bool

	SignOn bool // single sign-on is set up
}
