package console

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/internal/whole"
	"secbox/runner/follow"
)

// Bounds of a search.
const (
	maxSearched    = 1000     // records that one page looks at
	maxTokens      = 1000     // whose names are compared with the text
	maxNamed       = 10       // tokens that a page names
	maxOutputs     = 200      // execs whose output one page looks at
	maxOutputBytes = 16 << 20 // of output, after which a page looks at no further exec
	outputChunk    = 50       // records that are read at once
	excerptAround  = 60       // bytes of a line before and after what was found
)

// searchText returns the text to search. A text that is too long or malformed, and a malformed
// switch of the search in output, go to bad.
func searchText(query url.Values, bad *fault.Fields) string {
	text := query.Get("text")
	if len(text) > view.MaxSearch || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		bad.Add("text", "must be at most %d bytes of UTF-8 without NUL", view.MaxSearch)
	}
	if output := query.Get("output"); output != "" && output != "on" {
		bad.Add("output", "must be on or left out")
	}
	return text
}

// hasText reports whether a record has the text, which is in lower case, in any case.
func hasText(rec audit.Record, lower string) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), lower) }
	return slices.ContainsFunc([]string{
		rec.Cmd, rec.ExecID, rec.TaskID, rec.ConversationID, rec.ProjectID, rec.UserID, rec.AgentID, rec.SkillID, rec.Image,
		string(rec.ErrorReason), rec.Detail,
	}, has) || slices.ContainsFunc(rec.Args, has) || view.RequestHas(rec.Request, lower)
}

// search adds the rows that the text finds, and returns the place where the next page begins; nil
// at the end. The id of an exec finds the exec, the id of a task its execs, both by index.
func (c *Console) search(req *request, f audit.Filter, after *audit.Cursor, out *view.HistoryPage) (*audit.Cursor, error) {
	exact, err := c.exactly(req, f, out)
	switch {
	case err != nil:
		return nil, err
	case out.Search.Exact != "":
		var next *audit.Cursor
		out.Rows, next, err = c.cfg.Execs.List(req.ctx(), req.caller, exact, after, view.HistoryRows)
		return next, err
	}
	if out.First {
		if out.Search.Named, err = c.named(req, f, out); err != nil {
			return nil, err
		}
	}
	if out.Search.Output {
		return c.searchOutput(req, f, after, out)
	}
	return c.searchRecords(req, f, after, out)
}

// changesMatch reports whether changes of files match the filters and the text of a list that has
// none. It looks at maxSearched changes at most.
func (c *Console) changesMatch(req *request, f audit.Filter, s view.Search) (found bool, err error) {
	lower := strings.ToLower(s.Text)
	if s.Exact == "task" {
		f.TaskID, lower = strings.TrimSpace(s.Text), ""
	}
	f.Kind = audit.KindChange
	_, err = c.cfg.Execs.Search(req.ctx(), req.caller, f, nil, maxSearched, func(rec audit.Record) bool {
		found = found || hasText(rec, lower)
		return !found
	})
	return found, err
}

// exactly returns the filter of the exec or task whose id the text is, and sets Exact; else it does
// not. The id of an exec counts more than the other filters.
func (c *Console) exactly(req *request, f audit.Filter, out *view.HistoryPage) (audit.Filter, error) {
	text := strings.TrimSpace(out.Search.Text)
	try := func(kind string, f audit.Filter) (bool, error) {
		rows, _, err := c.cfg.Execs.List(req.ctx(), req.caller, f, nil, 1)
		if err == nil && len(rows) > 0 {
			out.Search.Exact = kind
		}
		return out.Search.Exact != "", err
	}
	if id, err := uuid.Parse(text); err == nil && len(text) == len(id.String()) {
		one := audit.Filter{ExecIDs: []string{id.String()}, Commands: true}
		if found, err := try("exec", one); found || err != nil {
			return one, err
		}
	}
	if f.TaskID == "" && audit.IsParam(text) && text != "" {
		task := f
		task.TaskID = text
		if found, err := try("task", task); found || err != nil {
			return task, err
		}
	}
	return f, nil
}

