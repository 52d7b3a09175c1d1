package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/fault"
)

// mostNewer is how many new execs a list counts.
const mostNewer = 20

// newerQuery are the parameters of the count of new execs: those of the list, its newest exec, and the number that the page shows already.
var newerQuery = append(slices.Clone(filters), "columns", "newest", "seen")

// newerExecs is how many execs a list has now that its page does not show.
type newerExecs struct {
	query  url.Values // of the page
	newest string     // a cursor at its first row; empty: it has none
	count  int        // at most mostNewer+1
	asOf   time.Time
}

// again is the address that counts again.
func (n newerExecs) again() ui.Address {
	return ui.Link("history", "newer").WithAll(n.query).With("newest", n.newest).With("seen", strconv.Itoa(n.count))
}

// newerOf returns the state of a page that was read now.
func (c *Console) newerOf(p historyList) newerExecs {
	n := newerExecs{query: p.query, asOf: c.cfg.Now()}
	if len(p.rows) > 0 {
		n.newest = visible.EncodeCursor(audit.Cursor{CreatedAt: p.rows[0].CreatedAt, ExecID: p.rows[0].ExecID}, n.rows())
	}
	return n
}

func (n newerExecs) list() ui.Address { return ui.Link("history").WithAll(n.query) }

// rows is what the rows of the list depend on.
func (n newerExecs) rows() string { return n.list().With("columns", "").String() }

// newer answers a page of the history with how many new execs there are; with nothing if the page shows that already.
func (c *Console) newer(v *visit, w http.ResponseWriter) error {
	var bad fault.Fields
	seen := v.query.Get("seen")
	if n, err := strconv.Atoi(seen); v.query.Has("seen") && (err != nil || n < 0 || n > mostNewer+1 || strconv.Itoa(n) != seen) {
		bad.Add("seen", "must be a number from 0 to %d: how many new execs the page shows already", mostNewer+1)
	}
	f := audit.ParseFilter(func(name string) string {
		if slices.Contains(filters, name) {
			return v.query.Get(name)
		}
		return ""
	}, c.cfg.Now(), &bad)
	if err := bad.Err(); err != nil {
		return err
	}
	f.OldestFirst, f.Summary = true, true
	n := newerExecs{query: v.query, newest: v.query.Get("newest"), asOf: c.cfg.Now()}
	n.query.Del("newest")
	n.query.Del("seen")
	var after *audit.Cursor
	if n.newest != "" {
		var err error
		if after, err = visible.DecodeCursor(n.newest, n.rows()); err != nil {
			return err
		}
	}
	leave, err := v.door.Turn(v.ctx())
	if err != nil {
		return err
	}
	defer leave()
	rows, _, err := c.cfg.Execs.List(v.ctx(), v.caller, f, after, mostNewer+1)
	leave()
	if err != nil {
		return err
	}
	if n.count = len(rows); strconv.Itoa(n.count) == seen {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	return newerNote(n).Render(v.ctx(), w)
}
