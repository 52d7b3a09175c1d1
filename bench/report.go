package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"secbox/store/planprobe"
)

// Report is what a run measured; a section that was not run or failed is nil.
type Report struct {
	Command    string    `json:"command"`
	Begun      time.Time `json:"begun"`
	Seconds    float64   `json:"seconds"`
	Machine    Machine   `json:"machine"`
	Answer     *Answers  `json:"answer,omitempty"`
	Throughput *Rates    `json:"throughput,omitempty"`
	Output     *Flood    `json:"output,omitempty"`
	Lists      []Listing `json:"lists,omitempty"`
	Targets    []Target  `json:"targets"`
}

// Target is one promise, and whether this run kept it.
type Target struct {
	What     string `json:"what"`
	CoreAPI  string `json:"core_api"`
	Against  string `json:"against"` // the other side; empty where there is none
	Measured string `json:"measured"`
	Wanted   string `json:"wanted"`
	Reached  bool   `json:"reached"`
}

// The targets, see issue 2 and CHANGELOG.md.
const (
	maxAnswerRatio     = 1.0
	minThroughputRatio = 0.95
	maxMemoryGrowth    = 32 << 20
	minOutputSpeed     = 0.5
)

func targets(r Report) []Target {
	out := []Target{}
	add := func(reached bool, what, ours, theirs, measured, wanted string) {
		out = append(out, Target{What: what, CoreAPI: ours, Against: theirs, Measured: measured, Wanted: wanted, Reached: reached})
	}
	if a := r.Answer; a != nil {
		add(a.Ratio <= maxAnswerRatio, "cold exec of `true`, time to the answer, p50", fmt.Sprintf("%.0f ms", a.CoreAPI.P50),
			fmt.Sprintf("%.0f ms", a.DockerRun.P50), fmt.Sprintf("%.2f×", a.Ratio), fmt.Sprintf("≤ %.2f×", maxAnswerRatio))
	}
	if t := r.Throughput; t != nil {
		// Neighbouring rounds are compared: load that comes and goes moves the medians of both sides apart.
		add(t.PairedRatio >= minThroughputRatio, fmt.Sprintf("cold execs per second, %d at a time, teardown included, by neighbouring rounds", t.Concurrency),
			fmt.Sprintf("%.2f/s", median(t.CoreAPI)), fmt.Sprintf("%.2f/s", median(t.DockerRun)), fmt.Sprintf("%.2f×", t.PairedRatio),
			fmt.Sprintf("≥ %.2f×", minThroughputRatio))
	}
	if f := r.Output; f != nil {
		size := fmt.Sprintf("%s of stdout, %s kept", binarySize(f.Bytes), binarySize(f.Limit))
		add(f.Speed >= minOutputSpeed, size+": speed", fmt.Sprintf("%.2f s", f.CoreAPI.P50/1000), fmt.Sprintf("%.2f s", f.DockerRun.P50/1000),
			fmt.Sprintf("%.2f×", f.Speed), fmt.Sprintf("≥ %.2f×", minOutputSpeed))
		if f.Peak > 0 {
			add(f.Growth < maxMemoryGrowth, size+": growth of core-api's memory", binarySize(f.Peak)+" at most", "", binarySize(f.Growth),
				"< "+binarySize(maxMemoryGrowth))
		}
	}
	for _, l := range r.Lists {
		measured, wanted := "index, no sort", "index, no sort"
		if l.Pages >= 0 {
			measured, wanted = fmt.Sprintf("%s, %d pages", measured, l.Pages), fmt.Sprintf("%s, ≤ %d pages", wanted, planprobe.MaxBuffers)
		}
		if !l.Good {
			measured = "another plan"
		}
		add(l.Good, fmt.Sprintf("%d execs by task out of %d, %s", planprobe.ExecsPerTask, l.Rows, l.Database),
			fmt.Sprintf("%.1f ms", l.HTTP.P50), "", measured, wanted)
	}
	return out
}

// binarySize writes bytes with the largest binary unit that leaves a number of 1 or more.
func binarySize(n int64) string {
	value, unit := float64(n), 0
	for value >= 1024 && unit < 3 {
		value, unit = value/1024, unit+1
	}
	number := strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0")
	return number + " " + []string{"B", "KiB", "MiB", "GiB"}[unit]
}