// named returns the lists of execs of what has exactly the text as its id, by index, however old
// they are; and of the newest tokens with this name, for those who see execs of others.
func (c *Console) named(req *request, f audit.Filter, out *view.HistoryPage) ([]ui.NavItem, error) {
	text := strings.TrimSpace(out.Search.Text)
	if !audit.IsParam(text) || text == "" {
		return nil, nil
	}
	here := out.Here.With("text", "").With("output", "")
	var all []ui.NavItem
	for _, by := range []struct {
		param, label string
		value        func(*audit.Filter) *string
	}{
		{"project_id", "project", func(f *audit.Filter) *string { return &f.ProjectID }},
		{"user_id", "user", func(f *audit.Filter) *string { return &f.UserID }},
		{"agent_id", "agent", func(f *audit.Filter) *string { return &f.AgentID }},
		{"conversation_id", "conversation", func(f *audit.Filter) *string { return &f.ConversationID }},
		{"skill_id", "skill", func(f *audit.Filter) *string { return &f.SkillID }},
	} {
		narrow := f
		if *by.value(&narrow) != "" {
			continue
		}
		*by.value(&narrow) = text
		rows, _, err := c.cfg.Execs.List(req.ctx(), req.caller, narrow, nil, 1)
		if err != nil {
			return nil, err
		}
		if len(rows) > 0 {
			all = append(all, ui.NavItem{Label: by.label + " " + text, To: here.With(by.param, text)})
		}
	}
	if f.RequestedBy != "" || req.caller.Role == tokens.Worker {
		return all, nil
	}
	named, err := c.tokensNamed(req.ctx(), text)
	for _, t := range named {
		all = append(all, ui.NavItem{Label: tokenLabel(t), To: here.With("requested_by", t.ID).With("kind", "all")})
	}
	return all, err
}

// tokenLabel names a token, and tells it from others of its name.
func tokenLabel(t tokens.Token) string {
	return fmt.Sprintf("token %s (…%s)", t.Name, t.ID[max(0, len(t.ID)-4):])
}

// tokensNamed returns up to maxNamed of the newest maxTokens tokens that have a name.
func (c *Console) tokensNamed(ctx context.Context, name string) (named []tokens.Token, err error) {
	after := ""
	for range maxTokens / tokenRows {
		page, err := c.cfg.Tokens.Page(ctx, after, true, tokenRows)
		if err != nil {
			return nil, err
		}
		for _, t := range page {
			if after = t.ID; t.Name == name && len(named) < maxNamed {
				named = append(named, t)
			}
		}
		if len(page) < tokenRows || len(named) == maxNamed {
			break
		}
	}
	return named, nil
}

// searchRecords adds the rows of records that have the text. It looks at maxSearched records at
// most.
func (c *Console) searchRecords(req *request, f audit.Filter, after *audit.Cursor, out *view.HistoryPage) (*audit.Cursor, error) {
	found := audit.Filter{ExecIDs: []string{}, Commands: f.Commands}
	lower := strings.ToLower(out.Search.Text)
	next, err := c.cfg.Execs.Search(req.ctx(), req.caller, f, after, maxSearched, func(rec audit.Record) bool {
		if len(found.ExecIDs) == view.HistoryRows {
			return false
		}
		out.Search.Looked++
		if view.Unasked(rec) {
			out.Search.Unasked++
		}
		if hasText(rec, lower) {
			found.ExecIDs = append(found.ExecIDs, rec.ExecID)
		}
		return true
	})
	if err != nil || len(found.ExecIDs) == 0 {
		return next, err
	}
	rows, cut, err := c.cfg.Execs.List(req.ctx(), req.caller, found, nil, view.HistoryRows)
	if out.Rows = rows; cut != nil { // the rows are large
		next = cut
	}
	return next, err
}

