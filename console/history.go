package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/audit/export"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// filters are the parameters of the history that audit.ParseFilter takes.
var filters = []string{
	"status", "project_id", "user_id", "agent_id", "task_id", "conversation_id", "trace_id", "session_id", "skill_id",
	"skill_digest",
	"error_reason", "backend", "requested_by", "kind", "since", "until",
}

// listQuery are the parameters that say what the history lists: the filters, the text to search,
// whether to search in output, and the columns.
var listQuery = append(slices.Clone(filters), "text", "output", "columns")

// historyQuery are the parameters of the history.
var historyQuery = append(slices.Clone(listQuery), "cursor")

// history lists execs, newest first.
func (c *Console) history(req *request) (ui.Page, error) {
	page, err := c.readHistory(req)
	if err := c.readViews(req, &page); err != nil {
		return ui.Page{}, err
	}
	return withRefusal(ui.Page{Title: "History", Body: view.History(page)}, err)
}

// filter returns the execs that the parameters ask for. What is malformed goes to bad.
func (c *Console) filter(query url.Values, bad *fault.Fields) audit.Filter {
	return audit.ParseFilter(func(name string) string {
		if slices.Contains(filters, name) {
			return query.Get(name)
		}
		return ""
	}, c.cfg.Now(), bad)
}

// readHistory reads the page that the address asks for; only the statuses given, if any.
func (c *Console) readHistory(req *request, only ...audit.Status) (view.HistoryPage, error) {
	var bad fault.Fields
	f := c.filter(req.query, &bad)
	f.Commands = true // pages need no policies
	here := ui.Link("history")
	if len(only) > 0 {
		f.Statuses, f.Commands, here = only, false, ui.Link("refused") // which shows policies
		if req.query.Get("kind") == "" {
			f.Kind = "" // changes are refused, too
		}
	}
	text := searchText(req.query, &bad)
	if text == "" {
		req.query.Del("output") // the form sends it without a text, too
	}
	callers, err := c.requesters(req, &f)
	if err != nil {
		return view.HistoryPage{Query: req.query}, err
	}
	out := view.HistoryPage{
		Query: req.query, Search: view.Search{Text: text, Output: req.query.Has("output")},
		Columns: view.Columns(req.query.Get("columns"), &bad),
		Pager:   view.Pager{Here: here.WithAll(req.query).With("cursor", "")},
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
	for _, caller := range callers {
		out.Callers = append(out.Callers, ui.NavItem{Label: caller.label, To: out.Here.With("requested_by", caller.id)})
	}
	out.Unnamed = len(callers) == 0 && isName(f.RequestedBy) && req.may(auditors)
	var next *audit.Cursor
	if text == "" {
		out.Rows, next, err = c.cfg.Execs.List(req.ctx(), req.caller, f, after, view.HistoryRows)
	} else {
		next, err = c.search(req, f, after, &out)
	}
	if err != nil {
		return out, err
	}
	if len(only) == 0 && f.Kind == audit.KindExec && out.MayMissChanges() {
		if out.Changes, err = c.changesMatch(req, f, out.Search); err != nil {
			return out, err
		}
	}
	repeat(req, &out, after, only)
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

// requesters puts the id of the one token or person with a name in place of the name, in the filter
// and in the query. It returns them if there are several. Workers see their own requests
// only, so they learn of no other token.
func (c *Console) requesters(req *request, f *audit.Filter) ([]namedCaller, error) {
	if !req.may(auditors) {
		return nil, nil
	}
	callers, err := c.callersNamed(req.ctx(), f.RequestedBy)
	if len(callers) == 1 {
		f.RequestedBy = callers[0].id
		req.query.Set("requested_by", f.RequestedBy)
		return nil, err
	}
	return callers, err
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

// refusedQuery are the parameters of the refused requests: the parameters of the history without
// status. Without kind, the page lists refused execs and changes.
var refusedQuery = []string{
	"project_id", "user_id", "agent_id", "task_id", "skill_id", "error_reason", "requested_by", "kind", "since", "until",
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
		lower := strings.ToLower(text)
		q.Asked["text"] = lower
		q.Only = func(rec audit.Record) bool { return hasText(rec, lower) }
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
	f := c.filter(req.query, &bad)
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
