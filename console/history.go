package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/export"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

const (
	maxSearched = 1000 // execs that one page of a search reads at most
	maxSearch   = 200  // bytes of the text
)

// filters are the parameters of the history that audit.ParseFilter takes.
var filters = []string{
	"status", "project_id", "user_id", "agent_id", "task_id", "conversation_id", "trace_id", "skill_id", "skill_digest",
	"error_reason", "backend", "requested_by", "kind", "since", "until",
}

// historyQuery are the parameters of the history: the filters, the text to search in commands, the
// columns, and the place of the page.
var historyQuery = append(slices.Clone(filters), "text", "columns", "cursor")

// history lists execs, newest first.
func (c *Console) history(req *request) (ui.Page, error) {
	page, err := c.readHistory(req)
	return withRefusal(ui.Page{Title: "History", Body: view.History(page)}, err)
}

// filter returns the execs that the address asks for. What is malformed goes to bad.
func (c *Console) filter(req *request, bad *fault.Fields) audit.Filter {
	return audit.ParseFilter(func(name string) string {
		if slices.Contains(filters, name) {
			return req.query.Get(name)
		}
		return ""
	}, c.cfg.Now(), bad)
}

// searchText returns the text to search in commands, in lower case. A text that is too long or
// malformed goes to bad.
func searchText(query url.Values, bad *fault.Fields) string {
	text := query.Get("text")
	if len(text) > maxSearch || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		bad.Add("text", "must be at most %d bytes of UTF-8 without NUL", maxSearch)
	}
	return strings.ToLower(text)
}

// readHistory reads the page that the address asks for; only the statuses given, if any.
func (c *Console) readHistory(req *request, only ...audit.Status) (view.HistoryPage, error) {
	var bad fault.Fields
	f := c.filter(req, &bad)
	f.Commands = true // pages need no policies
	if len(only) > 0 {
		f.Statuses, f.Commands = only, false // pages of refusals show them
	}
	text := searchText(req.query, &bad)
	out := view.HistoryPage{
		Query: req.query, Columns: view.Columns(req.query.Get("columns"), &bad),
		Pager: view.Pager{Here: req.here().With("cursor", "")},
	}
	if out.HasDefaultColumns() { // as the form sends them
		req.query.Del("columns")
		out.Here = out.Here.With("columns", "")
	}
	if err := bad.Err(); err != nil {
		return out, err
	}
	list := out.Here.With("columns", "").String() // columns do not change the rows
	after, err := timeCursor(req.query.Get("cursor"), list)
	if err != nil {
		return out, err
	}
	out.First = after == nil
	repeat(req, &out, after, only)
	var next *audit.Cursor
	if text == "" {
		out.Rows, next, err = c.cfg.Execs.List(req.ctx(), req.caller, f, after, view.HistoryRows)
	} else {
		next, err = c.search(req.ctx(), req.caller, f, after, text, &out)
	}
	if err != nil {
		return out, err
	}
	if err := reserve(req, out.Rows); err != nil {
		return out, err
	}
	if out.Names, err = tokenNames(c, req, out.Rows, requestedBy); err != nil {
		return out, err
	}
	if next != nil {
		out.Reached = next.CreatedAt
		out.SetNext("cursor", visible.EncodeCursor(*next, list))
	}
	out.Newer = c.newerOf(out)
	out.Listed = true
	return out, nil
}

// tokenNames returns the names of the tokens of rows, by id.
func tokenNames[T any](c *Console, req *request, rows []T, id func(T) string) (map[string]string, error) {
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = id(row)
	}
	return c.cfg.Execs.Names(req.ctx(), req.caller, ids...)
}

func requestedBy(rec audit.Record) string { return rec.RequestedBy }

// reserve counts the memory of records.
func reserve(req *request, rows []audit.Record) error {
	size := int64(0)
	for _, rec := range rows {
		size += int64(rec.Size())
	}
	return req.door.Reserve(size)
}

// search adds the rows whose command has the text, which is in lower case, in any case. It reads
// maxSearched execs at most, and returns the place where the next search begins; nil at the end.
func (c *Console) search(ctx context.Context, caller tokens.Token, f audit.Filter, after *audit.Cursor, text string,
	out *view.HistoryPage,
) (*audit.Cursor, error) {
	found := audit.Filter{ExecIDs: []string{}, Commands: f.Commands}
	next, err := c.cfg.Execs.Search(ctx, caller, f, after, maxSearched, func(rec audit.Record) bool {
		if len(found.ExecIDs) == view.HistoryRows {
			return false
		}
		out.Searched++
		if hasText(rec, text) {
			found.ExecIDs = append(found.ExecIDs, rec.ExecID)
		}
		return true
	})
	if err != nil || len(found.ExecIDs) == 0 {
		return next, err
	}
	rows, cut, err := c.cfg.Execs.List(ctx, caller, found, nil, view.HistoryRows)
	if out.Rows = rows; cut != nil { // the rows are large
		next = cut
	}
	return next, err
}

func hasText(rec audit.Record, lower string) bool {
	return strings.Contains(strings.ToLower(rec.Cmd), lower) ||
		slices.ContainsFunc(rec.Args, func(arg string) bool { return strings.Contains(strings.ToLower(arg), lower) })
}

// refusedQuery are the parameters of the refused requests: the parameters of the history without
// status.
var refusedQuery = []string{
	"project_id", "user_id", "agent_id", "task_id", "skill_id", "error_reason", "requested_by", "since", "until",
	"cursor",
}

// refused lists the requests that were refused and put on record, newest first.
func (c *Console) refused(req *request) (ui.Page, error) {
	page, err := c.readHistory(req, audit.Rejected)
	return withRefusal(ui.Page{Title: "Refused", Body: view.Refused(page)}, err)
}

// historyExportQuery are the parameters of an export of the history: those that choose execs, and
// the format.
var historyExportQuery = append(slices.Clone(filters), "text", "format", "ocsf_version")

// exportHistory sends all execs that the history lists with the same filters, oldest first, as GET
// /audit/export does.
func (c *Console) exportHistory(req *request, w http.ResponseWriter) error {
	var bad fault.Fields
	q := export.ParseQuery(req.query.Get, c.cfg.Now(), &bad)
	text := searchText(req.query, &bad)
	if err := bad.Err(); err != nil {
		ofExport := []string{"format", "ocsf_version"}
		if slices.ContainsFunc(fault.From(err).Fields, func(f fault.Field) bool { return slices.Contains(ofExport, f.Field) }) {
			return err
		}
		list := ui.Link("history").WithAll(req.query) // has the form, and says what is wrong
		for _, name := range ofExport {
			list = list.With(name, "")
		}
		return req.Redirect(http.StatusSeeOther, list.String())
	}
	if text != "" {
		q.Asked["text"] = text
		q.Only = func(rec audit.Record) bool { return hasText(rec, text) }
	}
	return req.door.Export(w, req.Request(), q)
}

// newerQuery are the parameters of the count of new execs: the parameters of the list, its newest
// exec, and the number that the page shows already.
var newerQuery = append(slices.Clone(filters), "columns", "newest", "seen")

// newerOf returns the state of a page that was read now.
func (c *Console) newerOf(p view.HistoryPage) view.NewerExecs {
	n := view.NewerExecs{Query: p.Query, AsOf: c.cfg.Now()}
	if len(p.Rows) > 0 {
		n.Newest = visible.EncodeCursor(audit.Cursor{CreatedAt: p.Rows[0].CreatedAt, ExecID: p.Rows[0].ExecID}, n.RowsKey())
	}
	return n
}

// newer answers a page of the history with how many new execs there are; with nothing if the page
// shows that already.
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