// searchOutput adds the rows of execs that have the text in their record or in the beginning of
// their output, as far as this node has it. The lines that the page shows are on record, also for a
// request without an answer's body, whose length tells of them.
func (c *Console) searchOutput(req *request, f audit.Filter, after *audit.Cursor, out *view.HistoryPage) (*audit.Cursor, error) {
	next, err := c.searchStreams(req, f, after, out)
	if err != nil {
		return nil, err
	}
	streams := map[string][]string{}
	for execID, lines := range out.Search.Found {
		for _, line := range lines {
			streams[execID] = append(streams[execID], line.Stream)
		}
	}
	return next, c.cfg.Execs.RecordSearch(req.ctx(), req.caller, out.Search.Text, out.Rows, streams)
}

func (c *Console) searchStreams(req *request, f audit.Filter, after *audit.Cursor, out *view.HistoryPage) (*audit.Cursor, error) {
	if err := req.door.Reserve(3 * view.MaxOutput); err != nil { // a stream, and its copy in lower case
		return nil, err
	}
	lower, s := strings.ToLower(out.Search.Text), &out.Search
	s.Found = map[string][]view.FoundLine{}
	for range maxOutputs / outputChunk {
		rows, next, err := c.cfg.Execs.List(req.ctx(), req.caller, f, after, outputChunk)
		if err != nil {
			return nil, err
		}
		if err := reserve(req, rows); err != nil {
			return nil, err
		}
		for _, rec := range rows {
			if s.Bytes >= maxOutputBytes || len(out.Rows) == view.HistoryRows {
				return after, nil
			}
			if err := c.findIn(req, rec, lower, s); err != nil {
				return nil, err
			}
			s.Looked++
			if view.Unasked(rec) {
				s.Unasked++
			}
			if len(s.Found[rec.ExecID]) > 0 || hasText(rec, lower) {
				out.Rows = append(out.Rows, rec)
			}
			after = &audit.Cursor{CreatedAt: rec.CreatedAt, ExecID: rec.ExecID}
		}
		if after = next; next == nil {
			return nil, nil
		}
	}
	return after, nil
}

// findIn adds the first line of each stream of an exec's output that has the text.
func (c *Console) findIn(req *request, rec audit.Record, lower string, s *view.Search) error {
	for i, written := range []int64{rec.StdoutBytes, rec.StderrBytes} {
		if written == 0 && rec.Status.Final() {
			continue
		}
		name := follow.Streams[i]
		line, found, size, err := c.findLine(req, rec, name, lower)
		s.Bytes += size
		switch {
		case fault.Is(err, fault.ServerBusy) || req.ctx().Err() != nil:
			return err
		case err != nil:
			s.Unread++
		case found:
			s.Found[rec.ExecID] = append(s.Found[rec.ExecID], view.FoundLine{Stream: name, Line: line})
		}
	}
	return nil
}

// findLine returns the part of the first line with the text in the beginning of a stream.
func (c *Console) findLine(req *request, rec audit.Record, stream, lower string) (line string, found bool, size int64, err error) {
	f, size, err := c.cfg.Runner.OpenOutput(req.ctx(), rec, stream)
	if err != nil {
		return "", false, 0, err
	}
	defer f.Close()
	all, err := io.ReadAll(io.LimitReader(f, view.MaxOutput))
	if err != nil || !bytes.Contains(bytes.ToLower(all), []byte(lower)) {
		return "", false, size, err
	}
	for one := range bytes.Lines(all) {
		if at := bytes.Index(bytes.ToLower(one), []byte(lower)); at >= 0 {
			from, to := max(0, min(at, len(one))-excerptAround), min(len(one), at+len(lower)+excerptAround)
			return strings.TrimSpace(string(whole.End(whole.Begin(one[from:to])))), true, size, nil
		}
	}
	return "", false, size, nil
}
