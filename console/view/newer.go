package view

import (
	"net/url"
	"strconv"
	"time"

	"secbox/console/ui"
)

// MaxNewer is how many new execs a list counts.
const MaxNewer = 20

// NewerExecs is how many execs a list has now that its page does not show.
type NewerExecs struct {
	Query  url.Values // of the page
	Newest string     // a cursor at its first row; empty: it has none
	Count  int        // at most MaxNewer+1
	AsOf   time.Time
}

// again is the address that counts again.
func (n NewerExecs) again() ui.Address {
	return ui.Link("history", "newer").WithAll(n.Query).With("newest", n.Newest).With("seen", strconv.Itoa(n.Count))
}

func (n NewerExecs) list() ui.Address { return ui.Link("history").WithAll(n.Query) }

// RowsKey is what the rows of the list depend on.
func (n NewerExecs) RowsKey() string { return n.list().With("columns", "").String() }
