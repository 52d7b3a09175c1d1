package bench

import (
	"fmt"
	"io"
	"strings"

	"secbox/store/planprobe"
)

func (a *Answers) write(w io.Writer) {
	if a == nil {
		return
	}
	fmt.Fprintf(w, "\nCold: POST /sandbox/execs of `bash -lc true` to its answer without a pool, plain docker run with the same flags to its end\n\n")
	fmt.Fprintf(w, "ms\tn\tp50\tp95\tmin\tmax\n")
	a.CoreAPI.row(w, "core-api")
	a.DockerRun.row(w, "docker run")
	fmt.Fprintf(w, "ratio of the medians %.3f, median of the pairs' ratios %.3f\n", a.Ratio, a.PairedRatio)
	writePhases(w, a.Phases)
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

func writePhases(w io.Writer, phases []Phase) {
	fmt.Fprintf(w, "\nwhere the time goes, p50\tms\n")
	for _, p := range phases {
		fmt.Fprintf(w, "%s\t%.1f\n", p.Name, p.P50)
	}
}

func (r Report) writeColdThroughput(w io.Writer) {
	if t := r.ColdThroughput; t != nil {
		fmt.Fprintf(w, "\nThroughput without a pool: rounds of %d, %d at a time, until the last container is gone\n\n", t.RoundExecs, t.Concurrency)
		t.write(w)
	}
}

func (t *Rates) write(w io.Writer) {
	fmt.Fprintf(w, "per second\tmedian\tby round\n")
	for _, side := range []struct {
		name  string
		rates []float64
	}{{"core-api" + with(t.Runtime), t.CoreAPI}, {"docker run", t.DockerRun}} {
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
