package view

import (
	"net/url"
	"slices"
	"strconv"
	"time"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
)

// HistoryRows is how many execs a page has.
const HistoryRows = 50

// HistoryPage is a page of the history.
type HistoryPage struct {
	Pager
	Query    url.Values
	Columns  []Column
	Rows     []audit.Record
	Names    map[string]string // of tokens
	Searched int               // at execs, by a search
	Reached  time.Time         // where the next page goes on; zero: there is none
	Newer    NewerExecs
	Listed   bool // false: the filters were refused

	MayExport bool
	Export    ui.Address // of the execs on all pages, without a format
	Curl      string     // gets the page from the API
}

// HasDefaultColumns reports whether the columns are the default columns.
func (p HistoryPage) HasDefaultColumns() bool {
	return slices.EqualFunc(p.Columns, Columns("", &fault.Fields{}), func(a, b Column) bool { return a.Name == b.Name })
}

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
