package bench

import (
	"fmt"
	"io"

	"secbox/store/planprobe"
)

// Target is one promise, and whether this run kept it.
type Target struct {
	What     string `json:"what"`
	CoreAPI  string `json:"core_api"`
	Against  string `json:"against"`            // the other side; empty where there is none
	GoJudge  string `json:"go_judge,omitempty"` // where it was measured
	Measured string `json:"measured"`
	Wanted   string `json:"wanted"` // empty: it is only reported
	Reached  bool   `json:"reached"`
}

// The targets.
const (
	maxAnswerRatio     = 1.0
	minThroughputRatio = 0.95
	maxMemoryGrowth    = 32 << 20 // bytes
	minOutputSpeed     = 0.5

	// Parts of docker run's time: 20 is a twentieth.
	warmPart        = 20
	warmStretchPart = 30
	warmP95Part     = 10
	pythonPart      = 10
	unevenPart      = 15

	minCrunRatio  = 1.15
	maxBurstRatio = 1.1
	maxSlotBytes  = 20_000_000
	maxServerRSS  = 64 << 20 // bytes
)

func targets(r Report) []Target {
	out := []Target{}
	add := func(t Target) { out = append(out, t) }
	if a := r.Cold; a != nil {
		add(Target{
			What: "cold exec of `true`, time to the answer, p50", CoreAPI: fmt.Sprintf("%.0f ms", a.CoreAPI.P50),
			Against: fmt.Sprintf("%.0f ms", a.DockerRun.P50), Measured: fmt.Sprintf("%.2f×", a.Ratio), Wanted: fmt.Sprintf("≤ %.2f×", maxAnswerRatio),
			Reached: a.Ratio <= maxAnswerRatio,
		})
	}
	if t := r.ColdThroughput; t != nil {
		add(t.target(fmt.Sprintf("cold execs per second, %d at a time, teardown included, by neighbouring rounds", t.Concurrency), minThroughputRatio))
	}
	if f := r.Output; f != nil {
		size := fmt.Sprintf("%s of stdout, %s kept", binarySize(f.Bytes), binarySize(f.Limit))
		add(Target{
			What: size + ": speed", CoreAPI: fmt.Sprintf("%.2f s", f.CoreAPI.P50/1000), Against: fmt.Sprintf("%.2f s", f.DockerRun.P50/1000),
			Measured: fmt.Sprintf("%.2f×", f.Speed), Wanted: fmt.Sprintf("≥ %.2f×", minOutputSpeed), Reached: f.Speed >= minOutputSpeed,
		})
		if f.Peak > 0 {
			add(Target{
				What: size + ": growth of core-api's memory", CoreAPI: binarySize(f.Peak) + " at most", Measured: binarySize(f.Growth),
				Wanted: "< " + binarySize(maxMemoryGrowth), Reached: f.Growth < maxMemoryGrowth,
			})
		}
	}
	out = append(out, warmTargets(r)...)
	out = append(out, r.Skills.targets()...)
	out = append(out, r.Catalog.targets()...)
	out = append(out, r.Packages.targets()...)
	out = append(out, r.Sandboxes.targets()...)
	for _, l := range r.Lists {
		measured, wanted := "index, no sort", "index, no sort"
		if l.Pages >= 0 {
			measured, wanted = fmt.Sprintf("%s, %d pages", measured, l.Pages), fmt.Sprintf("%s, ≤ %d pages", wanted, planprobe.MaxBuffers)
		}
		if !l.Good {
			measured = "another plan"
		}
		add(Target{
			What: fmt.Sprintf("%d execs by task out of %d, %s", planprobe.ExecsPerTask, l.Rows, l.Database), CoreAPI: fmt.Sprintf("%.1f ms", l.HTTP.P50),
			Measured: measured, Wanted: wanted, Reached: l.Good,
		})
	}
	return out
}

