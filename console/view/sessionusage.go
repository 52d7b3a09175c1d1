package view

import (
	"fmt"
	"strings"
	"time"

	"secbox/console/ui"
	"secbox/runner/session"
)

// lifeWidth is how wide the chart of a session's life is, in units of its own; trendHeight is its
// height.
const lifeWidth = 400

var lifeBox = fmt.Sprintf("0 0 %d %d", lifeWidth, trendHeight)

// lifeChart is a number over the life of a session.
type lifeChart struct {
	label         string
	path          string
	last, highest string
}

func (c lifeChart) words() string {
	return fmt.Sprintf("%s, at most %s, last %s", c.label, c.highest, c.last)
}

// charts are of what the session's container used; none if that is not known.
func (s *SessionPart) charts() []lifeChart {
	all := s.Used.Samples
	if len(all) < 2 {
		return nil
	}
	memory, cores := make([]float64, len(all)), make([]float64, len(all))
	for i, one := range all {
		memory[i] = float64(one.MemoryBytes)
		if i > 0 {
			span := max(one.At.Sub(all[i-1].At), time.Millisecond)
			cores[i] = max(0, float64(one.CPUUS-all[i-1].CPUUS)) / float64(span.Microseconds())
		}
	}
	cores[0] = cores[1]
	return []lifeChart{
		chartOf("Memory", all, memory, func(v float64) string { return ui.Bytes(int64(v)) }),
		chartOf("Processors", all, cores, func(v float64) string { return fmt.Sprintf("%.2f", v) }),
	}
}

// chartOf draws values, one for each sample.
func chartOf(label string, all []session.Sample, values []float64, show func(float64) string) lifeChart {
	begin, highest := all[0].At, 0.0
	for _, v := range values {
		highest = max(highest, v)
	}
	life := max(all[len(all)-1].At.Sub(begin), 1)
	var d strings.Builder
	for i, v := range values {
		x := float64(all[i].At.Sub(begin)) / float64(life) * lifeWidth
		y := trendHeight - 1.0
		if highest > 0 {
			y -= v / highest * (trendHeight - 2)
		}
		fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x, y)
	}
	return lifeChart{label: label, path: d.String(), last: show(values[len(values)-1]), highest: show(highest)}
}

// processesTitle says how many processes a session has.
func processesTitle(s *SessionPart) string {
	if s.MoreProcesses {
		return fmt.Sprintf("Processes, the first %d", len(s.Processes))
	}
	return fmt.Sprintf("Processes, %d", len(s.Processes))
}
