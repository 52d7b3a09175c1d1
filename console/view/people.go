package view

import (
	"secbox/access/sessions"
)

// PeoplePage is a page of the people, newest first.
type PeoplePage struct {
	Pager
	Rows []sessions.Person
	Own  string // id of the caller

	SignOn bool // single sign-on is set up
}
