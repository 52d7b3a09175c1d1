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

// Bounds of a page of the history.
const (
	HistoryRows = 50  // execs of a page
	MaxSearch   = 200 // bytes of the text of a search
)

// HistoryPage is a page of the history.
type HistoryPage struct {
	Pager
	Query   url.Values
	Columns []Column
	Rows    []audit.Record
	Names   map[string]string // of tokens
	Search  Search
	Reached time.Time // where the next page goes on; zero: there is none
	Newer   NewerExecs
	Listed  bool // false: the filters were refused
	Changes bool // changes of files match, too, and the page does not list them

	Callers []ui.NavItem // by whom the list may be meant: several have the name in place of an id
	Unnamed bool         // no id is given, and nobody with that name is known

	Views       []SavedView
	ViewName    string       // that was refused
	ViewProblem *fault.Error // why; nil: none was

	MayExport bool
	Export    ui.Address // of the execs on all pages, without a format
	Curl      string     // gets the page from the API
}

// unrecordedIn returns how many refused requests without rows the rows count.
func unrecordedIn(rows []audit.Record) (n int64) {
	for _, rec := range rows {
		n += audit.UnrecordedRefusals(rec.ErrorReason, rec.Detail)
	}
	return n
}

// Search is what a page searches, and what it has looked at.
type Search struct {
	Text   string // empty: the page does not search
	Output bool   // it searches in output, too

	Exact string       // "exec" or "task": the text is its id, and the page lists it; empty: it is not
	Named []ui.NavItem // the lists of execs of what has exactly the text as its id or name

	Looked  int                    // at records
	Unasked int                    // of these records are invokes of skills without what was asked
	Bytes   int64                  // of output
	Unread  int                    // streams of output that are kept no more, or cannot be read
	Found   map[string][]FoundLine // in output, by exec
}

// FoundLine is a line of output in which a search has found its text.
type FoundLine struct{ Stream, Line string }

// SavedView is a view that the reader has saved.
type SavedView struct {
	Name    string
	To      ui.Address
	Current bool // the page shows it
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
