//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"secbox/engine/dockercli"
)

// Report is what a run measured.
type Report struct {
	Command     string        `json:"command"`
	Begun       time.Time     `json:"begun"`
	Seconds     float64       `json:"seconds"`
	LoadAfter   string        `json:"load_after"` // over 1, 5 and 15 minutes, at the end
	Machine     Machine       `json:"machine"`
	Comparisons []*Comparison `json:"comparisons"`
}

// Comparison is what one comparison measured.
type Comparison struct {
	Section string    `json:"section"`
	Title   string    `json:"title"`
	Sides   []Summary `json:"sides"`
	Notes   []string  `json:"notes,omitempty"`
	Targets []Target  `json:"targets"`
}

// Summary is what one side measured.
type Summary struct {
	Name   string    `json:"name"`
	Unit   unit      `json:"unit"`
	N      int       `json:"n"`
	P50    float64   `json:"p50"`
	P95    float64   `json:"p95"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	CPU    float64   `json:"cpu_ms,omitempty"` // CPU time of core-api and its database for each turn, in the mean
	rounds []float64 // the median of each
}

// Target is a number of a run, and whether it is what the project wants.
type Target struct {
	What     string  `json:"what"`
	CoreAPI  string  `json:"core_api"`
	Other    string  `json:"other,omitempty"`
	Measured string  `json:"measured"`
	Value    float64 `json:"value"`
	Wanted   string  `json:"wanted,omitempty"` // empty: no target
	Reached  bool    `json:"reached"`
}

func summarise(s side, rounds [][]float64) Summary {
	out := Summary{Name: s.name, Unit: s.unit}
	all := slices.Concat(rounds...)
	out.N, out.P50, out.P95, out.Min, out.Max = len(all), quantile(all, 0.5), quantile(all, 0.95), quantile(all, 0), quantile(all, 1)
	for _, values := range rounds {
		out.rounds = append(out.rounds, quantile(values, 0.5))
	}
	return out
}

// quantile interpolates between neighbours, so that the median of two is their mean; NaN of
// nothing.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measure computes a row.
func (r row) measure(sides []Summary) Target {
	ours, other := sides[r.ours], sides[r.other]
	a, b := ours.P50, other.P50
	if r.stat == p95 {
		a, b = ours.P95, other.P95
	}
	t := Target{What: r.what, CoreAPI: ours.Unit.format(a), Value: a}
	if r.ours != r.other {
		t.Other = fmt.Sprintf("%s (%s)", other.Unit.format(b), other.Name)
		t.Value = a / b
	}
	if r.stat == paired {
		var ratios []float64
		for i := range ours.rounds {
			ratios = append(ratios, ours.rounds[i]/other.rounds[i])
		}
		t.Value = quantile(ratios, 0.5)
	}
	wanted := func(string) {}
	if r.bound > 0 {
		sign := "≤ "
		if t.Reached = t.Value <= r.bound; r.least {
			sign, t.Reached = "≥ ", t.Value >= r.bound
		}
		wanted = func(s string) { t.Wanted = sign + s }
	}
	switch r.form {
	case plain:
		t.Measured = ours.Unit.format(t.Value)
		wanted(ours.Unit.format(r.bound))
	case times:
		t.Measured = fmt.Sprintf("%.3g×", t.Value)
		wanted(fmt.Sprintf("%.3g×", r.bound))
	case part:
		t.Measured = fmt.Sprintf("1/%.1f", 1/t.Value)
		wanted(fmt.Sprintf("1/%.3g", 1/r.bound))
	case adds:
		t.Value = a - b
		t.Measured, t.Reached = fmt.Sprintf("%+.1f ms", t.Value), t.Value <= r.bound
		wanted(fmt.Sprintf("+%.0f ms", r.bound))
	}
	return t
}

// fact is a target of one number that no side measured.
func fact(what string, u unit, value, most float64) Target {
	return Target{
		What: what, CoreAPI: u.format(value), Measured: u.format(value), Value: value, Wanted: "≤ " + u.format(most),
		Reached: value <= most,
	}
}

// unit is the unit of a side's values.
type unit string

const (
	ms             unit = "ms"
	perSecond      unit = "/s"
	sizeBytes      unit = "bytes"
	bytesPerSecond unit = "bytes/s"
	count          unit = ""
)

func (u unit) format(v float64) string {
	switch u {
	case ms:
		return fmt.Sprintf("%.1f ms", v)
	case perSecond:
		if v >= 100 {
			return fmt.Sprintf("%.0f/s", v)
		}
		return fmt.Sprintf("%.2f/s", v)
	case sizeBytes:
		return binarySize(v)
	case bytesPerSecond:
		return binarySize(v) + "/s"
	}
	return fmt.Sprintf("%.0f", v)
}

// binarySize writes bytes with the largest binary unit that leaves a number of 1 or more.
func binarySize(n float64) string {
	u := 0
	for n >= 1024 && u < 3 {
		n, u = n/1024, u+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") + " " + []string{"B", "KiB", "MiB", "GiB"}[u]
}

// writeText writes the report for a person: the machine, each comparison, and at the end the
// targets in Markdown.
func (r *Report) writeText(w io.Writer) error {
	m := r.Machine
	fmt.Fprintf(w, "%s\n%s, %.0f s\n", r.Command, r.Begun.Format(time.RFC3339), r.Seconds)
	fmt.Fprintf(w, "%s; kernel %s; %d cores (%s), %s of memory; load at the beginning %s, at the end %s\n",
		m.OS, m.Kernel, m.Cores, m.CPU, binarySize(float64(m.MemoryMB<<20)), m.Load, r.LoadAfter)
	fmt.Fprintf(w, "Docker engine %s, CLI %s, %s, cgroup v%s\n", m.EngineVersion, m.ClientVersion, m.Runtime, m.CgroupVersion)
	for _, c := range r.Comparisons {
		fmt.Fprintf(w, "\n%s: %s\n\n", c.Section, c.Title)
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		cpu := slices.ContainsFunc(c.Sides, func(s Summary) bool { return s.CPU > 0 })
		if len(c.Sides) > 0 {
			fmt.Fprintf(t, "\tn\tp50\tp95\tmin\tmax")
			if cpu {
				fmt.Fprintf(t, "\tCPU time, mean")
			}
			fmt.Fprintln(t)
		}
		for _, s := range c.Sides {
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s", s.Name, s.N, s.Unit.format(s.P50), s.Unit.format(s.P95), s.Unit.format(s.Min),
				s.Unit.format(s.Max))
			if s.CPU > 0 {
				fmt.Fprintf(t, "\t%s", ms.format(s.CPU))
			}
			fmt.Fprintln(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, note := range c.Notes {
			fmt.Fprintln(w, note)
		}
	}
	_, err := fmt.Fprint(w, "\n| what | core-api | other | measured | target | |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, c := range r.Comparisons {
		for _, t := range c.Targets {
			verdict := "reached"
			switch {
			case t.Wanted == "":
				verdict = ""
			case !t.Reached:
				verdict = "not reached"
			}
			_, err = fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", t.What, t.CoreAPI, orDash(t.Other), t.Measured, orDash(t.Wanted),
				verdict)
		}
	}
	return err
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// Machine is where a run took place.
type Machine struct {
	OS            string `json:"os"`
	Kernel        string `json:"kernel"`
	CPU           string `json:"cpu"`
	Cores         int    `json:"cores"`
	MemoryMB      int64  `json:"memory_mb"`
	Load          string `json:"load"` // over 1, 5 and 15 minutes, at the beginning
	EngineVersion string `json:"engine_version"`
	ClientVersion string `json:"client_version"`
	Runtime       string `json:"runtime"`
	CgroupVersion string `json:"cgroup_version"`
}

// field is the part of a file between two texts.
func field(file, after, before string) string {
	content, _ := os.ReadFile(file)
	_, rest, _ := strings.Cut(string(content), after)
	value, _, _ := strings.Cut(rest, before)
	return strings.TrimSpace(value)
}

// loadAverage is the machine's load over 1, 5 and 15 minutes.
func loadAverage() string {
	load := strings.Fields(field("/proc/loadavg", "", "\n"))
	return strings.Join(load[:min(3, len(load))], " ")
}

func machine(info dockercli.Info) Machine {
	return Machine{
		OS: info.OperatingSystem + " " + info.Architecture, Kernel: field("/proc/sys/kernel/osrelease", "", "\n"), Cores: runtime.NumCPU(),
		CPU: strings.TrimLeft(field("/proc/cpuinfo", "model name", "\n"), "\t: "), Load: loadAverage(),
		MemoryMB: info.MemTotal >> 20, EngineVersion: info.ServerVersion, ClientVersion: info.ClientInfo.Version,
		Runtime: info.DefaultRuntime, CgroupVersion: info.CgroupVersion,
	}
}
