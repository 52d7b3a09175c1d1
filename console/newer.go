package console

import (
	"net/http"
	"slices"
	"strconv"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/view"
	"secbox/fault"
)

// newerQuery are the parameters of the count of new execs: those of the list, its newest exec, and the number that the page shows already.
var newerQuery = append(slices.Clone(filters), "columns", "newest", "seen")

// newerOf returns the state of a page that was read now.
func (c *Console) newerOf(p view.HistoryPage) view.NewerExecs {
	n := view.NewerExecs{Query: p.Query, AsOf: c.cfg.Now()}
	if len(p.Rows) > 0 {
		n.Newest = visible.EncodeCursor(audit.Cursor{CreatedAt: p.Rows[0].CreatedAt, ExecID: p.Rows[0].ExecID}, n.RowsKey())
	}
	return n
}

// newer answers a page of the history with how many new execs there are; with nothing if the page shows that already.
func (c *Console) newer(req *request, w http.ResponseWriter) error {
	var bad fault.Fields
	seen := req.query.Get("seen")
	if n, err := strconv.Atoi(seen); req.query.Has("seen") && (err != nil || n < 0 || n > view.MaxNewer+1 || strconv.Itoa(n) != seen) {
		bad.Add("seen", "must be a number from 0 to %d: how many new execs the page shows already", view.MaxNewer+1)
	}
	f := c.filter(req, &bad)
	if err := bad.Err(); err != nil {
		return err
	}
	f.OldestFirst, f.Summary = true, true
	n := view.NewerExecs{Query: req.query, Newest: req.query.Get("newest"), AsOf: c.cfg.Now()}
	n.Query.Del("newest")
	n.Query.Del("seen")
	after, err := timeCursor(n.Newest, n.RowsKey())
	if err != nil {
		return err
	}
	leave, err := req.door.Turn(req.ctx())
	if err != nil {
		return err
	}
	defer leave()
	rows, _, err := c.cfg.Execs.List(req.ctx(), req.caller, f, after, view.MaxNewer+1)
	leave()
	if err != nil {
		return err
	}
	if n.Count = len(rows); strconv.Itoa(n.Count) == seen {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	return view.NewerNote(n).Render(req.ctx(), w)
}