// WriteText writes the report for a person: where and how, a table per section, and at the end the targets as Markdown.
func (r Report) WriteText(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s\n%s, %.0f s\n", r.Command, r.Begun.Format(time.RFC3339), r.Seconds)
	fmt.Fprintf(w, "%s; kernel %s; %d cores (%s), %s of memory; load at the beginning %s\n",
		m.OS, orUnknown(m.Kernel), m.Cores, orUnknown(m.CPU), binarySize(m.MemoryMB<<20), orUnknown(m.Load))
	fmt.Fprintf(w, "Docker engine %s, CLI %s, %s, cgroup v%s\n", m.EngineVersion, m.ClientVersion, m.Runtime, m.CgroupVersion)
	for _, section := range []func(io.Writer){r.Answer.write, r.Throughput.write, r.Output.write, r.writeLists, r.writeTargets} {
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		section(t)
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func (a *Answers) write(w io.Writer) {
	if a == nil {
		return
	}
	fmt.Fprintf(w, "\nAnswer: POST /sandbox/execs of `bash -lc true` to its answer, plain docker run with the same flags to its end\n\n")
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	a.CoreAPI.row(w, "core-api")
	a.DockerRun.row(w, "docker run")
	fmt.Fprintf(w, "ratio of the medians %.3f, median of the pairs' ratios %.3f\n", a.Ratio, a.PairedRatio)
	fmt.Fprintf(w, "\nwhere the time goes, p50\tms\n")
	for _, p := range a.Phases {
		fmt.Fprintf(w, "%s\t%.1f\n", p.Name, p.P50)
	}
	if a.ServerCPU > 0 {
		fmt.Fprintf(w, "\nCPU per exec\tms\n")
		fmt.Fprintf(w, "core-api itself\t%.1f\n", a.ServerCPU)
		fmt.Fprintf(w, "its docker CLI\t%.1f\n", a.ServerCLICPU)
		fmt.Fprintf(w, "docker CLI of plain docker run\t%.1f\n", a.PlainCLICPU)
	}
}

func (s Summary) row(w io.Writer, name string) {
	fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\n", name, s.N, s.P50, s.P95, s.Min, s.Max)
}

func (t *Rates) write(w io.Writer) {
	if t == nil {
		return
	}
	fmt.Fprintf(w, "\nThroughput: rounds of %d, %d at a time, until the last container is gone\n\n", t.RoundExecs, t.Concurrency)
	fmt.Fprintf(w, "per second\tmedian\tby round\n")
	for _, side := range []struct {
		name  string
		rates []float64
	}{{"core-api", t.CoreAPI}, {"docker run", t.DockerRun}} {
		fmt.Fprintf(w, "%s\t%.2f\t%s\n", side.name, median(side.rates), strings.Trim(fmt.Sprintf("%.2f", side.rates), "[]"))
	}
	fmt.Fprintf(w, "ratio of the medians %.3f, median of the pairs' ratios %.3f\n", t.Ratio, t.PairedRatio)
}

func (f *Flood) write(w io.Writer) {
	if f == nil {
		return
	}
	fmt.Fprintf(w, "\nOutput: a job that prints %s, of which %s are kept; docker run >/dev/null of the same\n\n", binarySize(f.Bytes), binarySize(f.Limit))
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	f.CoreAPI.row(w, "core-api")
	f.DockerRun.row(w, "docker run")
	fmt.Fprintf(w, "speed against docker run %.2f\n", f.Speed)
	if f.Peak > 0 {
		fmt.Fprintf(w, "core-api's memory grew by %s at most, to %s\n", binarySize(f.Growth), binarySize(f.Peak))
	}
}

func (r Report) writeLists(w io.Writer) {
	if len(r.Lists) == 0 {
		return
	}
	fmt.Fprintf(w, "\nLists: %d execs by task_id out of %d\n\n", planprobe.ExecsPerTask, r.Lists[0].Rows)
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	for _, l := range r.Lists {
		l.Store.row(w, l.Database+", from the store")
		l.HTTP.row(w, l.Database+", over HTTP")
	}
	for _, l := range r.Lists {
		fmt.Fprintf(w, "\n%s (loaded in %.0f s):\n", l.Database, l.LoadedIn)
		for line := range strings.Lines(l.Plan) {
			fmt.Fprintf(w, "  %s\n", strings.TrimRight(line, "\n"))
		}
		if l.Pages >= 0 {
			fmt.Fprintf(w, "  at most %d pages of %d plans\n", l.Pages, planProbes)
		}
	}
}

// writeTargets writes Markdown, so that it can be pasted.
func (r Report) writeTargets(w io.Writer) {
	if len(r.Targets) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| what | core-api | docker run | measured | target | |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, t := range r.Targets {
		verdict := "reached"
		if !t.Reached {
			verdict = "not reached"
		}
		against := t.Against
		if against == "" {
			against = "–"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", t.What, t.CoreAPI, against, t.Measured, t.Wanted, verdict)
	}
}
