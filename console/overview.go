package console

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/access/tokens"
	"secbox/audit"
	"secbox/console/ui"
	"secbox/engine"
	"secbox/fault"
	"secbox/health"
	"secbox/runner"
)

const overviewRows = 5 // of each of its lists

// span is a time that the overview can show.
type span struct {
	name, label string
	bars, hours int      // hours of each bar
	axis        []string // below the bars, from the oldest to the newest
}

var spans = []span{
	{"day", "24 hours", 24, 1, []string{"24 hours ago", "18", "12", "6", "now"}},
	{"week", "7 days", 56, 3, []string{"7 days ago", "6", "5", "4", "3", "2", "1", "now"}},
	{"month", "30 days", 60, 12, []string{"30 days ago", "24", "18", "12", "6", "now"}},
}

// unit is the time of one bar.
func (s span) unit() string {
	if s.hours == 1 {
		return "an hour"
	}
	return strconv.Itoa(s.hours) + " hours"
}

// outcomeGroup is a group of statuses that share a colour.
type outcomeGroup struct {
	label, class string
	statuses     []audit.Status
}

// outcomes are in the order in which they are stacked, from below. The last one has statuses of other versions, too.
var outcomes = [...]outcomeGroup{
	{"Succeeded", "good", []audit.Status{audit.Succeeded}},
	{"Running", "busy", []audit.Status{audit.Queued, audit.Running}},
	{"Failed", "bad", []audit.Status{audit.Failed, audit.Errored}},
	{"At a limit", "limit", []audit.Status{audit.Timeout, audit.OOMKilled}},
	{"Refused", "warn", []audit.Status{audit.Rejected}},
	{"Canceled or lost", "calm", []audit.Status{audit.Canceled, audit.Lost}},
}

func groupOf(s audit.Status) int {
	i := slices.IndexFunc(outcomes[:], func(o outcomeGroup) bool { return slices.Contains(o.statuses, s) })
	if i < 0 {
		return len(outcomes) - 1
	}
	return i
}

// execsOf leads to the execs of an outcome since a time.
func (o outcomeGroup) execsOf(since time.Time) ui.Address {
	names := make([]string, len(o.statuses))
	for i, s := range o.statuses {
		names[i] = string(s)
	}
	if names[0] == string(audit.Rejected) {
		return ui.Link("refused").With("since", since.Format(time.RFC3339))
	}
	return ui.Link("history").With("status", strings.Join(names, ",")).With("since", since.Format(time.RFC3339))
}

// counts are numbers of execs by outcome.
type counts [len(outcomes)]int64

func (c counts) total() (n int64) {
	for _, one := range c {
		n += one
	}
	return n
}

// words says the counts that are not zero: "12 execs: 10 succeeded, 2 failed".
func (c counts) words() string {
	text, sep := several(c.total(), "exec"), ": "
	for i, n := range c {
		if n > 0 {
			text += sep + ui.Count(n) + " " + strings.ToLower(outcomes[i].label)
			sep = ", "
		}
	}
	return text
}

// bar is the execs of a part of the span.
type bar struct {
	since, until time.Time
	counts
}

// reasonCount is an error_reason with its number of execs.
type reasonCount struct {
	name  string
	execs int64
}

// overviewPage is the first page of the console.
type overviewPage struct {
	span    span
	live    bool
	here    ui.Address
	bars    []bar
	totals  counts
	recent  audit.Recent
	refused []reasonCount
	failed  []reasonCount
	running []audit.Record
	more    bool // execs are running
	empty   bool // there is no exec at all that the caller may see
	open    bool // requests need no token
	curl    string
	now     time.Time

	node   bool // the caller may see what follows
	health health.Report
	pool   engine.PoolStats
}

// overview shows what happens now, and the execs of a day, a week or a month.
func (c *Console) overview(v *visit) (ui.Page, error) {
	p := overviewPage{now: c.cfg.Now().UTC(), node: v.caller.Role != tokens.Worker, open: v.caller.ID == runner.Tokenless}
	name := cmp.Or(v.query.Get("span"), spans[0].name)
	i := slices.IndexFunc(spans, func(s span) bool { return s.name == name })
	var bad fault.Fields
	if i < 0 {
		bad.Add("span", "must be day, week or month")
	}
	p.live = v.isLive(&bad)
	if err := bad.Err(); err != nil {
		return ui.Page{}, err
	}
	p.span, p.here = spans[i], ui.Link("overview").With("span", v.query.Get("span"))
	if err := c.readOverview(v, &p); err != nil {
		return ui.Page{}, err
	}
	return ui.Page{Title: "Overview", Actions: overviewActions(p), Body: overviewBody(p)}, nil
}

