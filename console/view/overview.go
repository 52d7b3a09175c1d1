package view

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/audit"
	"secbox/console/ui"
	"secbox/engine"
	"secbox/health"
)

// OverviewRows is how many rows each list of the overview has.
const OverviewRows = 5

// Span is a time that the overview can show.
type Span struct {
	Name, Label string
	Bars, Hours int      // hours of each bar
	Axis        []string // below the bars, from the oldest to the newest
}

// Spans are the choices, the first one by default.
var Spans = []Span{
	{"day", "24 hours", 24, 1, []string{"24 hours ago", "18", "12", "6", "now"}},
	{"week", "7 days", 56, 3, []string{"7 days ago", "6", "5", "4", "3", "2", "1", "now"}},
	{"month", "30 days", 60, 12, []string{"30 days ago", "24", "18", "12", "6", "now"}},
}

// unit is the time of one bar.
func (s Span) unit() string {
	if s.Hours == 1 {
		return "an hour"
	}
	return strconv.Itoa(s.Hours) + " hours"
}

// Outcome is a group of statuses that share a colour.
type Outcome struct {
	Label, Class string
	Statuses     []audit.Status
}

// outcomes are in the order in which they are stacked, from below. The last one has statuses of
// other versions, too.
var outcomes = [...]Outcome{
	{"Succeeded", "good", []audit.Status{audit.Succeeded}},
	{"Running", "busy", []audit.Status{audit.Queued, audit.Running}},
	{"Failed", "bad", []audit.Status{audit.Failed, audit.Errored}},
	{"At a limit", "limit", []audit.Status{audit.Timeout, audit.OOMKilled}},
	{"Refused", "warn", []audit.Status{audit.Rejected}},
	{"Canceled or lost", "calm", []audit.Status{audit.Canceled, audit.Lost}},
}

// outcomeIndex returns the index of a status in Counts.
func outcomeIndex(s audit.Status) int {
	i := slices.IndexFunc(outcomes[:], func(o Outcome) bool { return slices.Contains(o.Statuses, s) })
	if i < 0 {
		return len(outcomes) - 1
	}
	return i
}

// refusedExecs are the refused requests that the overview counts: it counts no changes of files.
var refusedExecs = ui.Link("refused").With("kind", string(audit.KindExec))

// execsOf leads to the execs of an outcome since a time.
func (o Outcome) execsOf(since time.Time) ui.Address {
	if o.Statuses[0] == audit.Rejected {
		return refusedExecs.With("since", since.Format(time.RFC3339))
	}
	return ui.Link("history").With("status", strings.Join(ui.Strings(o.Statuses), ",")).With("since", since.Format(time.RFC3339))
}

// Counts are numbers of execs by outcome.
type Counts [len(outcomes)]int64

// Add adds execs with a status.
func (c *Counts) Add(s audit.Status, execs int64) { c[outcomeIndex(s)] += execs }

// Total is the number of all execs.
func (c Counts) Total() (n int64) {
	for _, one := range c {
		n += one
	}
	return n
}

// words says the counts that are not zero: "12 execs: 10 succeeded, 2 failed".
func (c Counts) words() string {
	text, sep := several(c.Total(), "exec"), ": "
	for i, n := range c {
		if n > 0 {
			text += sep + ui.Count(n) + " " + strings.ToLower(outcomes[i].Label)
			sep = ", "
		}
	}
	return text
}

// Bar is the execs of a part of the span.
type Bar struct {
	Since, Until time.Time
	Counts
}

// ReasonCount is an error_reason with its number of execs.
type ReasonCount struct {
	Name  string
	Execs int64
}

// OverviewPage is the first page of the console.
type OverviewPage struct {
	Span    Span
	Live    bool
	Here    ui.Address
	Bars    []Bar
	Totals  Counts
	Recent  audit.Recent
	Refused []ReasonCount
	Failed  []ReasonCount
	Running []audit.Record
	More    bool // execs are running
	Empty   bool // there is no exec at all that the caller may see
	Open    bool // requests need no token
	Curl    string
	Now     time.Time

	Omitting int64 // refused rows that each count requests without rows

	Node   bool // the caller may see what follows
	Health health.Report
	Pool   engine.PoolStats
}

// TopReasons returns the reasons with the most execs.
func TopReasons(execs map[string]int64) []ReasonCount {
	delete(execs, "")
	names := slices.SortedFunc(maps.Keys(execs), func(a,
		b string,
	) int {
		return cmp.Or(cmp.Compare(execs[b], execs[a]), cmp.Compare(a, b))
	})
	var out []ReasonCount
	for _, name := range names[:min(len(names), OverviewRows)] {
		out = append(out, ReasonCount{Name: name, Execs: execs[name]})
	}
	return out
}

// The chart is drawn in units of its own: each bar is chartStep wide, all of it chartHeight high.
// The style sheet gives it its size.
const (
	chartStep   = 10
	chartHeight = 100
)

// top is the number of execs at the upper end of the chart: 1, 2 or 5 with zeros.
func (p OverviewPage) top() int64 {
	most := int64(1)
	for _, b := range p.Bars {
		most = max(most, b.Total())
	}
	for unit := int64(1); ; unit *= 10 {
		for _, n := range []int64{1, 2, 5} {
			if n*unit >= most || unit > math.MaxInt64/100 {
				return max(n*unit, most)
			}
		}
	}
}

// viewBox is the viewBox of the chart.
func (p OverviewPage) viewBox() string {
	return fmt.Sprintf("0 0 %d %d", len(p.Bars)*chartStep, chartHeight)
}

// path draws the parts of all bars that have an outcome; empty if there are none.
func (p OverviewPage) path(i int) string {
	top := float64(p.top())
	var d strings.Builder
	for x, b := range p.Bars {
		if b.Counts[i] == 0 {
			continue
		}
		var below int64
		for _, n := range b.Counts[:i] {
			below += n
		}
		height := max(float64(b.Counts[i])/top*chartHeight, 0.6) // so that it is seen
		fmt.Fprintf(&d, "M%d %.4gv-%.4gh%dv%.4gz", x*chartStep+1, chartHeight*(1-float64(below)/top), height, chartStep-2, height)
	}
	return d.String()
}

// label is what the chart shows, in words.
func (p OverviewPage) label() string {
	return "Execs by time and outcome, the last " + p.Span.Label + ", " + p.Totals.words()
}

// minuteOf is a time in UTC without seconds.
func minuteOf(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// ranFor is how long an exec runs already. Its start is on record only if it had been queued.
func (p OverviewPage) ranFor(rec audit.Record) string {
	begun := rec.StartedAt
	switch {
	case rec.Status == audit.Queued:
		return "queued"
	case begun.IsZero():
		begun = rec.CreatedAt
	}
	return ui.Duration(max(0, p.Now.Sub(begun).Milliseconds()))
}

// The times between two refreshes of a live page.
const (
	refreshEvery = "every 5s"
	refreshSoon  = "every 1s" // while counts are being made
)