// warmTargets are those of the pool.
func warmTargets(r Report) (out []Target) {
	for _, p := range r.Warm {
		what := p.Job + ", whole HTTP round trip, " + pace(p.Pace)
		if p.Job != nothing.name {
			out = append(out, p.target(what, false, pythonPart, 0), p.target(what, true, 0, 0))
			continue
		}
		out = append(out, p.target(what, false, warmPart, warmStretchPart), p.target(what, true, warmP95Part, 0))
	}
	for _, s := range r.Uneven {
		what := fmt.Sprintf("%s, arrivals uneven (Poisson, mean %s, %d projects)", s.Job, perSecond(s.Mean), s.Projects)
		out = append(out, s.target(what, false, unevenPart, 0), s.target(what, true, 0, 0))
	}
	for _, t := range r.Closed {
		least := minThroughputRatio
		if t.Runtime == crun {
			least = minCrunRatio
		}
		out = append(out, t.target(fmt.Sprintf("closed loop%s, concurrency %d, %d execs, refill and teardown included, by neighbouring rounds",
			with(t.Runtime), t.Concurrency, t.RoundExecs), least))
	}
	if b := r.Burst; b != nil {
		out = append(out, Target{
			What:    fmt.Sprintf("a burst of %d at once, pool idle at %d, last answer (median of %d)", b.Execs, b.Idle, b.CoreAPI.N),
			CoreAPI: fmt.Sprintf("%.2f s", b.CoreAPI.P50/1000), Against: fmt.Sprintf("%.2f s", b.DockerRun.P50/1000),
			Measured: fmt.Sprintf("%.2f×", b.Ratio), Wanted: fmt.Sprintf("≤ %.2f×", maxBurstRatio), Reached: b.Ratio <= maxBurstRatio,
		})
	}
	if i := r.Memory; i != nil {
		out = append(out, Target{
			What:    fmt.Sprintf("memory of %d idle slots, whole process tree with shims, by slot", i.Slots),
			CoreAPI: fmt.Sprintf("%.1f MB", megabytes(i.Slot.PSS)), Measured: fmt.Sprintf("%.1f MB", megabytes(i.Slot.PSS)),
			Wanted: fmt.Sprintf("≤ %.0f MB", megabytes(maxSlotBytes)), Reached: i.Slot.PSS <= maxSlotBytes,
		}, Target{
			What: "memory of core-api itself with them", CoreAPI: binarySize(i.CoreAPIPeak) + " at most", Measured: binarySize(i.CoreAPI.RSS),
			Wanted: "< " + binarySize(maxServerRSS), Reached: i.CoreAPI.RSS < maxServerRSS,
		})
	}
	return out
}

// target is the promise that p50, or p95, is at most one of `parts` parts of docker run's; parts 0: it is only reported.
func (l Latency) target(what string, p95 bool, parts, stretch int) Target {
	value, ratio, name := func(s Summary) float64 { return s.P50 }, l.Ratio, "p50"
	if p95 {
		value, ratio, name = func(s Summary) float64 { return s.P95 }, l.RatioP95, "p95"
	}
	t := Target{
		What: what + ": " + name, CoreAPI: fmt.Sprintf("%.1f ms", value(l.CoreAPI)), Against: fmt.Sprintf("%.0f ms", value(l.DockerRun)),
		Measured: part1(ratio), Reached: parts == 0 || ratio*float64(parts) <= 1,
	}
	if l.Misses > 0 && !p95 {
		t.CoreAPI += fmt.Sprintf(" (%d of %d missed)", l.Misses, l.Hits+l.Misses)
	}
	if l.GoJudge != nil {
		t.GoJudge = fmt.Sprintf("%.1f ms", value(*l.GoJudge))
	}
	if parts > 0 {
		t.Wanted = fmt.Sprintf("≤ 1/%d", parts)
	}
	if stretch > 0 {
		t.Wanted += fmt.Sprintf(", stretch 1/%d", stretch)
		if ratio*float64(stretch) <= 1 {
			t.Measured += ", stretch reached"
		}
	}
	return t
}

// target is the promise of a throughput. Neighbouring rounds are compared: load that comes and goes moves the medians of both sides apart.
func (t *Rates) target(what string, least float64) Target {
	return Target{
		What: what, CoreAPI: fmt.Sprintf("%.2f/s", median(t.CoreAPI)), Against: fmt.Sprintf("%.2f/s", median(t.DockerRun)),
		Measured: fmt.Sprintf("%.3f×", t.PairedRatio), Wanted: fmt.Sprintf("≥ %.2f×", least), Reached: t.PairedRatio >= least,
	}
}

func pace(ms float64) string { return fmt.Sprintf("one turn per %.0f ms", ms) }

// perSecond writes how many arrive, from the mean time between two.
func perSecond(ms float64) string { return fmt.Sprintf("%.3g/s", 1000/ms) }

// writeTargets writes Markdown, so that it can be pasted. Go-judge has a column where it was measured.
func (r Report) writeTargets(w io.Writer) {
	if len(r.Targets) == 0 {
		return
	}
	judged := false
	for _, t := range r.Targets {
		judged = judged || t.GoJudge != ""
	}
	head, rule := "", ""
	if judged {
		head, rule = " go-judge |", " --- |"
	}
	fmt.Fprintf(w, "\n| what | core-api | docker run |%s measured | target | |\n| --- | --- | --- |%s --- | --- | --- |\n", head, rule)
	for _, t := range r.Targets {
		verdict := "reached"
		switch {
		case t.Wanted == "":
			verdict = "reported"
		case !t.Reached:
			verdict = "not reached"
		}
		column := ""
		if judged {
			column = " " + orDash(t.GoJudge) + " |"
		}
		fmt.Fprintf(w, "| %s | %s | %s |%s %s | %s | %s |\n", t.What, t.CoreAPI, orDash(t.Against), column, t.Measured, orDash(t.Wanted), verdict)
	}
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}
