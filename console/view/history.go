package view

import (
	"net/url"
	"slices"
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

// HasDefaultColumns reports whether the columns are those of an address without any.
func (p HistoryPage) HasDefaultColumns() bool {
	return slices.EqualFunc(p.Columns, Columns("", &fault.Fields{}), func(a, b Column) bool { return a.Name == b.Name })
}
