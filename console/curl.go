package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"secbox/api/visible"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/runner"
)

// repeat sets the address of an export and the command that get what the list shows: the page after
// a cursor, of the statuses given, if any.
func repeat(req *request, p *view.HistoryPage, after *audit.Cursor, only []audit.Status) {
	asked := url.Values{}
	for _, name := range append(slices.Clone(filters), "text") {
		if value := req.query.Get(name); value != "" {
			asked.Set(name, value)
		}
	}
	if len(only) > 0 {
		asked.Set("status", strings.Join(ui.Strings(only), ","))
		asked.Set("kind", cmp.Or(asked.Get("kind"), "all"))
	}
	exact := strings.TrimSpace(asked.Get("text"))
	if p.Search.Exact == "task" {
		asked.Del("text")
		asked.Set("task_id", exact)
	}
	p.MayExport, p.Export = req.may(auditors), ui.Link("history", "export").WithAll(asked)
	if p.Search.Exact == "exec" {
		p.Curl = req.curl(inAPI(nil, "sandbox", "execs", p.Rows[0].ExecID))
		return
	}
	asked.Del("text") // the API does not search
	asked.Set("limit", strconv.Itoa(view.HistoryRows))
	if after != nil {
		asked.Set("cursor", visible.EncodeCursor(*after, ""))
	}
	p.Curl = req.curl(inAPI(asked, "sandbox", "execs"))
}

// tokenHeader is the option of curl with the caller's token.
const tokenHeader = `-H "Authorization: Bearer $SECBOX_TOKEN"`

// curl returns a command that gets answers of the API, for any shell of POSIX. The token stays in
// the environment. Each address is from inAPI.
func (req *request) curl(addresses ...string) string {
	command := "curl -sS"
	if req.caller.ID != runner.Tokenless {
		command += " " + tokenHeader
	}
	for _, address := range addresses {
		command += " '" + strings.ReplaceAll(req.server()+address, "'", `'\''`) + "'"
	}
	return command
}

// inAPI returns the address of an operation from the server's root, in ASCII.
func inAPI(query url.Values, path ...string) string {
	var b strings.Builder
	for _, part := range path {
		b.WriteString("/" + url.PathEscape(part))
	}
	if text := query.Encode(); text != "" {
		b.WriteString("?" + text)
	}
	return b.String()
}