func (c *Console) readOverview(v *visit, p *overviewPage) (err error) {
	width := time.Duration(p.span.hours) * time.Hour
	end := p.now.Truncate(width).Add(width)
	begin := end.Add(-time.Duration(p.span.bars) * width)
	hours := int(p.now.Truncate(time.Hour).Sub(begin)/time.Hour) + 1
	if p.recent, err = c.cfg.Execs.Recent(v.ctx(), v.caller, hours); err != nil {
		return err
	}
	p.bars = make([]bar, p.span.bars)
	for i := range p.bars {
		p.bars[i].since = begin.Add(time.Duration(i) * width)
		p.bars[i].until = p.bars[i].since.Add(width)
	}
	refused, failed := map[string]int64{}, map[string]int64{}
	for _, h := range p.recent.Hours {
		i := int(h.Hour.Sub(begin) / width)
		if i < 0 || i >= len(p.bars) { // the hour has changed meanwhile
			continue
		}
		p.bars[i].counts[groupOf(h.Status)] += h.Execs
		p.totals[groupOf(h.Status)] += h.Execs
		switch h.Status {
		case audit.Rejected:
			refused[string(h.ErrorReason)] += h.Execs
		case audit.Failed, audit.Errored, audit.Timeout, audit.OOMKilled, audit.Lost:
			failed[string(h.ErrorReason)] += h.Execs
		}
	}
	p.refused, p.failed = topReasons(refused), topReasons(failed)

	open := audit.Filter{Statuses: []audit.Status{audit.Queued, audit.Running}}
	var next *audit.Cursor
	if p.running, next, err = c.cfg.Execs.List(v.ctx(), v.caller, open, nil, overviewRows); err != nil {
		return err
	}
	p.more = next != nil
	size := int64(0)
	for _, rec := range p.running {
		size += int64(rec.Size())
	}
	if err := v.door.Reserve(size); err != nil {
		return err
	}
	if p.totals.total() == 0 && len(p.running) == 0 && p.recent.Complete {
		any, _, err := c.cfg.Execs.List(v.ctx(), v.caller, audit.Filter{Summary: true}, nil, 1)
		if err != nil {
			return err
		}
		if p.empty = len(any) == 0; p.empty {
			p.curl = curlExec(v)
		}
	}
	if p.node {
		p.health, p.pool = c.cfg.Health.Latest(v.ctx()), c.cfg.Pool.Stats()
	}
	return nil
}

// topReasons returns the reasons with the most execs.
func topReasons(execs map[string]int64) []reasonCount {
	delete(execs, "")
	names := slices.SortedFunc(maps.Keys(execs), func(a, b string) int { return cmp.Or(cmp.Compare(execs[b], execs[a]), cmp.Compare(a, b)) })
	var out []reasonCount
	for _, name := range names[:min(len(names), overviewRows)] {
		out = append(out, reasonCount{name: name, execs: execs[name]})
	}
	return out
}

// curlExec returns a command that runs an exec; empty if the caller may not.
func curlExec(v *visit) string {
	if !slices.Contains(workers, v.caller.Role) {
		return ""
	}
	scheme, token := "http", ""
	if v.door.Secure(v.Request()) {
		scheme = "https"
	}
	if v.session != "" {
		token = ` -H "Authorization: Bearer $SECBOX_TOKEN"`
	}
	return fmt.Sprintf(`curl -s %s://%s/sandbox/execs%s -H 'Content-Type: application/json' -d '{"project_id": "demo", "exec": {"script": "echo hello"}}'`, scheme, v.Request().Host, token)
}

// The chart is drawn in units of its own: each bar is chartStep wide, all of it chartHeight high. The style sheet gives it its size.
const (
	chartStep   = 10
	chartHeight = 100
)

// top is the number of execs at the upper end of the chart: 1, 2 or 5 with zeros.
func (p overviewPage) top() int64 {
	most := int64(1)
	for _, b := range p.bars {
		most = max(most, b.total())
	}
	for unit := int64(1); ; unit *= 10 {
		for _, n := range []int64{1, 2, 5} {
			if n*unit >= most || unit > math.MaxInt64/100 {
				return max(n*unit, most)
			}
		}
	}
}

// viewBox is the one of the chart.
func (p overviewPage) viewBox() string {
	return fmt.Sprintf("0 0 %d %d", len(p.bars)*chartStep, chartHeight)
}

// path draws the parts of all bars that have an outcome; empty if there are none.
func (p overviewPage) path(i int) string {
	top := float64(p.top())
	var d strings.Builder
	for x, b := range p.bars {
		if b.counts[i] == 0 {
			continue
		}
		var below int64
		for _, n := range b.counts[:i] {
			below += n
		}
		height := max(float64(b.counts[i])/top*chartHeight, 0.6) // so that it is seen
		fmt.Fprintf(&d, "M%d %.4gv-%.4gh%dv%.4gz", x*chartStep+1, chartHeight*(1-float64(below)/top), height, chartStep-2, height)
	}
	return d.String()
}

// label is what the chart shows, in words.
func (p overviewPage) label() string {
	return "Execs by time and outcome, the last " + p.span.label + ", " + p.totals.words()
}

// minuteOf is a time in UTC without seconds.
func minuteOf(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// ranFor is how long an exec runs already. Its start is on record only if it had been queued.
func (p overviewPage) ranFor(rec audit.Record) string {
	begun := rec.StartedAt
	switch {
	case rec.Status == audit.Queued:
		return "queued"
	case begun.IsZero():
		begun = rec.CreatedAt
	}
	return ui.Duration(max(0, p.now.Sub(begun).Milliseconds()))
}
