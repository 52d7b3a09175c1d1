package view

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/report"
	"secbox/console/ui"
)

// ReportRows is how many of the newest records the page of a report counts, in some 40 ms.
const ReportRows = 4000

// ReportPage is a report about a span of time.
type ReportPage struct {
	Query url.Values // as it was asked for
	Made  bool       // there is an answer
	report.Answer
	Names   map[string]string // of tokens
	Changed []EventRow        // the newest changes of each kind, newest first
	Curl    string            // gets the same from the API
}

// Page returns the page with its title.
func (p ReportPage) Page() ui.Page {
	return ui.Page{Title: "Report", Actions: reportSpans(p), Body: reportBody(p)}
}

// reportSpan is a span until now that a link chooses.
type reportSpan struct{ since, label string }

var quickSpans = []reportSpan{{"1h", "Last hour"}, {"24h", "24 hours"}, {audit.Today, "Today (UTC)"}, {"7d", "7 days"}}

// chosen reports whether the page has the span of a link; the second is the default.
func (p ReportPage) chosen(s reportSpan) bool {
	return p.Query.Get("until") == "" && cmp.Or(p.Query.Get("since"), quickSpans[1].since) == s.since
}

// Span returns the parameters of the span, with the times that were meant.
func (p ReportPage) Span() url.Values {
	return url.Values{
		"since": {p.Report.Since.Format(time.RFC3339Nano)}, "until": {p.Report.Until.Format(time.RFC3339Nano)},
	}
}

// records returns a list in the counted part of the span.
func (p ReportPage) records(list string) ui.Address {
	return ui.Link(list).WithAll(p.Span()).With("since", p.CountedSince.Format(time.RFC3339Nano))
}

// allKinds is the kind of what counts execs and changes.
const allKinds = audit.Kind("all")

// recordsOf returns the list of what is counted, of one status or of all.
func (p ReportPage) recordsOf(w report.Who, status string) ui.Address {
	kind := ""
	if w.Kind != audit.KindExec {
		kind = string(w.Kind)
	}
	return p.records("history").With("requested_by", w.RequestedBy).With("user_id", w.UserID).With("agent_id", w.AgentID).
		With("project_id", w.ProjectID).With("skill_id", w.SkillID).With("kind", kind).With("status", status)
}

// listed reports whether recordsOf has exactly what is counted: an empty value is no filter, so the
// list may have records of other rows, too.
func (p ReportPage) listed(w report.Who) bool {
	if p.Report.WhoOmitted > 0 && slices.Contains([]string{w.RequestedBy, w.UserID, w.AgentID, w.ProjectID, w.SkillID}, "") {
		return false
	}
	n := int64(0)
	for _, other := range p.Report.Who {
		in := w.Kind == allKinds || w.Kind == other.Kind
		for _, value := range [][2]string{
			{w.RequestedBy, other.RequestedBy},
			{w.UserID, other.UserID},
			{w.AgentID, other.AgentID},
			{w.ProjectID, other.ProjectID},
			{w.SkillID, other.SkillID},
		} {
			in = in && (value[0] == "" || value[0] == value[1]) && audit.IsParam(value[0])
		}
		if in {
			n += other.Count
		}
	}
	return n == w.Count
}

// callers returns the sums of each caller, the largest first.
func (p ReportPage) callers() (list []report.Who) {
	for _, w := range p.Report.Who {
		i := slices.IndexFunc(list, func(sum report.Who) bool { return sum.RequestedBy == w.RequestedBy })
		if i < 0 {
			i, list = len(list), append(list, report.Who{RequestedBy: w.RequestedBy, Kind: allKinds, ByStatus: map[string]int64{}})
		}
		list[i].Count += w.Count
		list[i].Requests += w.Requests
		list[i].Unrecorded += w.Unrecorded
		for status, n := range w.ByStatus {
			list[i].ByStatus[status] += n
		}
	}
	slices.SortStableFunc(list, func(x, y report.Who) int { return cmp.Compare(y.Count, x.Count) })
	return list
}

// refusedRequests says how many requests were refused, and how many of these have no rows.
func refusedRequests(r report.Refusals) string {
	return several(r.Requests, "refused request") + r.WithoutRows(ui.Count)
}

// refusals returns the list of the requests refused for a reason, and whether it has exactly these.
func (p ReportPage) refusals(r report.Refused) (to ui.Address, listed bool) {
	to = p.records("refused")
	reason := string(r.Reason)
	return to.With("error_reason", reason), audit.IsParam(reason) && (reason != "" || len(p.Report.Refused) == 1)
}

// deniedFields returns the fields that policy refused, the most frequent first.
func (p ReportPage) deniedFields() []string {
	return slices.SortedFunc(maps.Keys(p.Denied), func(x, y string) int {
		return cmp.Or(cmp.Compare(p.Denied[y], p.Denied[x]), cmp.Compare(x, y))
	})
}

// eventsOf returns the administrative events of a kind.
func (p ReportPage) eventsOf(kind admin.Kind) ui.Address {
	return ui.Link("audit", "events").WithAll(p.Span()).With("since", p.EventsSince.Format(time.RFC3339Nano)).With("kind", string(kind))
}

// eventsListed reports whether eventsOf has just what is counted. Starts of nodes have two areas.
func (p ReportPage) eventsListed(events report.Events) bool {
	return events.Kind.Valid() && !slices.ContainsFunc(p.Report.Events, func(other report.Events) bool {
		return other.Kind == events.Kind && other.Area != events.Area
	})
}

// atLeast stands before a number unless all was counted.
func atLeast(all bool) string {
	if all {
		return ""
	}
	return "at least "
}

// changes returns the events about who may do what, and others the rest but for retention's.
func (p ReportPage) changes() []report.Events {
	return p.events(func(e report.Events) bool { return e.Area.Changed() })
}

func (p ReportPage) others() []report.Events {
	return p.events(func(e report.Events) bool { return !e.Area.Changed() && e.Area != report.Removal })
}

func (p ReportPage) removals() []report.Events {
	return p.events(func(e report.Events) bool { return e.Area == report.Removal })
}

func (p ReportPage) events(wanted func(report.Events) bool) (list []report.Events) {
	for _, e := range p.Report.Events {
		if wanted(e) {
			list = append(list, e)
		}
	}
	return list
}

func countOf(list []report.Events) (n int64) {
	for _, e := range list {
		n += e.Count
	}
	return n
}

// statusesOf returns the statuses of counts in their order.
func statusesOf(counts map[string]int64) []string { return slices.Sorted(maps.Keys(counts)) }

// reportDifference says what of the database is not as the log says.
func reportDifference(d report.Difference) string {
	return ui.Cut(d.What, 100) + ": expected " + ui.Cut(d.Expected, 200) + ", found " + ui.Cut(d.Found, 200)
}

// ReportFile is the name of the file with the bundle.
const ReportFile = "audit-report.jsonl"

// removalKind returns the kind of the events that say what a rule removed.
func removalKind(r report.Removed) admin.Kind {
	if r.Part == report.Workspaces {
		return admin.WorkspaceRemoved
	}
	return admin.ExecsRemoved
}

// removalSubject returns the subject of these events; empty if each has another.
func removalSubject(r report.Removed) string {
	if r.Part == report.Workspaces {
		return ""
	}
	return r.Rule
}

// removedText says how much of what was removed.
func removedText(r report.Removed) string {
	switch r.Part {
	case report.Workspaces:
		return several(r.Count, "workspace")
	case report.Artifacts:
		return "artifacts of " + several(r.Count, "exec")
	}
	return several(r.Count, "exec")
}
