package view

import (
	"fmt"
	"math"
	"strings"
	"time"

	"secbox/cluster/samples"
	"secbox/console/ui"
)

// The chart of a day is drawn in units of its own: a minute is one wide. The style sheet gives it
// its size.
const (
	dayMinutes  = int(samples.Shown / time.Minute)
	dayHours    = dayMinutes / 60
	partMinutes = 5 // of a part of the chart
	trendHeight = 30
)

var trendBox = fmt.Sprintf("0 0 %d %d", dayMinutes, trendHeight)

// measure is a number of a node that has a chart.
type measure struct {
	name  samples.Name
	label string
	show  func(int64) string
	of    samples.Name // the most that it can be; empty: not known
	low   bool         // low values matter: a part of the chart is its lowest value
	grows bool         // the chart begins at its lowest value, not at 0
}

// measures are in the order of the page, in groups.
var measures = [][]measure{
	{
		{name: samples.Running, label: "Running execs", show: ui.Count, of: samples.Slots},
		{name: samples.Queued, label: "Execs that wait for a place", show: ui.Count},
		{name: samples.Ended, label: "Execs that ended in a minute", show: ui.Count},
		{name: samples.Failed, label: "Execs that failed in a minute", show: ui.Count},
		{name: samples.Commands, label: "Commands in sandboxes", show: ui.Count},
	}, {
		{name: samples.PoolWaiting, label: "Waiting containers", show: ui.Count, of: samples.PoolMax},
		{name: samples.PoolStarting, label: "Starting containers", show: ui.Count},
		{name: samples.PoolMisses, label: "Execs without a waiting container in a minute", show: ui.Count},
	}, {
		{name: samples.WorkspaceFree, label: "Free on the workspace’s disk", show: ui.Bytes, low: true},
		{name: samples.StateFree, label: "Free on the state dir’s disk", show: ui.Bytes, low: true},
		{name: samples.MemoryFree, label: "Free memory of the machine", show: ui.Bytes, low: true},
	}, {
		{name: samples.LogEntries, label: "Entries of the log", show: ui.Count, grows: true},
		{name: samples.LogBehind, label: "Events not yet logged", show: ui.Count},
		{name: samples.LogBehindMS, label: "Age of the first of them", show: ui.Duration},
		{name: samples.WitnessBehind, label: "Entries that a witness has not cosigned", show: ui.Count},
		{name: samples.Spool, label: "Results that the database lacks", show: ui.Count},
	}, {
		{name: samples.Problems, label: "Problems of health", show: ui.Count},
	},
}

// trend is a measure of the last day.
type trend struct {
	measure
	parts           [dayMinutes / partMinutes]*int64 // nil: a gap
	hours           [dayHours]*int64
	lowest, highest int64
	now, most       *int64 // nil: not known
}

// trends returns the measures that the node has, in groups.
func (p OperationsPage) trends() [][]trend {
	var out [][]trend
	for _, group := range measures {
		var trends []trend
		for _, m := range group {
			if t := p.trend(m); t.lowest <= t.highest {
				trends = append(trends, t)
			}
		}
		if len(trends) > 0 {
			out = append(out, trends)
		}
	}
	return out
}

func (p OperationsPage) trend(m measure) trend {
	t := trend{measure: m, lowest: math.MaxInt64, highest: math.MinInt64}
	for _, s := range p.Day.Samples {
		v, ok := s.Values[m.name]
		x := p.minute(s)
		if !ok || x < 0 || x >= dayMinutes {
			continue
		}
		t.lowest, t.highest = min(t.lowest, v), max(t.highest, v)
		m.note(&t.parts[x/partMinutes], v)
		m.note(&t.hours[x/60], v)
		if x >= dayMinutes-2 { // the sample of this minute may not be there yet
			t.now = &v
			if most, ok := s.Values[m.of]; ok {
				t.most = &most
			}
		}
	}
	return t
}

// minute returns how many minutes after the beginning of the day a sample is.
func (p OperationsPage) minute(s samples.Sample) int {
	return dayMinutes - 1 - int(p.Day.Now.Sub(s.At)/time.Minute)
}

// hour returns when an hour of the day began.
func (p OperationsPage) hour(i int) time.Time {
	return p.Day.Now.Add(time.Minute - samples.Shown + time.Duration(i)*time.Hour)
}

// missing returns how much of the day has no samples.
func (p OperationsPage) missing() time.Duration {
	return samples.Shown - time.Duration(len(p.Day.Samples))*time.Minute
}

// note keeps the value that matters more.
func (m measure) note(kept **int64, v int64) {
	if *kept == nil || m.low == (v < **kept) {
		*kept = &v
	}
}

// path draws each part as a level line, joined to the next one; a gap is not drawn.
func (t trend) path() string {
	floor := int64(0)
	if t.grows {
		floor = t.lowest
	}
	span := max(float64(t.highest-floor), 1)
	var d strings.Builder
	level, width := "", 0 // of the line that is drawn; empty: none
	for i, v := range t.parts {
		next := ""
		if v != nil {
			next = fmt.Sprintf("%.3g", trendHeight-1-float64(*v-floor)/span*(trendHeight-2))
		}
		if next != level && level != "" {
			fmt.Fprintf(&d, "h%d", width)
			width = 0
		}
		switch {
		case next == level || next == "":
		case level == "":
			fmt.Fprintf(&d, "M%d %s", i*partMinutes, next)
		default:
			d.WriteString("V" + next)
		}
		level = next
		width += partMinutes
		if level == "" {
			width = 0
		}
	}
	if level != "" {
		fmt.Fprintf(&d, "h%d", width)
	}
	return d.String()
}

// nowText is the newest value, if it is of the last two minutes.
func (t trend) nowText() string {
	switch {
	case t.now == nil:
		return "–"
	case t.most != nil:
		return t.show(*t.now) + " of " + t.show(*t.most)
	}
	return t.show(*t.now)
}

func (t trend) hourText(i int) string {
	if t.hours[i] == nil {
		return "–"
	}
	return t.show(*t.hours[i])
}

// words is what the chart shows.
func (t trend) words() string {
	text := t.label + ", " + t.show(t.lowest) + " to " + t.show(t.highest)
	if t.now != nil {
		text += ", now " + t.nowText()
	}
	return text
}
