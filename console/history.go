package console

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

const (
	maxSearched = 1000 // execs that one page of a search reads at most
	maxSearch   = 200  // bytes of the text
)

// filters are the parameters of the history that audit.ParseFilter takes.
var filters = []string{"status", "project_id", "user_id", "agent_id", "task_id", "conversation_id", "trace_id", "skill_id", "skill_digest", "error_reason", "backend", "requested_by", "kind", "since", "until"}

// historyQuery are the parameters of the history: the filters, the text to search in commands, the columns, and the place of the page.
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

// searchText returns the text to search in commands, in lower case. A text that is too long or malformed goes to bad.
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
		f.Statuses, f.Commands = only, false // but those of refusals
	}
	text := searchText(req.query, &bad)
	out := view.HistoryPage{Query: req.query, Columns: view.Columns(req.query.Get("columns"), &bad), Pager: view.Pager{Here: req.here().With("cursor", "")}}
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
	ids, size := make([]string, len(out.Rows)), int64(0)
	for i, rec := range out.Rows {
		ids[i] = rec.RequestedBy
		size += int64(rec.Size())
	}
	if err := req.door.Reserve(size); err != nil {
		return out, err
	}
	if out.Names, err = c.cfg.Execs.Names(req.ctx(), req.caller, ids...); err != nil {
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

// search adds the rows whose command has the text, which is in lower case, in any case. It reads maxSearched execs at most, and returns the place where the next
// search begins; nil at the end.
func (c *Console) search(ctx context.Context, caller tokens.Token, f audit.Filter, after *audit.Cursor, text string, out *view.HistoryPage) (*audit.Cursor, error) {
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
