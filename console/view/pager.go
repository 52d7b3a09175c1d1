package view

import "secbox/console/ui"

// Pager is the place of a page in its list; the structs of such pages embed it.
type Pager struct {
	First bool
	Here  ui.Address // of the first page
	Next  ui.Address // if there is More
	More  bool
}

// SetNext sets the address of the next page: Here with a parameter.
func (p *Pager) SetNext(name, cursor string) {
	p.Next, p.More = p.Here.With(name, cursor), true
}
