package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"secbox/audit"
	"secbox/console/ui"
)

// Chip is a filter in use, with the address of the page without it.
type Chip struct {
	Label, Value string
	Without      ui.Address
}

// labels of the parameters of the history, in the order of their chips.
var labels = []struct{ param, label string }{
	{"status", "Status"},
	{"error_reason", "Reason"},
	{"project_id", "Project"},
	{"user_id", "User"},
	{"agent_id", "Agent"},
	{"task_id", "Task"},
	{"conversation_id", "Conversation"},
	{"trace_id", "Trace"},
	{"session_id", "Session"},
	{"skill_id", "Skill"},
	{"skill_digest", "Version of the skill"},
	{"requested_by", "Requested by"},
	{"backend", "Backend"},
	{"kind", "Records of"},
	{"since", "Since"},
	{"until", "Until"},
}

// chips returns the filters in use. Each can be removed alone.
func (p HistoryPage) chips() []Chip {
	var all []Chip
	if text := p.Query.Get("text"); text != "" {
		all = append(all, Chip{"Search", text, p.Here.With("text", "").With("output", "")})
	}
	if p.Query.Has("output") {
		all = append(all, Chip{"Search", "in output, too", p.Here.With("output", "")})
	}
	for _, l := range labels {
		value := p.Query.Get(l.param)
		switch {
		case value == "":
		case l.param == "status":
			values := strings.Split(value, ",")
			for i, one := range values {
				rest := slices.Delete(slices.Clone(values), i, i+1)
				all = append(all, Chip{l.label, one, p.Here.With(l.param, strings.Join(rest, ","))})
			}
		case l.param == "requested_by":
			all = append(all, Chip{l.label, TokenName(p.Names, value), p.Here.With(l.param, "")})
		case l.param == "since" || l.param == "until":
			all = append(all, Chip{l.label, timeText(value), p.Here.With(l.param, "")})
		default:
			all = append(all, Chip{l.label, value, p.Here.With(l.param, "")})
		}
	}
	return all
}

// timeText is a time of a filter in words.
func timeText(value string) string {
	units := map[string]string{"s": "second", "m": "minute", "h": "hour", "d": "day"}
	number, unit := value[:len(value)-1], units[value[len(value)-1:]]
	switch {
	case value == audit.Today:
		return "today (UTC)"
	case unit != "" && number == "1":
		return "1 " + unit + " ago"
	case unit != "" && strings.Trim(number, "0123456789") == "":
		return number + " " + unit + "s ago"
	case len(value) == len("2006-01-02"):
		return value + " (UTC)"
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil && t.Nanosecond() == 0 {
		return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
	}
	return value
}

// QuickTime is a span of time up to now.
type QuickTime struct{ Since, Label string }

// quickTimes are the spans that a page offers.
var quickTimes = []QuickTime{{"15m", "15 min"}, {"1h", "1 h"}, {audit.Today, "Today"}, {"7d", "7 days"}, {"", "All"}}

// over is the address of the page over a span.
func (p HistoryPage) over(q QuickTime) ui.Address {
	return p.Here.With("since", q.Since).With("until", "")
}

// spans reports whether the page is over a span.
func (p HistoryPage) spans(q QuickTime) bool {
	return p.Query.Get("since") == q.Since && p.Query.Get("until") == ""
}

// ownTimes reports whether the page is over another span.
func (p HistoryPage) ownTimes() bool { return !slices.ContainsFunc(quickTimes, p.spans) }

// ownSpan names another span than the quick ones.
func (p HistoryPage) ownSpan() string {
	if since := p.Query.Get("since"); since != "" && p.Query.Get("until") == "" {
		return "Since " + ui.Line(timeText(since))
	}
	return "Own times"
}

// only returns the address of the page with a filter by a value of a row; false if there is none,
// as for an empty value, or it is set already.
func (p HistoryPage) only(param, value string) (ui.Address, bool) {
	if value == "" || param == "text" && len(value) > MaxSearch || !audit.IsParam(value) || p.Query.Get(param) == value {
		return ui.Address{}, false
	}
	return p.Here.With(param, value), true
}

// looked says how many records a search has found, and in how many.
func (p HistoryPage) looked() string {
	found, order := "found", "newest"
	if !p.First {
		found, order = "more found", "next"
	}
	records := several(p.Search.Looked, p.thing())
	text := fmt.Sprintf("%s %s. Searched the %s %s of these filters", ui.Count(int64(len(p.Rows))), found, order, records)
	if p.Search.Output {
		text += fmt.Sprintf(" and the first %s of each stream of their output, %s in all", ui.Bytes(MaxOutput), ui.Bytes(p.Search.Bytes))
	}
	return text
}

// none says that the page has no row of these things; pages before it may have some.
func (p HistoryPage) none(thing string) string {
	if !p.First {
		return "No further " + thing + " matches"
	}
	return "No " + thing + " matches"
}

// nothing says that the page has no row, and that a later one may have some.
func (p HistoryPage) nothing() string {
	if !p.First {
		return "Nothing further found yet"
	}
	return "Nothing found yet"
}

// noExec is none or nothing of a list of execs.
func (p HistoryPage) noExec() string {
	if p.More {
		return "No exec found yet"
	}
	return "No exec matches"
}

// thing is what the list has, in the singular.
func (p HistoryPage) thing() string {
	switch p.Query.Get("kind") {
	case string(audit.KindChange):
		return "change"
	case "all":
		return "record"
	}
	return "exec"
}

// caption names the list.
func (p HistoryPage) caption() string {
	switch p.thing() {
	case "change":
		return "Changes of files"
	case "record":
		return "Execs and changes of files"
	}
	return "Execs"
}

// saved is the query of the page for a saved view, as its form sends it.
func (p HistoryPage) saved() string {
	_, query, _ := strings.Cut(p.Here.String(), "?")
	return query
}

// statuses returns the statuses of a filter, and those that are no statuses.
func statuses(value string) (known, unknown []string) {
	for one := range strings.SplitSeq(value, ",") {
		switch {
		case one == "":
		case audit.Status(one).Valid():
			known = append(known, one)
		default:
			unknown = append(unknown, one)
		}
	}
	return known, unknown
}
